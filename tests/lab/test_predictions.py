"""Files of predictions: read back bit for bit, and nothing half is read."""

import numpy as np
import pytest

from linkcal.exceptions import InputError
from linkcal_lab.store import Predictions, read_predictions, write_predictions

NAMES = ("uncalibrated", "platt")


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    links = {"val": 30, "test": 50}
    rows = {part: rng.normal(size=(2, n)) for part, n in links.items()}
    return Predictions(
        NAMES,
        label={part: (rng.random(n) < 0.5).astype(np.int8) for part, n in links.items()},
        logit=rows,
        probability={part: 1 / (1 + np.exp(-values)) for part, values in rows.items()},
        truth={"test": rng.random(50)},
    )


def test_what_is_read_is_what_was_written(predictions, tmp_path):
    write_predictions(predictions, tmp_path / "p.npz")
    again = read_predictions(tmp_path / "p.npz")
    assert again.calibrators == NAMES
    assert set(again.truth) == {"test"}
    for kind in ("label", "logit", "probability", "truth"):
        for part, values in getattr(predictions, kind).items():
            read = getattr(again, kind)[part]
            assert read.dtype == values.dtype
            assert np.array_equal(read, values)


def test_missing_arrays_and_wrong_shapes_are_named(predictions, tmp_path):
    path = tmp_path / "p.npz"
    with pytest.raises(
        InputError, match=r"predictions must be an npz file of plain arrays, got .*No such file"
    ):
        read_predictions(path)
    np.savez(path, calibrator=np.array(NAMES))
    with pytest.raises(InputError, match="predictions must have the array 'val_label', got 'calibrator'"):
        read_predictions(path)
    predictions.probability["test"] = predictions.probability["test"][:, :7]
    write_predictions(predictions, path)
    with pytest.raises(InputError, match=r"arrays \(2, 50\) of calibrators and test links, got \(2, 7\)"):
        read_predictions(path)
