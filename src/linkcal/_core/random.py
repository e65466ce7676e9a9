"""One seed per run, split into named streams.

A stream's seed depends only on the run's seed and the stream's name, so that adding a calibrator or an epoch
does not move the split.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import numpy as np


def stream_seed(seed: int, name: str) -> int:
    """Seed of the stream `name` of the run `seed`, in ``[0, 2**63)``."""
    # crc32 is stable over processes and versions; Python's own hash of a string is salted.
    sequence = np.random.SeedSequence([seed, crc32(name.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def numpy_stream(seed: int, name: str) -> np.random.Generator:
    """NumPy generator of a named stream."""
    return np.random.default_rng(stream_seed(seed, name))


@contextmanager
def torch_streams_forked(seed: int, name: str) -> Iterator[None]:
    """Run a block under torch's global generators seeded by a named stream, then restore them.

    Dropout, ``randn_like`` and PyG's initialisers read only the global generators.
    """
    import torch

    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(stream_seed(seed, name))
        yield
