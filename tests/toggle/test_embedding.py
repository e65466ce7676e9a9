"""Link embeddings of rows: the compiled product is the model's own, and only taken where it is that."""

from __future__ import annotations

import pytest
import torch

from linkcal.models import GCN
from linkcal.toggle._engine import embed_and_score

from .cases import features, seeded

INDEX = torch.tensor([[0, 3, 3, 9], [1, 2, 2, 0]])


class Sums(GCN):
    """Embeds a pair in another way."""

    def link_embedding(self, z, edge_label_index):
        return z[edge_label_index[0]] + z[edge_label_index[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("contiguous", [True, False])
def test_product_is_the_models_own_bit_for_bit(dtype, contiguous):
    rows = features(10, 5, dtype) if contiguous else features(5, 10, dtype).T
    model = seeded(lambda: GCN(3, 4, 5), 0)
    h, logit = embed_and_score(model, rows, INDEX)
    assert h.dtype == dtype
    assert torch.equal(h, model.link_embedding(rows, INDEX))
    assert torch.equal(logit, model.decode(rows, INDEX))


def test_without_pairs_nothing_is_embedded():
    h, logit = embed_and_score(seeded(lambda: GCN(3, 4, 5), 0), features(10, 5, torch.float32), INDEX[:, :0])
    assert h.shape == (0, 5)
    assert logit.shape == (0,)


@pytest.mark.parametrize("where", ["class", "instance"])
def test_a_link_embedding_of_its_own_is_asked(where):
    rows = features(10, 5, torch.float32)
    model = seeded(lambda: (Sums if where == "class" else GCN)(3, 4, 5), 0)
    if where == "instance":
        model.link_embedding = lambda z, index: z[index[0]] + z[index[1]]
    h, logit = embed_and_score(model, rows, INDEX)
    expected = rows[INDEX[0]] + rows[INDEX[1]]
    assert torch.equal(h, expected)
    assert torch.equal(logit, expected.sum(dim=-1))
