import pytest
import torch

from linkcal.exceptions import InputError
from linkcal.models import MODELS, Preset, TrainingConfig, make_model

NAMES = list(MODELS)


def test_paper_preset_of_sage():
    """Appendix of arXiv 2403.04605: hidden 128, out 64, 2 layers, learning rate 0.01, 1,000 epochs."""
    model = make_model("sage", 7, preset="paper").config
    assert [model[f"{name}_channels"] for name in ("hidden", "out")] == [128, 64]
    assert model["num_layers"] == 2
    assert MODELS["sage"].presets["paper"].training == TrainingConfig(1000, lr=0.01, patience=None)


@pytest.mark.parametrize("name", NAMES)
def test_weights_follow_the_seed_and_leave_the_global_generator_alone(name):
    torch.manual_seed(11)
    state = torch.get_rng_state()
    a, b, c = (make_model(name, 5, num_nodes=4, seed=seed).state_dict() for seed in (2, 2, 3))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a[key], b[key]) for key in a if key != "positions")  # unknown until prepared
    weights = [key for key in a if a[key].ndim == 2 and key != "positions"]
    assert not any(torch.equal(a[key], c[key]) for key in weights)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_model("vage", 3), "gcn, sage, gin, vgae, peg, seal; got 'vage'.*did you mean 'vgae'"),
        (lambda: make_model("gcn", 3, preset="papr"), "preset must be one of .*did you mean 'paper'"),
        (lambda: make_model("gcn", 3, hidden=4), "argument of gcn must be one of hidden_channels"),
        (lambda: make_model("gcn", 3, seed=-1), "seed must be a whole number >= 0, got -1"),
    ],
)
def test_unknown_names(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_reduced_settings_of_a_data_set_part_into_model_and_training():
    preset = Preset(
        {"num_hops": 2, "max_neighbors": 50},
        TrainingConfig(epochs=30, lr=0.1, patience=12),
        {"pubmed": {"max_neighbors": 5, "feature_channels": 8, "epochs": 3}},
    )
    on = preset.on("pubmed")
    assert on.model == {"num_hops": 2, "max_neighbors": 5, "feature_channels": 8}
    assert on.training == TrainingConfig(epochs=3, lr=0.1, patience=12)
    assert preset.model == {"num_hops": 2, "max_neighbors": 50}
