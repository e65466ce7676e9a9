import gzip
import socket
import sys
from zipfile import BadZipFile

import pytest

from linkcal.data._raw import DATA_ROOT_VARIABLE, RawFiles, find_data_root
from linkcal.exceptions import DataNotFoundError, InputError


def _files(download, *names, folder="set/raw"):
    return RawFiles(folder=folder, names=names, download=download)


def _writes(**contents):
    def download(staging):
        target = staging / "set" / "raw"
        target.mkdir(parents=True)
        for name, text in contents.items():
            (target / name).write_text(text)

    return download


def _everything_below(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


def test_argument_wins_over_variable_over_cache(tmp_path, monkeypatch):
    argument, variable, cache = tmp_path / "a", tmp_path / "v", tmp_path / "c"
    for folder in (argument, variable):
        folder.mkdir()
    monkeypatch.setenv(DATA_ROOT_VARIABLE, str(variable))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert find_data_root(argument) == argument
    assert find_data_root() == variable
    monkeypatch.delenv(DATA_ROOT_VARIABLE)
    assert find_data_root() == cache / "linkcal" / "data"
    assert (cache / "linkcal" / "data").is_dir()


def test_named_root_must_exist(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    with pytest.raises(DataNotFoundError, match=r"data_root must be an existing folder, got '.*gone'"):
        find_data_root(gone)
    monkeypatch.setenv(DATA_ROOT_VARIABLE, str(gone))
    with pytest.raises(DataNotFoundError, match="LINKCAL_DATA_ROOT must be an existing folder"):
        find_data_root()
    assert not gone.exists()


def test_cache_that_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_ROOT_VARIABLE, raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DataNotFoundError, match=r"cache folder .* must be writable"):
        find_data_root()


def test_only_missing_files_are_fetched(tmp_path):
    target = tmp_path / "set" / "raw"
    target.mkdir(parents=True)
    (target / "a").write_text("kept")
    found = _files(_writes(a="other", b="new"), "a", "b").ensure(tmp_path)
    assert found == target
    assert (target / "a").read_text() == "kept"
    assert (target / "b").read_text() == "new"
    assert _everything_below(tmp_path) == ["set", "set/raw", "set/raw/a", "set/raw/b"]


def test_complete_files_need_no_download(tmp_path):
    _files(_writes(a="x"), "a").ensure(tmp_path)

    def fail(staging):
        raise AssertionError("must not be called")

    assert _files(fail, "a").ensure(tmp_path) == tmp_path / "set" / "raw"


@pytest.mark.parametrize(
    "error", [OSError("no route to host"), TimeoutError("timed out"), BadZipFile("File is not a zip file")]
)
def test_failed_download_names_the_file_and_leaves_nothing(tmp_path, error):
    def broken(staging):
        _writes(a="half")(staging)
        raise error

    with pytest.raises(DataNotFoundError) as caught:
        _files(broken, "a", "b").ensure(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "set" / "raw" / "a") in message
    assert str(error) in message
    assert "--data-root" in message
    assert "set/raw/a" in message
    assert "\n" not in message
    assert _everything_below(tmp_path) == []


def test_download_that_lacks_a_file_leaves_nothing(tmp_path):
    with pytest.raises(DataNotFoundError, match="raw/a must exist"):
        _files(_writes(b="x"), "a").ensure(tmp_path)
    assert "set/raw/a" not in _everything_below(tmp_path)


def test_download_time_limit_is_restored(tmp_path):
    seen = []

    def download(staging):
        seen.append(socket.getdefaulttimeout())
        _writes(a="x")(staging)

    before = socket.getdefaulttimeout()
    _files(download, "a").ensure(tmp_path)
    assert seen == [30.0]
    assert socket.getdefaulttimeout() == before


def test_download_prints_nothing_to_stdout(tmp_path, capsys):
    def download(staging):
        sys.stdout.write("Downloading")
        _writes(a="x")(staging)

    _files(download, "a").ensure(tmp_path)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Downloading" in captured.err


def test_altered_pickle_is_refused(tmp_path):
    target = tmp_path / "Cora" / "raw"
    target.mkdir(parents=True)
    (target / "ind.cora.x").write_bytes(b"cos\nsystem\n")
    files = _files(_writes(), "ind.cora.x", folder="Cora/raw")
    with pytest.raises(InputError, match=r"ind\.cora\.x must be the published one .SHA-256 23cfa55d91c6f624"):
        files.ensure(tmp_path)


def test_altered_content_of_compressed_file_is_refused(tmp_path):
    target = tmp_path / "bitcoin_alpha" / "raw"
    target.mkdir(parents=True)
    path = target / "soc-sign-bitcoinalpha.csv.gz"
    files = _files(_writes(), path.name, folder="bitcoin_alpha/raw")
    path.write_bytes(gzip.compress(b"1,2,3,4\n"))
    with pytest.raises(InputError, match=r"must be the published one .SHA-256 1b2a970f327d0ceb"):
        files.ensure(tmp_path)
    path.write_bytes(b"plain text")
    with pytest.raises(InputError, match="must be gzip-compressed, got damaged data"):
        files.ensure(tmp_path)
