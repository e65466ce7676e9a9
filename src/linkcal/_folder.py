"""A folder whose manifest has the SHA-256 of every file, and calibrators in it; nothing is pickled."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from linkcal._core.files import folder_written_whole, read_description, read_saved, refusing, sha256
from linkcal.calibrators import Calibrator, calibrator_name, make_calibrator
from linkcal.exceptions import ArtifactError, InputError

MANIFEST = "artifact.json"
#: Formats of fitted folders, and what each is for.
FORMATS = {
    "linkcal-artifact": "a model with calibrators, for `linkcal score`",
    "linkcal-scores": "calibrators of scores without a model, for `linkcal apply`",
}
CALIBRATOR_FILES = ("calibrators.json", "calibrators.safetensors")
#: In the place of the manifest's own SHA-256 while that is computed.
_UNSIGNED = "0" * 64


def check_artifact_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that is a file, or that holds files and is no artifact.

    Parameters
    ----------
    folder : path
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"folder must be new, empty or an artifact, got the file {target}")
    if target.exists() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise InputError(f"folder must be new, empty or an artifact, got {target} with other files")


@contextmanager
def signed_folder(folder: str | os.PathLike[str], kind: str, version_: int, **head: Any) -> Iterator[Path]:
    """Yield an empty folder to fill; it replaces `folder` as a whole, or not at all."""
    target = Path(folder)
    check_artifact_folder(target)
    with folder_written_whole(target) as staging:
        yield staging
        manifest = {
            "format": kind, "format_version": version_, "linkcal": version("linkcal"), **head,
            "files": {path.name: sha256(path.read_bytes()) for path in sorted(staging.iterdir())},
            "sha256": _UNSIGNED,
        }  # fmt: skip
        unsigned = (json.dumps(manifest, indent=2) + "\n").encode()
        (staging / MANIFEST).write_bytes(_signed(unsigned, _UNSIGNED, sha256(unsigned)))


def _signed(head: bytes, old: str, new: str) -> bytes:
    """The manifest with another SHA-256 of its own, which is its last value."""
    before, _, after = head.rpartition(old.encode())
    return before + new.encode() + after


def folder_format(folder: str | os.PathLike[str]) -> str | None:
    """Format that the manifest of a folder names; None where there is no such manifest."""
    try:
        return str(json.loads((_of_run(Path(folder)) / MANIFEST).read_bytes())["format"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _of_run(source: Path) -> Path:
    """The artifact in the folder of a command."""
    inner = source / "artifact"
    return inner if not (source / MANIFEST).exists() and (inner / MANIFEST).exists() else source


def read_manifest(
    folder: str | os.PathLike[str],
    kind: str,
    version_: int,
    objects: Mapping[str, Collection[str]],
    files: Collection[str],
    optional: Collection[str] = (),
) -> tuple[Path, dict[str, Any]]:
    """Artifact folder and its manifest, if that and all files are as they were written.

    It must hold `objects` with their keys, and list the `files` and, maybe, the `optional` ones.
    """
    source = _of_run(Path(folder))
    path = source / MANIFEST
    if not path.is_file():
        raise ArtifactError(f"artifact must be a folder with {MANIFEST}, got {source} without it")
    found = folder_format(source)
    if found != kind and found in FORMATS:
        raise ArtifactError(f'{path} must have "format": "{kind}", got {FORMATS[found]}')
    head = read_description(path, kind, version_)
    digest = str(head.get("sha256"))
    if len(digest) != len(_UNSIGNED) or sha256(_signed(read_saved(path), digest, _UNSIGNED)) != digest:
        raise ArtifactError(f"{path} must be as it was saved, got a truncated or altered file")
    missing = [key for key in (*objects, "files") if not isinstance(head.get(key), dict)]
    missing = missing or [f"{key}.{x}" for key in objects for x in objects[key] if x not in head[key]]
    if missing:
        raise ArtifactError(f"{path} must have {missing[0]}, got {sorted(head)}")
    names = set(head["files"])
    if not names.issuperset(files) or names.difference(files, optional):
        raise ArtifactError(f"{path} must list the artifact's files, got {sorted(names)}")
    for name, digest in head["files"].items():
        if sha256(read_saved(source / name)) != digest:
            raise ArtifactError(f"{source / name} must be as it was saved, got a truncated or altered file")
    return source, head


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays as a safetensors file."""
    path.write_bytes(save_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read what :func:`write_arrays` wrote."""
    with refusing(path, "hold arrays"):
        found: dict[str, NDArray[Any]] = load_arrays(read_saved(path))
    return found


def write_calibrators(calibrators: Mapping[str, Calibrator], folder: Path) -> None:
    """Write fitted calibrators of linkcal's own as JSON and arrays."""
    described: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, calibrator in calibrators.items():
        state = calibrator.get_state()
        own = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
        arrays |= {f"{name}/{key}": value for key, value in own.items()}
        described[name] = {
            "calibrator": calibrator_name(calibrator),
            "params": calibrator.get_params(),
            "state": {key: value for key, value in state.items() if key not in own},
            "arrays": sorted(own),
        }
    try:
        text = json.dumps(described, indent=2)
    except TypeError as error:
        raise InputError(f"calibrator must have parameters that are JSON values, got {error}") from error
    (folder / CALIBRATOR_FILES[0]).write_text(text + "\n", encoding="utf-8")
    write_arrays(folder / CALIBRATOR_FILES[1], arrays)


def read_calibrators(source: Path) -> dict[str, Calibrator]:
    """Read what :func:`write_calibrators` wrote."""
    out = {}
    with refusing(source / CALIBRATOR_FILES[0], "describe calibrators"):
        arrays = load_arrays(read_saved(source / CALIBRATOR_FILES[1]))
        for name, entry in json.loads(read_saved(source / CALIBRATOR_FILES[0])).items():
            state = entry["state"] | {key: arrays[f"{name}/{key}"] for key in entry["arrays"]}
            out[name] = make_calibrator(entry["calibrator"], **entry["params"]).set_state(state)
    return out
