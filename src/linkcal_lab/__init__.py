"""The laboratory: the protocols, sweeps, tables and figures of the paper. The library never imports it."""
