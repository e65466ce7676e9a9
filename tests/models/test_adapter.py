import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GAE, GCNConv
from torch_geometric.nn import VGAE as PygVGAE

from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models import GCN, AdaptedLinkPredictor, as_link_predictor
from linkcal.models.adapter import link_embedding_of, unwrap_link_predictor
from refusals import refuses, unsupported

PAIRS = torch.tensor([[0, 0, 1], [1, 2, 2]])
Z = torch.tensor([[1.0, 2.0], [3.0, 0.5], [-1.0, 4.0]])
NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


class Dot(nn.Module):
    """A user's model: encode returns the features."""

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


class Returning(Dot):
    """decode returns what it was given."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return self.value  # type: ignore[return-value]


class OwnEmbedding(Dot):
    decode_returns = "logits"

    def link_embedding(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return (z[edge_label_index[0]] - z[edge_label_index[1]]).abs()


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mu, self.logstd = GCNConv(2, 2), GCNConv(2, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return self.mu(x, edge_index), self.logstd(x, edge_index)


def logits_of(model: nn.Module, z: Tensor, pairs: Tensor, declared: str | None = None) -> Tensor:
    return as_link_predictor(model, declared).decode(z, pairs)


class TestDeclaration:
    def test_undeclared_is_an_error_not_a_guess(self):
        refuses(r"decode_returns must be declared .* for Dot .*got None", as_link_predictor, Dot())

    def test_argument_and_attribute(self):
        model = Returning(torch.full((3,), 0.75))
        assert logits_of(model, Z, PAIRS, "logits").tolist() == [0.75] * 3
        assert logits_of(model, Z, PAIRS, "probabilities").tolist() == pytest.approx([math.log(3)] * 3)
        model.decode_returns = "probabilities"
        assert logits_of(model, Z, PAIRS).tolist() == pytest.approx([math.log(3)] * 3)

    def test_misspelt(self):
        refuses("did you mean 'logits'", as_link_predictor, Dot(), "logit")
        model = Dot()
        model.decode_returns = "probs"
        refuses(r"model.decode_returns must be one of", as_link_predictor, model)

    @pytest.mark.parametrize("cls", [GAE, PygVGAE])
    def test_pyg_autoencoders_are_known(self, cls):
        model = cls(TwoHeads())
        for declared in (None, "probabilities"):
            assert as_link_predictor(model, declared).module_returns == "probabilities"
        refuses(r"sigmoid is on by default.* says 'probabilities'", as_link_predictor, model, "logits")

    def test_pyg_autoencoder_with_a_decoder_of_its_own_must_declare(self):
        class Decoder(nn.Module):
            def forward(self, z: Tensor, edge_index: Tensor) -> Tensor:
                return (z[edge_index[0]] + z[edge_index[1]]).sum(dim=-1)

        model = GAE(nn.Identity(), Decoder())
        refuses("decode_returns must be declared", as_link_predictor, model)
        assert logits_of(model, Z, PAIRS, "logits").tolist() == [6.5, 6.0, 6.5]


class TestLogitsOf:
    def test_probabilities_by_hand(self):
        model = Returning(torch.tensor([0.5, 0.75, 0.2], dtype=torch.float64))
        expected = torch.tensor([0.0, math.log(3.0), -math.log(4.0)], dtype=torch.float64)
        torch.testing.assert_close(
            logits_of(model, Z, PAIRS, "probabilities"), expected, rtol=1e-12, atol=1e-15
        )

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_zero_and_one_become_the_dtypes_limit(self, dtype):
        got = logits_of(Returning(torch.tensor([0.0, 1.0, 0.5], dtype=dtype)), Z, PAIRS, "probabilities")
        eps = torch.finfo(dtype).eps
        assert got.dtype == dtype
        limit = math.log((1 - eps) / eps)
        # float32 represents 1 - eps exactly, so only the logarithm rounds.
        assert got.tolist() == pytest.approx([-limit, limit, 0.0], rel=1e-6)

    @given(st.lists(st.floats(-15, 15), min_size=3, max_size=3))
    def test_round_trip_in_float64(self, values):
        logits = torch.tensor(values, dtype=torch.float64)
        got = logits_of(Returning(logits.sigmoid()), Z, PAIRS, "probabilities")
        # Rounding of p near 1 is worth eps / (1 - p) <= 2.2e-16 * e^15 in the logit.
        torch.testing.assert_close(got, logits, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan")])
    def test_outside_of_the_unit_interval(self, bad):
        model = Returning(torch.tensor([0.5, bad, 0.5]))
        with pytest.raises(
            InputError, match=r"Returning.decode is declared to return probabilities.*\[0, 1\], got"
        ):
            logits_of(model, Z, PAIRS, "probabilities")

    @pytest.mark.parametrize(
        ("value", "came"),
        [
            (torch.zeros(3, 1), r"torch.float32 \[3, 1\]"),
            (torch.zeros(2), r"torch.float32 \[2\]"),
            (torch.zeros(3, dtype=torch.int64), r"torch.int64 \[3\]"),
            ([0.0, 0.0, 0.0], "list"),
        ],
    )
    def test_wrong_output(self, value, came):
        message = rf"Returning.decode must return a float tensor of shape \[3\], got {came}"
        unsupported(message, logits_of, Returning(value), Z, PAIRS, "logits")

    def test_pyg_gae_gives_true_logits_where_the_sigmoid_saturates(self):
        z = torch.tensor([[10.0], [10.0], [-10.0]])
        model = GAE(nn.Identity())
        assert float(model.decode(z, PAIRS)[0]) == 1.0
        assert logits_of(model, z, PAIRS).tolist() == [100.0, -100.0, -100.0]


class TestLinkEmbedding:
    def test_pointwise_product_or_the_models_own(self):
        assert link_embedding_of(Dot(), Z, PAIRS).tolist() == [[3.0, 1.0], [-1.0, 8.0], [-3.0, 2.0]]
        for model in (OwnEmbedding(), as_link_predictor(OwnEmbedding())):
            assert link_embedding_of(model, Z, PAIRS).tolist() == [[2.0, 1.5], [2.0, 2.0], [4.0, 3.5]]

    def test_wrong_shape(self):
        class Flat(Dot):
            def link_embedding(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
                return torch.zeros(3)

        unsupported(r"shape \[3, d\], got torch.float32 \[3\]", link_embedding_of, Flat(), Z, PAIRS)


class TestAsLinkPredictor:
    def test_missing_methods_are_named(self):
        with pytest.raises(UnsupportedModelError, match=r"Linear without encode\(x, edge_index\) and decode"):
            as_link_predictor(nn.Linear(1, 1), "logits")

        class NoDecode(nn.Module):
            def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return x

        with pytest.raises(UnsupportedModelError, match=r"NoDecode without decode\(z, edge_label_index\)$"):
            as_link_predictor(NoDecode(), "logits")

    def test_own_and_adapted_models_come_back_as_they_are(self):
        own = GCN(2)
        adapted = as_link_predictor(Dot(), "logits")
        assert as_link_predictor(own) is own
        assert as_link_predictor(torch.compile(own)) is own
        assert as_link_predictor(adapted) is adapted

    def test_wraps_without_touching_the_model(self):
        model = Returning(torch.tensor([0.5, 0.5, 0.5]))
        before = dict(vars(model))
        adapted = as_link_predictor(model, "probabilities")
        assert isinstance(adapted, AdaptedLinkPredictor)
        assert adapted(Z, NO_EDGES, PAIRS).tolist() == [0.0, 0.0, 0.0]
        assert vars(model) == before
        assert unwrap_link_predictor(adapted) is model
        assert unwrap_link_predictor(model) is model
        assert adapted.decode_returns == "logits"

    def test_encode_must_give_a_matrix(self):
        adapted = as_link_predictor(Dot(), "logits")
        unsupported(
            r"Dot.encode must return .*\[3, d\], a row per node, got torch.*\[3\]",
            adapted.encode,
            torch.zeros(3),
            NO_EDGES,
        )

    def test_pyg_vgae_in_eval_mode_is_repeatable_and_has_its_kl(self):
        model = PygVGAE(TwoHeads())
        adapted = as_link_predictor(model)
        x, edges = torch.rand(3, 2), torch.tensor([[0, 1], [1, 0]])
        adapted.eval()
        assert torch.equal(adapted(x, edges, PAIRS), adapted(x, edges, PAIRS))
        adapted.train().encode(x, edges)
        torch.testing.assert_close(adapted.auxiliary_loss(), model.kl_loss() / 3)
