"""Files appear whole or not at all; arrays are read without pickle, and each kind of damage is one line."""

import random
import zipfile

import numpy as np
import pytest

from linkcal._core.files import one_line, read_arrays, require_writable, written_whole
from linkcal.exceptions import InputError
from refusals import refuses


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    mode = path.stat().st_mode

    def write(text, error=None):
        with written_whole(path) as temporary:
            temporary.write_text(text)
            assert path.read_text() == "old"
            if error is not None:
                raise error

    with pytest.raises(RuntimeError, match="half way"):
        write("ne", RuntimeError("half way"))
    assert path.read_text() == "old"
    write("new")
    assert (path.read_text(), path.stat().st_mode) == ("new", mode)
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_tried_and_left_as_they_were(tmp_path, monkeypatch):
    require_writable(tmp_path, "out")
    require_writable(tmp_path / "not" / "yet", "out")
    assert list(tmp_path.iterdir()) == []

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("linkcal._core.files.tempfile.TemporaryFile", refuse)
    refuses(r"out must be in a folder .*, got .* \(Permission denied\)", require_writable, tmp_path, "out")


class Runs:
    """Writes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_arrays_come_back_in_native_byte_order(tmp_path):
    np.savez(tmp_path / "a.npz", u=np.arange(3, dtype=">i8"), t=np.array(["x"], dtype=">U2"))
    arrays = read_arrays(tmp_path / "a.npz", "edges")
    assert arrays["u"].tolist() == [0, 1, 2]
    assert arrays["t"].tolist() == ["x"]
    assert all(array.dtype.isnative for array in arrays.values())
    np.save(tmp_path / "b.npy", np.ones(2, dtype=">f4"))
    assert read_arrays(tmp_path / "b.npy", "x")[""].dtype == np.float32


def test_pickled_objects_are_refused_and_do_not_run(tmp_path):
    objects = np.array([[Runs(tmp_path / "ran")]], dtype=object)
    np.savez(tmp_path / "a.npz", u=np.arange(3), v=objects)
    np.save(tmp_path / "b.npy", objects)
    with pytest.raises(InputError, match=r"edges must be an npz file of plain arrays, got .*Object arrays"):
        read_arrays(tmp_path / "a.npz", "edges")
    with pytest.raises(InputError, match=r"x must be an npz file of plain arrays, got .*Object arrays"):
        read_arrays(tmp_path / "b.npy", "x")
    assert not (tmp_path / "ran").exists()


def test_the_content_decides_what_a_file_is(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    assert read_arrays((tmp_path / "a.npy").rename(tmp_path / "a.npz"), "edges")[""].tolist() == [0, 1, 2]
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("source", "1 2")
    refuses(r"got .*: 'source', which is no array", read_arrays, tmp_path / "c.npz", "edges")
    refuses(r"got .*No such file", read_arrays, tmp_path / "gone.npz", "edges")


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"w": ("f", 1)}, "scores must have the array 'w', got 'u', 'v' in .*a.npz"),
        ({"u": ("f", 1)}, r"array 'u' of .*a.npz must be 1-D and hold floats, got int64 \(3,\)"),
        ({"u": ("iu", 2)}, r"array 'u' of .*a.npz must be 2-D and hold integers, got int64 \(3,\)"),
        ({"u": ("iu", 1), "v": ("f", 1)}, "array 'v' of .*a.npz must be finite, got NaN or infinite values"),
    ],
)
def test_expected_arrays(tmp_path, expected, message):
    np.savez(tmp_path / "a.npz", u=np.arange(3), v=np.array([0.5, np.nan]))
    assert set(read_arrays(tmp_path / "a.npz", "scores", {"u": ("iu", 1)})) == {"u", "v"}
    refuses(message, read_arrays, tmp_path / "a.npz", "scores", expected)


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
            read_arrays(path, "edges")
        except InputError as error:
            messages.append(str(error))
    # A few bytes of a zip archive are looked at by nobody.
    assert len(messages) > 100
    expected = f"edges must be an npz file of plain arrays, got {path}: "
    assert all(text.startswith(expected) and "\n" not in text for text in messages)


def test_one_line_of_an_error():
    assert one_line(ValueError("first\nsecond")) == "first second"
    assert one_line(EOFError()) == "EOFError"
    assert one_line("x" * 300) == "x" * 197 + "..."
