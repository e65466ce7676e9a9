import gzip
import io
from urllib.error import URLError
from zipfile import ZipFile

import pytest

from linkcal.data._raw import DATA_ROOT_VARIABLE, RawFiles, find_data_root
from linkcal.exceptions import DataNotFoundError
from refusals import refuses

URL = "https://example.org/files"


def _files(*names, folder="set/raw", url=URL):
    return RawFiles(folder, names, url)


@pytest.fixture
def site(monkeypatch):
    """What each address answers: bytes or an error; the addresses asked for are in ``asked``."""
    answers, asked = {}, []

    def urlopen(url, *, timeout):
        assert timeout == 30.0
        asked.append(url)
        answer = answers.get(url, URLError("no network"))
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer)

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    answers["asked"] = asked
    return answers


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


def test_only_missing_files_are_fetched(tmp_path, site):
    target = tmp_path / "set" / "raw"
    target.mkdir(parents=True)
    (target / "a").write_text("kept")
    site |= {f"{URL}/a": b"other", f"{URL}/b": b"new"}
    for _ in range(2):
        assert _files("a", "b").ensure(tmp_path) == target
    assert site["asked"] == [f"{URL}/b"]
    assert (target / "a").read_text() == "kept"
    assert (target / "b").read_text() == "new"
    assert _everything_below(tmp_path) == ["set", "set/raw", "set/raw/a", "set/raw/b"]


def _archive(**contents):
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, text in contents.items():
            archive.writestr(f"few/{name}/it", text)
    return buffer.getvalue()


def test_an_archive_is_fetched_once_and_unpacked(tmp_path, site):
    site["https://example.org/few.zip"] = _archive(a="1", b="2", c="3")
    files = _files("a/it", "b/it", folder="set", url="https://example.org/few.zip")
    files.ensure(tmp_path)
    assert site["asked"] == ["https://example.org/few.zip"]
    assert _everything_below(tmp_path) == ["set", "set/a", "set/a/it", "set/b", "set/b/it"]
    assert (tmp_path / "set" / "b" / "it").read_text() == "2"
    with pytest.raises(DataNotFoundError, match="set/d/it must exist or be fetched"):
        _files("d/it", folder="set", url="https://example.org/few.zip").ensure(tmp_path)
    site["https://example.org/few.zip"] = _archive(a="1")[:-9]
    with pytest.raises(DataNotFoundError, match=r"set/c/it must exist or be fetched.*not a zip file"):
        _files("c/it", folder="set", url="https://example.org/few.zip").ensure(tmp_path)


@pytest.mark.parametrize("error", [OSError("no route to host"), TimeoutError("timed out")])
def test_failed_download_names_the_file_and_leaves_nothing(tmp_path, site, error):
    site |= {f"{URL}/a": b"x", f"{URL}/b": error}
    with pytest.raises(DataNotFoundError) as caught:
        _files("a", "b").ensure(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "set" / "raw" / "a") in message
    assert str(error) in message
    assert "--data-root" in message
    assert "set/raw/a" in message
    assert "\n" not in message
    assert _everything_below(tmp_path) == []


def test_altered_pickle_is_refused(tmp_path):
    target = tmp_path / "Cora" / "raw"
    target.mkdir(parents=True)
    (target / "ind.cora.x").write_bytes(b"cos\nsystem\n")
    files = _files("ind.cora.x", folder="Cora/raw")
    refuses(r"ind\.cora\.x must be the published one .SHA-256 23cfa55d91c6f624", files.ensure, tmp_path)


def test_altered_content_of_compressed_file_is_refused(tmp_path):
    target = tmp_path / "bitcoin_alpha" / "raw"
    target.mkdir(parents=True)
    path = target / "soc-sign-bitcoinalpha.csv.gz"
    files = _files(path.name, folder="bitcoin_alpha/raw")
    path.write_bytes(gzip.compress(b"1,2,3,4\n"))
    refuses(r"must be the published one .SHA-256 1b2a970f327d0ceb", files.ensure, tmp_path)
    path.write_bytes(b"plain text")
    refuses(r"must be gzip-compressed, got .*alpha\.csv\.gz: Not a gzipped file", files.ensure, tmp_path)
