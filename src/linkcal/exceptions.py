"""Errors and warnings of linkcal; each is also the standard error that a caller would expect.

Public functions raise :class:`InputError` for an argument of the wrong shape, type, range or content; their
docstrings add special cases only. Texts are one line: the argument's name, what was expected, what came.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.exceptions import NotFittedError as SklearnNotFittedError

__all__ = [
    "ArtifactError", "BaseRateWarning", "BoundReachedWarning", "ConvergenceWarning", "DataNotFoundError",
    "EdgeFeaturesWarning", "FewLinksWarning", "FewNegativesWarning", "InputError", "LinkcalError",
    "LinkcalWarning", "MissingExtraError", "NotFittedError", "RareClassWarning", "ShortageError",
    "SlowToggleWarning", "SymmetricDecoderWarning", "TrainingDivergedError", "UnsupportedModelError",
    "WorkerDiedError",
]  # fmt: skip


# Messages quote what came; a quoted line of a file can have any length.
_LONGEST, _KEPT = 1000, 200


def _cut(text: str) -> str:
    """Both ends of a long message."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_KEPT]} ... ({len(text) - 2 * _KEPT:,} characters left out) ... {text[-_KEPT:]}"


class LinkcalError(Exception):
    """Base of all errors raised on purpose by linkcal."""

    def __str__(self) -> str:
        return _cut(super().__str__())


class InputError(LinkcalError, ValueError):
    """An argument or a file has the wrong shape, type, range or content."""


class ShortageError(InputError):
    """More distinct negatives were requested than the graph has.

    Parameters
    ----------
    message : str
    available : int
        How many could have been drawn; also an attribute.
    """

    def __init__(self, message: str, available: int = 0) -> None:
        super().__init__(message)
        self.available = available


class TrainingDivergedError(InputError):
    """Loss or logits of a training became infinite or NaN."""


class ArtifactError(InputError):
    """A saved artifact is incomplete, damaged or of another version."""


class DataNotFoundError(LinkcalError, FileNotFoundError):
    """A data set's raw file is missing and cannot be downloaded."""


class MissingExtraError(LinkcalError, ImportError):
    """A package that comes with an extra of linkcal is not installed; the message names the extra."""


#: Extra of each package that ``pip install linkcal`` alone does not bring.
_EXTRAS = dict.fromkeys(("torch", "torch_geometric", "numba", "networkx", "pandas"), "gnn")
_EXTRAS |= {"pyarrow": "parquet", "ray": "ray", "matplotlib": "plots"}


def missing_extra(error: Exception, what: str) -> MissingExtraError | None:
    """In one line which extra `what` needs, if `error` is that a package of an extra is not installed."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in _EXTRAS:
        return None
    return MissingExtraError(f"{what} needs {package}: pip install 'linkcal[{_EXTRAS[package]}]'")


@contextmanager
def extra_needed(what: str) -> Iterator[None]:
    """Raise :func:`missing_extra` for an import in the block that finds no package of an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error, what) or error from error


class NotFittedError(LinkcalError, SklearnNotFittedError):
    """A calibrator or wrapper was used before ``fit``."""


class UnsupportedModelError(LinkcalError, TypeError):
    """A model has state or structure for which the requested result would be wrong."""


class WorkerDiedError(LinkcalError, RuntimeError):
    """A worker process ended before its job did."""


class LinkcalWarning(UserWarning):
    """Base of all warnings given by linkcal."""

    def __str__(self) -> str:
        return _cut(super().__str__())


class ConvergenceWarning(LinkcalWarning, SklearnConvergenceWarning):
    """An iterative fit stopped before it reached its tolerance."""


class BoundReachedWarning(LinkcalWarning):
    """The optimum lies at infinity (or zero); the fit stopped at a stated bound."""


class BaseRateWarning(LinkcalWarning):
    """The mean probability differs from the base rate, and the calibrator cannot correct it."""


class RareClassWarning(LinkcalWarning):
    """One of the two classes has too few members for a reliable fit."""


class FewLinksWarning(RareClassWarning):
    """So few calibration links can neither determine a probability well nor show that it is right."""


class EdgeFeaturesWarning(LinkcalWarning):
    """Node features were computed from edges that the split or the scores must not use."""


class FewNegativesWarning(LinkcalWarning):
    """Hits@K was computed with fewer negatives than K."""


class SlowToggleWarning(LinkcalWarning):
    """Only whole passes over the graph are exact for the model, and they take more than a minute."""


class SymmetricDecoderWarning(LinkcalWarning):
    """A directed graph is scored by a decoder that gives (u, v) and (v, u) the same logit."""
