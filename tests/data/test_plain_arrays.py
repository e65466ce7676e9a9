"""Arrays from files of strangers: nothing runs, and each kind of damage is one line."""

from __future__ import annotations

import random
import zipfile

import numpy as np
import pytest

from linkcal.data._tables import one_line, plain_array, plain_arrays
from linkcal.exceptions import InputError


class Runs:
    """Writes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_arrays_come_back_in_native_byte_order(tmp_path):
    np.savez(tmp_path / "a.npz", u=np.arange(3, dtype=">i8"), t=np.array(["x"], dtype=">U2"))
    arrays = plain_arrays(tmp_path / "a.npz", "edges")
    assert arrays["u"].tolist() == [0, 1, 2]
    assert arrays["t"].tolist() == ["x"]
    assert all(array.dtype.isnative for array in arrays.values())
    np.save(tmp_path / "b.npy", np.ones(2, dtype=">f4"))
    assert plain_array(tmp_path / "b.npy", "x").dtype == np.float32


def test_pickled_objects_are_refused_and_do_not_run(tmp_path):
    objects = np.array([[Runs(tmp_path / "ran")]], dtype=object)
    np.savez(tmp_path / "a.npz", u=np.arange(3), v=objects)
    np.save(tmp_path / "b.npy", objects)
    with pytest.raises(InputError, match=r"edges must be an npz file of plain arrays, got .*Object arrays"):
        plain_arrays(tmp_path / "a.npz", "edges")
    with pytest.raises(InputError, match=r"x must be a plain npy array, got .*Object arrays"):
        plain_array(tmp_path / "b.npy", "x")
    assert not (tmp_path / "ran").exists()


def test_each_format_under_the_others_name(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "b.npz", u=np.arange(3))
    with pytest.raises(InputError, match=r"edges must be an npz file of plain arrays, got .*no zip archive"):
        plain_arrays(tmp_path / "a.npy", "edges")
    with pytest.raises(InputError, match=r"x must be a plain npy array, got .*an npz file"):
        plain_array(tmp_path / "b.npz", "x")
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("source", "1 2")
    with pytest.raises(InputError, match=r"got .*: 'source', which is no array"):
        plain_arrays(tmp_path / "c.npz", "edges")
    with pytest.raises(InputError, match=r"got .*No such file"):
        plain_arrays(tmp_path / "gone.npz", "edges")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_truncated_and_flipped_bytes_are_one_line_that_names_the_file(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, u=np.arange(200), v=np.arange(200) % 7)
    whole, rng, messages = path.read_bytes(), random.Random(0), []
    for number in range(150):
        damaged = bytearray(whole[: rng.randrange(len(whole))] if number % 3 == 0 else whole)
        for _ in range(3):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            plain_arrays(path, "edges")
        except InputError as error:
            messages.append(str(error))
    # A few bytes of a zip archive are looked at by nobody.
    assert len(messages) > 100
    expected = f"edges must be an npz file of plain arrays, got {path}: "
    assert all(text.startswith(expected) and "\n" not in text for text in messages)


def test_one_line_of_an_error():
    assert one_line(ValueError("first\nsecond")) == "first"
    assert one_line(EOFError()) == "EOFError"
