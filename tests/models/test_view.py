"""The evaluation view shares tensors with the model and nothing else."""

import torch
from torch import nn

from linkcal.models._view import evaluation_view


def test_the_view_is_in_evaluation_mode_and_the_model_stays_as_it_was():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).train()
    model[2].eval()
    view = evaluation_view(model)
    assert not any(module.training for module in view.modules())
    assert [module.training for module in model.modules()] == [True, True, True, False]


def test_every_tensor_is_the_models_own():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model.extra = torch.ones(2)
    view = evaluation_view(model)
    mine, theirs = (each.state_dict(keep_vars=True) for each in (model, view))
    assert all(theirs[name] is value for name, value in mine.items())
    assert view.extra is model.extra


def test_tied_weights_stay_tied_and_later_changes_are_seen():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    view = evaluation_view(model)
    with torch.no_grad():
        model[0].weight.zero_()
    assert view[0].weight is view[1].weight
    assert not view[1].weight.any()


def test_hooks_on_the_view_are_not_on_the_model():
    model = nn.Sequential(nn.Linear(3, 4))
    seen = []
    evaluation_view(model)[0].register_forward_hook(lambda *_: seen.append(1))
    model(torch.ones(1, 3))
    assert seen == []
