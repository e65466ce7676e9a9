"""The most probable missing pairs of a whole graph, in bounded memory."""

from linkcal.ranking.pairs import RankedPairs, most_probable_pairs
from linkcal.ranking.products import top_products

__all__ = ["RankedPairs", "most_probable_pairs", "top_products"]
