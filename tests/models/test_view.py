"""The evaluation view shares tensors with the model and nothing else."""

import threading

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


class Closures(nn.Module):
    """Reaches its own parts through a lambda, a bound method, a list, a default and a hook."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.by_lambda = lambda x: self.norm(x)
        self.by_method = self.drop.forward
        self.by_list = [self.drop]
        self.by_default = lambda x, part=self.norm: part(x)
        self.lin = nn.Linear(3, 3)
        self.lin.register_forward_hook(lambda _module, _inputs, output: self.drop(output))

    def forward(self, x):
        return self.by_default(self.lin(self.by_list[0](self.by_method(self.by_lambda(x)))))


def test_functions_that_reach_the_model_reach_the_view():
    torch.manual_seed(0)
    model, x = Closures(), torch.randn(20, 3)
    model(x)  # running statistics of its own
    expected = model.eval()(x)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    found = evaluation_view(model.train())(x)
    assert torch.equal(found, expected)
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert model.by_method.__self__ is model.drop


def test_attributes_that_cannot_be_copied_are_shared():
    model = nn.Linear(3, 2)
    model.lock = threading.Lock()
    model.seen = (model(torch.ones(1, 3)),)  # not a leaf: deepcopy refuses it
    view = evaluation_view(model)
    assert view.lock is model.lock
    assert view.seen[0] is model.seen[0]
