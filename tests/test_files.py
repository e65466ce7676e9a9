"""Files appear whole or not at all."""

from __future__ import annotations

import pytest

from linkcal._core.files import require_writable, written_whole
from linkcal.exceptions import InputError


def test_success_replaces_the_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with written_whole(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_inside_leaves_everything_as_it_was(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half():
        with written_whole(path) as temporary:
            temporary.write_text("ne")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_has_the_permissions_of_an_ordinary_one(tmp_path):
    ordinary, path = tmp_path / "b.txt", tmp_path / "a.txt"
    ordinary.write_text("x")
    with written_whole(path) as temporary:
        temporary.write_text("x")
    assert path.stat().st_mode == ordinary.stat().st_mode


def test_a_folder_that_takes_files_is_left_as_it_was(tmp_path):
    require_writable(tmp_path, "out")
    require_writable(tmp_path / "not" / "yet", "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_none_is_named(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("linkcal._core.files.tempfile.TemporaryFile", refuse)
    with pytest.raises(
        InputError, match=r"out must be in a folder that can .*, got .* \(Permission denied\)"
    ):
        require_writable(tmp_path, "out")
