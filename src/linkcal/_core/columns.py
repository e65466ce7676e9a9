"""Names and order of the feature columns that the graph side computes for calibrators."""

#: Columns by group: what the target link does to its own score and embeddings (needs toggling), degrees and
#: paths of the endpoints (need only the edges), and their feature similarity.
COLUMN_GROUPS: dict[str, tuple[str, ...]] = {
    "toggle": ("logit_change", "log_distance", "log_relative_distance", "cosine"),
    "degrees": ("log_degree_sum", "log_degree_difference"),
    "paths": (
        *("log_common_neighbours", "log_adamic_adar", "log_resource_allocation"),
        "log_paths_of_length_three",
    ),
    "attributes": ("attribute_cosine", "neighbourhood_cosine"),
}

TOGGLE_COLUMNS, ATTRIBUTE_COLUMNS = COLUMN_GROUPS["toggle"], COLUMN_GROUPS["attributes"]

#: Columns of the feature kind ``"structure"``, in order: those that need no model.
STRUCTURE_COLUMNS = COLUMN_GROUPS["degrees"] + COLUMN_GROUPS["paths"] + ATTRIBUTE_COLUMNS

#: Columns of the feature kind ``"structural"``, in order; see :func:`linkcal.features.structural_features`.
STRUCTURAL_COLUMNS = TOGGLE_COLUMNS + STRUCTURE_COLUMNS
