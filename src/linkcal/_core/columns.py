"""Names and order of the feature columns that graphs hand to calibrators, written in this one place."""

from __future__ import annotations

__all__ = ["ATTRIBUTE_COLUMNS", "STRUCTURAL_COLUMNS", "STRUCTURE_COLUMNS", "TOGGLE_COLUMNS"]


#: What the target link does to the link: these columns need toggling.
TOGGLE_COLUMNS = ("logit_change", "log_distance", "log_relative_distance", "cosine")

#: Where the link sits in the graph: these need the edges alone.
STRUCTURE_COLUMNS = ("log_degree_sum", "log_degree_difference", "log_common_neighbours")

#: How alike the endpoints are in the node features that the graph came with.
ATTRIBUTE_COLUMNS = ("attribute_cosine", "neighbourhood_cosine")

#: Columns of the feature kind ``"structural"``, in order; :func:`linkcal.features.structural_features` says
#: what they hold.
STRUCTURAL_COLUMNS = TOGGLE_COLUMNS + STRUCTURE_COLUMNS + ATTRIBUTE_COLUMNS
