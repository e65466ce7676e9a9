"""Names and order of the feature columns that the graph side computes for calibrators."""

from __future__ import annotations

#: Effect of the target link on its own score and embeddings; these need toggling.
TOGGLE_COLUMNS = ("logit_change", "log_distance", "log_relative_distance", "cosine")

#: Position of the link in the graph; these need only the edges.
STRUCTURE_COLUMNS = ("log_degree_sum", "log_degree_difference", "log_common_neighbours")

#: Feature similarity of the endpoints.
ATTRIBUTE_COLUMNS = ("attribute_cosine", "neighbourhood_cosine")

#: Columns of the feature kind ``"structural"``, in order; see :func:`linkcal.features.structural_features`.
STRUCTURAL_COLUMNS = TOGGLE_COLUMNS + STRUCTURE_COLUMNS + ATTRIBUTE_COLUMNS
