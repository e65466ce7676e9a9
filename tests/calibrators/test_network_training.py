"""Loss, gradient and training of the compiled networks, against PyTorch's autograd and Adam."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from linkcal.calibrators._network_kernel import (
    SMALLEST_TEMPERATURE,
    Adam,
    exp,
    log1p,
    total_loss,
    train_epochs,
)
from linkcal.calibrators._network_training import (
    LinkArrays,
    Member,
    TemperatureNet,
    bin_gaps,
    draw_net,
    packed,
    scratch_for,
    train,
    unpacked,
)

# Sums of a few hundred terms in single precision; gradients reach about 0.1.
REL, ABS = 2e-5, 2e-7
RATES = 15, 0.02, 0.1  # bins, learning rate, weight decay


def _arrays(n=60, k=3, seed=0):
    """Logit, inputs, label, weight."""
    rng = np.random.default_rng(seed)
    weight = rng.random(n)
    share = weight / weight.sum()
    return rng.normal(size=n) * 2.0, rng.normal(size=(n, k)), (rng.random(n) < 0.5) * 1.0, share


def _torch_net(net):
    return TemperatureNet(*(torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in net))


def _plain_loss(net, arrays, ece_weight, n_bins=15, scaling="divide"):
    """The paper's loss written with loops, in double precision, differentiated by PyTorch."""
    s, x, y, weight = (torch.as_tensor(a, dtype=torch.float64) for a in arrays)
    raw = []
    for head in range(len(net.hidden)):
        layer = torch.relu(x @ net.hidden[head, :, :-1].T + net.hidden[head, :, -1])
        raw.append(layer @ net.output[head, :-1] + net.output[head, -1])
    t = softplus(torch.where(s > 0, raw[-1], raw[0])).clamp_min(SMALLEST_TEMPERATURE)
    z = s / t if scaling == "divide" else 2.0 * s * t
    p = torch.sigmoid(z)
    nll = (weight * binary_cross_entropy_with_logits(z, y, reduction="none")).sum()
    cal = -(weight * (2 * y - 1) * p).sum()
    ece = torch.zeros((), dtype=torch.float64)
    for b in range(n_bins):
        inside = (p > b / n_bins) & (p <= (b + 1) / n_bins)
        ece = ece + (weight * (y - p))[inside].sum().abs()
    return nll + cal + ece_weight * ece


def _gradient(net, blocks, ece_weight):
    """Loss and gradient of the compiled code; a step of length 0 leaves the weights alone."""
    theta = packed(net)
    state = Adam(theta, *(np.zeros_like(theta) for _ in range(3)))
    scratch = scratch_for(blocks, net.hidden.shape[1], 15)
    loss = total_loss(theta, blocks, scratch, float(ece_weight))
    train_epochs(state, blocks, scratch, float(ece_weight), 0.0, 0.0, 1, 1)
    assert np.array_equal(theta, packed(net))
    return loss, unpacked(state.gradient, net)


@pytest.mark.parametrize("scaling", ["divide", "multiply-doubled"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("n", "k", "width"), [(60, 0, 5), (60, 1, 8), (600, 9, 17)])
@pytest.mark.parametrize("ece_weight", [0.0, 7.0])
def test_loss_and_gradient_equal_automatic_differentiation(heads, n, k, width, ece_weight, scaling):
    arrays = _arrays(n, k)
    net = draw_net(np.random.default_rng(1), k, width, heads)
    loss, gradient = _gradient(net, LinkArrays(*arrays).blocks(heads, scaling), ece_weight)
    reference = _torch_net(net)
    expected = _plain_loss(reference, arrays, ece_weight, scaling=scaling)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    for ours, theirs in zip(gradient, reference, strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=REL, atol=ABS)


def test_training_equals_pytorch_adam():
    arrays, net = _arrays(), draw_net(np.random.default_rng(0), 3, 5, 2)
    [ours] = train([Member(net, *RATES, LinkArrays(*arrays).blocks(2), None, 1.0, 25)])
    reference = _torch_net(net)
    adam = torch.optim.Adam(list(reference), lr=0.02, weight_decay=0.1)
    for _ in range(25):
        adam.zero_grad()
        _plain_loss(reference, arrays, 1.0).backward()
        adam.step()
    # Adam divides by the gradient's own size: rounding in small gradients shows in the step.
    np.testing.assert_allclose(ours.net.hidden, reference.hidden.detach(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(ours.net.output, reference.output.detach(), rtol=1e-3, atol=1e-5)
    blocks = LinkArrays(*arrays).blocks(2)
    loss = total_loss(packed(ours.net), blocks, scratch_for(blocks, 5, 15), 1.0)
    assert loss == pytest.approx(_plain_loss(reference, arrays, 1.0).item(), rel=1e-6)
    assert ours.n_iter == 25
    assert not ours.converged


def test_an_error_in_one_network_ends_the_batch():
    net = draw_net(np.random.default_rng(0), 3, 5, 2)
    good = Member(net, *RATES, LinkArrays(*_arrays()).blocks(2), None, 1.0, 25)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(TypeError):
            train([good, replace(good, max_iter=None), good])
    finally:
        torch.set_num_threads(before)


def test_early_stopping_keeps_the_best_look():
    s, x, y, _ = _arrays()
    net = draw_net(np.random.default_rng(0), 3, 5, 2)
    # Labels are random, so what is learned on one half makes the other half worse.
    half = np.random.default_rng(5).permutation(60) % 2 == 0
    inside, outside = (LinkArrays(s[r], x[r], y[r], np.ones(30)).blocks(2) for r in (half, ~half))
    member = Member(net, 15, 0.05, 0.0, inside, outside, 0.0, 500, patience=30)
    [stopped] = train([member])
    assert stopped.converged
    best, at = stopped.n_iter, {}
    for epochs in (best - 10, best, best + 10, best + 20, best + 30):
        [trained] = train([replace(member, max_iter=int(epochs), patience=None)])
        at[epochs] = total_loss(packed(trained.net), outside, scratch_for(outside, 5, 15), 0.0)
        if epochs == best:
            assert np.array_equal(trained.net.hidden, stopped.net.hidden)
    assert min(at, key=at.get) == best


def test_initial_weights_are_uniform_as_in_pytorch():
    net = draw_net(np.random.default_rng(0), 25, 400, 2)
    # Linear(25, 400): weights and biases within 1/5; Linear(400, 1): within 1/20.
    for array, bound in ((net.hidden, 0.2), (net.output, 0.05)):
        assert bound * 0.98 < np.abs(array).max() <= bound
        assert array.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)


def test_a_temperature_that_underflows_stays_finite():
    net = TemperatureNet(np.zeros((1, 2, 2)), np.array([[0.0, 0.0, -1e4]]))
    blocks = LinkArrays(np.array([-1.0, 2.0]), np.ones((2, 1)), np.array([0.0, 1.0]), np.ones(2)).blocks(1)
    # z = s / 1e-4: both links are as certain as single precision can say.
    loss, gradient = _gradient(net, blocks, 1.0)
    assert loss == pytest.approx(0.0 - 0.5, abs=1e-6)
    assert all(np.isfinite(part).all() for part in gradient)


def test_bin_gaps_by_hand():
    # softplus(log(e - 1)) = 1, so p = sigmoid(s).
    net = TemperatureNet(np.zeros((1, 1, 1)), np.array([[0.0, np.log(np.e - 1.0)]]))
    p, y = np.array([0.0, 0.5, 0.6, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
    s = np.array([-200.0, 0.0, np.log(1.5), 200.0])
    gaps = bin_gaps(net, LinkArrays(s, np.empty((4, 0)), y, np.ones(4)).blocks(1), 2)
    # Closed on the right: 0 and 0.5 in the first bin, gaps (1 + 0.5) / 4 and (-0.6 + 0) / 4.
    assert gaps == pytest.approx([((y - p)[:2]).sum() / 4, ((y - p)[2:]).sum() / 4], rel=1e-6)


def test_exponential_and_logarithm_are_accurate_to_single_precision():
    x = -np.concatenate((np.geomspace(1e-8, 87.0, 4000), [0.0])).astype(np.float32)
    values = np.array([exp(v) for v in x])
    np.testing.assert_allclose(values, np.exp(x.astype(np.float64)), rtol=3e-7)
    assert exp(np.float32(-1e30)) == 0.0
    u = np.linspace(0.0, 1.0, 4001).astype(np.float32)
    np.testing.assert_allclose([log1p(v) for v in u], np.log1p(u.astype(np.float64)), rtol=3e-7)
