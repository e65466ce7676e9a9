"""Loss, gradient and training loop of the stacked networks, against PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from linkcal.calibrators._temperature_net import (
    NetLinks,
    TemperatureNet,
    TrainOptions,
    bin_gaps,
    draw_net,
    loss_and_gradient,
    temperatures,
    train,
)

F64 = torch.float64


def _links(n=60, k=3, heads=2, seed=0, scaling="divide"):
    rng = np.random.default_rng(seed)
    s = np.sort(rng.normal(size=n) * 2.0)
    below = int((s <= 0).sum())
    inputs = np.vstack((rng.normal(size=(k, n)), np.ones(n)))
    label = (rng.random(n) < 0.5).astype(float)
    slices = (slice(0, below), slice(below, n)) if heads == 2 else (slice(0, n),)
    return NetLinks(*(torch.as_tensor(a, dtype=F64) for a in (s, inputs, label)), slices, scaling)


def _stack(rng, count, k, width, heads):
    nets = [draw_net(rng, k, width, heads, F64) for _ in range(count)]
    return TemperatureNet(torch.cat([n.hidden for n in nets]), torch.cat([n.output for n in nets]))


def _plain_loss(net, links, weight, ece_weight, n_bins):
    """The paper's loss of one network (J = 1), written with loops and differentiated by PyTorch."""
    raw = []
    for head, rows in enumerate(links.slices):
        x = links.inputs[:, rows]
        layer = torch.relu(net.hidden[0, head] @ x)
        raw.append(net.output[0, head, :-1] @ layer + net.output[0, head, -1])
    t = softplus(torch.cat(raw))
    z = links.logit / t if links.scaling == "divide" else 2.0 * links.logit * t
    p, y = torch.sigmoid(z), links.label
    nll = (weight * binary_cross_entropy_with_logits(z, y, reduction="none")).sum()
    cal = -(weight * (2 * y - 1) * p).sum()
    ece = torch.zeros((), dtype=F64)
    for b in range(n_bins):
        inside = (p > b / n_bins) & (p <= (b + 1) / n_bins)
        ece = ece + (weight * (y - p))[inside].sum().abs()
    return nll + cal + ece_weight * ece


@pytest.mark.parametrize("scaling", ["divide", "multiply-doubled"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_gradient_and_loss_equal_automatic_differentiation(heads, k, scaling):
    rng = np.random.default_rng(1)
    links, count = _links(k=k, heads=heads, scaling=scaling), 4
    net = _stack(rng, count, k, 5, heads)
    weight = torch.as_tensor(rng.dirichlet(np.ones(60), size=count))
    held_out = torch.as_tensor(rng.dirichlet(np.ones(60), size=count))
    lam = torch.tensor([0.0, 0.5, 1.0, 7.0], dtype=F64)
    gradient, losses = loss_and_gradient(net, links, weight, held_out, lam, 15)
    for j in range(count):
        single = TemperatureNet(*(t[j : j + 1].clone().requires_grad_() for t in net))
        loss = _plain_loss(single, links, weight[j], lam[j], 15)
        loss.backward()
        assert losses.train[j].item() == pytest.approx(loss.item(), rel=1e-12)
        other = _plain_loss(single, links, held_out[j], lam[j], 15).item()
        assert losses.held_out[j].item() == pytest.approx(other, rel=1e-12)
        torch.testing.assert_close(gradient.hidden[j], single.hidden.grad[0], rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(gradient.output[j], single.output.grad[0], rtol=1e-10, atol=1e-13)


def test_training_equals_pytorch_adam():
    links = _links()
    net = draw_net(np.random.default_rng(0), 3, 5, 2, F64)
    weight = torch.full((1, 60), 1 / 60, dtype=F64)
    options = TrainOptions(n_bins=15, learning_rate=0.02, weight_decay=0.1, max_iter=25, patience=None)
    ours = train(net, links, weight, weight, torch.tensor([1.0], dtype=F64), options)

    single = TemperatureNet(*(t.clone().requires_grad_() for t in net))
    adam = torch.optim.Adam(list(single), lr=0.02, weight_decay=0.1)
    curve = []
    for epoch in range(26):
        loss = _plain_loss(single, links, weight[0], 1.0, 15)
        curve.append(loss.item())
        if epoch < 25:
            adam.zero_grad()
            loss.backward()
            adam.step()
    torch.testing.assert_close(ours.net.hidden, single.hidden.detach(), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(ours.net.output, single.output.detach(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.curve[:, 0], [curve[0], curve[10], curve[20], curve[25]], rtol=1e-9)
    assert ours.n_iter.tolist() == [25]


def test_networks_do_not_influence_each_other():
    links = _links()
    net = draw_net(np.random.default_rng(0), 3, 5, 2, F64)
    rng = np.random.default_rng(5)
    weight = torch.as_tensor(rng.dirichlet(np.ones(60), size=3))
    held_out = torch.as_tensor(rng.dirichlet(np.ones(60), size=3))
    lam = torch.tensor([0.0, 1.0, 10.0], dtype=F64)
    options = TrainOptions(15, 0.05, 0.0, 300, patience=20)
    together = train(net, links, weight, held_out, lam, options)
    # They stop at different epochs, so the stack shrinks on the way.
    assert len(set(together.n_iter.tolist())) > 1
    for j in range(3):
        rows = slice(j, j + 1)
        alone = train(net, links, weight[rows], held_out[rows], lam[rows], options)
        assert alone.n_iter[0] == together.n_iter[j]
        torch.testing.assert_close(alone.net.hidden[0], together.net.hidden[j], rtol=1e-9, atol=1e-11)


def test_early_stopping_keeps_the_best_look():
    links = _links()
    net = draw_net(np.random.default_rng(0), 3, 5, 2, F64)
    # Labels are random, so what is learned on one half makes the other half worse.
    half = torch.as_tensor(np.random.default_rng(5).permutation(60) % 2, dtype=F64)[None]
    weight, held_out = half / 30, (1 - half) / 30
    lam = torch.tensor([0.0], dtype=F64)
    stopped = train(net, links, weight, held_out, lam, TrainOptions(15, 0.05, 0.0, 500, patience=30))
    assert stopped.stopped.all()
    best = stopped.n_iter[0]
    at = {}
    for epochs in (best - 10, best, best + 10, best + 20, best + 30):
        run = train(net, links, weight, held_out, lam, TrainOptions(15, 0.05, 0.0, int(epochs), None))
        at[epochs] = loss_and_gradient(run.net, links, weight, held_out, lam, 15)[1].held_out.item()
    assert min(at, key=at.get) == best


def test_initial_weights_are_uniform_as_in_pytorch():
    net = draw_net(np.random.default_rng(0), 25, 400, 2, F64)
    # Linear(25, 400): weights and biases within 1/5; Linear(400, 1): within 1/20.
    for tensor, bound in ((net.hidden, 0.2), (net.output, 0.05)):
        assert bound * 0.98 < tensor.abs().max() <= bound
        assert tensor.std().item() == pytest.approx(bound / np.sqrt(3), rel=0.05)


def test_temperature_is_positive_even_where_softplus_underflows():
    net = TemperatureNet(torch.zeros(1, 1, 2, 2, dtype=F64), torch.tensor([[[0.0, 0.0, -1e4]]], dtype=F64))
    assert temperatures(net, torch.ones(2, 3, dtype=F64), (slice(0, 3),)).tolist() == [[1e-4] * 3]


def test_bin_gaps_by_hand():
    p = torch.tensor([[0.0, 0.5, 0.6, 1.0]], dtype=F64)
    y = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=F64)
    gaps = bin_gaps(p, y, torch.full((1, 4), 0.25, dtype=F64), 2)
    # Closed on the right: 0 and 0.5 in the first bin, gaps (1 + 0.5) / 4 and (-0.6 + 0) / 4.
    torch.testing.assert_close(gaps, torch.tensor([[0.375, -0.15]], dtype=F64))
