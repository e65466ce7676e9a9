"""Thread settings are put back, also where Numba and torch share an OpenMP runtime."""

import numba
import pytest
import torch

from linkcal._core.threads import numba_threads, torch_threads
from linkcal.calibrators import InNOut
from linkcal.models import make_model
from linkcal.toggle import toggle_edges


@pytest.fixture(params=[1, 2])
def count(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_settings_are_put_back_after_an_error(count):
    numba_before = numba.get_num_threads()
    seen = []

    def fail():
        with torch_threads(1), numba_threads(1):
            seen.extend((torch.get_num_threads(), numba.get_num_threads()))
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert seen == [1, 1]
    assert torch.get_num_threads() == count
    assert numba.get_num_threads() == numba_before


def test_toggling_leaves_torch_with_its_threads(count):
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    toggled = toggle_edges(make_model("gcn", 3), torch.eye(3), path, torch.tensor([[0], [2]]))
    assert toggled.method == "kernel"
    assert torch.get_num_threads() == count


def test_fitting_a_network_leaves_torch_with_its_threads(count):
    InNOut(max_iter=2, learning_rate=0.1).fit(
        [[-1.0, 0.5], [-2.0, 0.1], [1.0, 0.0], [2.0, 0.3]], [0, 1, 0, 1]
    )
    assert torch.get_num_threads() == count
