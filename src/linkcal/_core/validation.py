"""Checks of what users pass in, called once by public entries; private functions trust their callers."""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from linkcal._core.maths import FloatArray
from linkcal.exceptions import FewLinksWarning, InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def is_tensor(values: Any) -> TypeGuard[Tensor]:
    """Whether `values` is a torch tensor; torch is not imported for it."""
    return isinstance(values, getattr(sys.modules.get("torch"), "Tensor", ()))


def to_numpy(values: Any) -> NDArray[Any]:
    """Array from a tensor (any device), array, series or list; bfloat16 becomes float32, exactly."""
    if is_tensor(values):
        values = values.detach().cpu()
        is_bfloat16 = values.dtype == sys.modules["torch"].bfloat16
        return np.asarray((values.float() if is_bfloat16 else values).numpy())
    return np.asarray(values)


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value (n,) is None, NaN, not a time, or pandas' NA."""
    if values.dtype.kind == "O":
        odd = ("NoneType", "NAType", "NaTType")
        missing = [type(v).__name__ in odd or (isinstance(v, float) and v != v) for v in values]
        return np.array(missing, dtype=bool)
    if values.dtype.kind not in "fcmM":
        return np.zeros(values.shape, dtype=bool)
    return np.asarray(np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values))


def to_float64(values: Any) -> FloatArray:
    """As :func:`to_numpy`, in float64."""
    return to_numpy(values).astype(np.float64)


def in_container_of(template: Any, result: FloatArray) -> Any:
    """`result` as what `template` is: a tensor (dtype, device), a list, or an array of a floating dtype."""
    if is_tensor(template):
        import torch

        dtype = template.dtype if template.dtype.is_floating_point else torch.get_default_dtype()
        return torch.as_tensor(result, dtype=dtype, device=template.device)
    if isinstance(template, list):
        return result.tolist()
    dtype_in = to_numpy(template).dtype
    return result.astype(dtype_in) if np.issubdtype(dtype_in, np.floating) else result


def check_choice(value: str, name: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`; else name the nearest one."""
    options = list(allowed)
    if value in options:
        return value
    near = difflib.get_close_matches(str(value), options, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise InputError(f"{name} must be one of {', '.join(options)}; got {value!r}{hint}")


def check_positive_int(value: Any, name: str, *, minimum: int = 1) -> int:
    """Return `value` as int if it is a whole number of at least `minimum` that int64 holds."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise InputError(f"{name} must be a whole number >= {minimum}, got {value!r}")
    if int(value) >= 2**63:
        raise InputError(f"{name} must be a whole number < 2**63, got {value!r}")
    return int(value)


def _number(value: Any) -> float:
    """The value as float; NaN, which is outside every range, if it is not a real number."""
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if value > 0 else -math.inf


def check_fraction(value: Any, name: str, *, zero: bool = False, one: bool = False) -> float:
    """Return `value` as float if it lies in (0, 1); `zero` and `one` close the interval there."""
    number = _number(value)
    above = number > 0.0 or (zero and number == 0.0)
    below = number < 1.0 or (one and number == 1.0)
    if not (above and below):
        interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
        raise InputError(f"{name} must be in {interval}, got {value!r}")
    return number


def check_base_rate(value: Any, negatives: str = "uniform", name: str = "base_rate") -> float | str:
    """Return a base rate in (0, 1) as float, or ``"density"``, which only uniform negatives allow."""
    if not isinstance(value, str):
        return check_fraction(value, name)
    if value != "density":
        raise InputError(f"{name} must be a number in (0, 1) or 'density', got {value!r}")
    if negatives != "uniform":
        raise InputError(
            f"{name} must be a number for a calibrator fitted on {negatives} negatives, got 'density', "
            "which is the share of links among all pairs"
        )
    return value


def check_flag(value: Any, name: str) -> bool:
    """Return `value` if it is a bool; the text ``"no"`` would be truthy."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_type(value: Any, kind: type, name: str) -> None:
    """Refuse what is no `kind`."""
    if not isinstance(value, kind):
        home = ".".join(kind.__module__.split(".")[:2])
        raise InputError(f"{name} must be a {kind.__name__} (see {home}), got {type(value).__name__}")


def check_edge_index(edge_index: Any, num_nodes: int | None, name: str = "edge_index") -> Tensor:
    """Return an int64 tensor of shape [2, L] whose entries are node indices below `num_nodes`."""
    import torch

    if not isinstance(edge_index, torch.Tensor):
        try:
            edge_index = torch.as_tensor(np.asarray(edge_index))
        except (TypeError, ValueError, NotImplementedError) as error:
            came = type(edge_index).__name__
            raise InputError(f"{name} must be an integer tensor of shape [2, L], got {came}") from error
    if edge_index.ndim != 2 or edge_index.size(0) != 2:
        raise InputError(f"{name} must have shape [2, L], got {list(edge_index.shape)}")
    no_integers = edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype is torch.bool
    if no_integers and edge_index.size(1):  # an empty list becomes an empty float tensor
        raise InputError(f"{name} must hold integers, got {edge_index.dtype}")
    index: Tensor = edge_index.to(torch.int64)
    if index.numel():
        low, high = (int(v) for v in index.aminmax())
        if low < 0:
            raise InputError(f"{name} must hold node indices >= 0, got {low}")
        if num_nodes is not None and high >= num_nodes:
            raise InputError(f"{name} must hold node indices < num_nodes = {num_nodes}, got {high}")
    return index


def check_no_self_pairs(pairs: Tensor, name: str = "edge_label_index") -> Tensor:
    """Return `pairs` [2, L] if each joins two different nodes."""
    loops = pairs[0] == pairs[1]
    if bool(loops.any()):
        node = int(pairs[0][loops][0])
        raise InputError(f"{name} must join two different nodes, got ({node}, {node})")
    return pairs


def check_finite(values: FloatArray, name: str) -> FloatArray:
    """Return `values` if none is NaN or infinite."""
    bad = int(values.size - np.isfinite(values).sum())
    if bad:
        raise InputError(f"{name} must be finite, got {count_not_finite(bad)}")
    return values


def count_not_finite(count: int) -> str:
    """Number of values that are not finite, in words."""
    return f"{count} NaN or infinite value{'s' if count > 1 else ''}"


def _as_float(values: Any, name: str) -> FloatArray:
    try:
        return np.asarray(to_numpy(values), dtype=np.float64)
    except OverflowError as error:
        raise InputError(f"{name} must hold numbers below 1.8e308, got a larger one") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numeric, got {type(values).__name__}") from error


def check_scores(score: Any, name: str = "score") -> FloatArray:
    """Return finite scores of shape (n,) or (n, 1) as float64 of shape (n,)."""
    array = _as_float(score, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{name} must have shape (n,), got {array.shape}")
    return check_finite(array, name)


def check_probabilities(y_prob: Any, name: str = "y_prob") -> FloatArray:
    """Return link probabilities of shape (n,), (n, 1) or (n, 2) with rows ``(1 - p, p)`` as float64 (n,)."""
    array = _as_float(y_prob, name)
    if array.ndim == 2 and array.shape[1] == 2:
        check_finite(array, name)
        off = np.abs(array.sum(axis=1) - 1.0) > 1e-6
        if off.any():
            row = int(np.flatnonzero(off)[0])
            raise InputError(
                f"{name} with two columns must have rows (1 - p, p) that sum to 1 within 1e-6, "
                f"got row {row} = {array[row].tolist()}"
            )
        array = array[:, 1]
    array = check_scores(array, name)
    outside = array[(array < 0.0) | (array > 1.0)]
    if outside.size:
        raise InputError(f"{name} must be in [0, 1], got {float(outside[0])!r}")
    return array


def check_binary_labels(y: Any, n: int | None = None, name: str = "y_true") -> FloatArray:
    """Return labels in {0, 1} as float64 of shape (n,)."""
    array = check_scores(y, name)
    others = array[(array != 0.0) & (array != 1.0)]
    if others.size:
        raise InputError(f"{name} must hold only 0 and 1, got {float(others[0])!r}")
    if n is not None and array.shape[0] != n:
        raise InputError(f"{name} must have one label per link, {n}, got {array.shape[0]}")
    return array


#: The sum of a hundred million stays finite, and a product with a probability above 0.
_WEIGHTS = 1e-300, 1e300


def check_sample_weight(weight: Any, n: int, name: str = "sample_weight") -> FloatArray:
    """Return non-negative weights of shape (n,), not all zero; None becomes ones."""
    if weight is None:
        return np.ones(n)
    array = check_scores(weight, name)
    if array.shape[0] != n:
        raise InputError(f"{name} must have one weight per link, {n}, got {array.shape[0]}")
    if (array < 0.0).any():
        raise InputError(f"{name} must be >= 0, got {float(array.min())!r}")
    low, high = _WEIGHTS
    wrong = array[(array != 0.0) & ((array < low) | (array > high))]
    if wrong.size:
        raise InputError(f"{name} must be 0 or from {low:g} to {high:g}, got {float(wrong[0])!r}")
    if n and not array.any():
        raise InputError(f"{name} must not be zero everywhere, got {n} zeros")
    return array


def check_positive_float(value: Any, name: str, *, zero: bool = False, maximum: float = math.inf) -> float:
    """Return `value` as float if it is finite, above 0 (`zero` allows 0 too) and at most `maximum`."""
    number = _number(value)
    if not (math.isfinite(number) and (number > 0.0 or (zero and number == 0.0))):
        raise InputError(f"{name} must be a finite number {'>=' if zero else '>'} 0, got {value!r}")
    if number > maximum:
        raise InputError(f"{name} must be at most {maximum:g}, got {value!r}")
    return number


def check_device(device: torch.device | str, name: str = "device") -> torch.device:
    """Return the torch device; ``"auto"`` takes CUDA if there is one, a named CUDA device must exist."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise InputError(f"{name} must be auto, cpu, cuda or cuda:<index>, got {str(device)!r}")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"{name} must be a device of this machine, which has {torch.cuda.device_count()} CUDA devices, "
            f"got {str(found)!r}"
        )
    return found


#: With fewer of a class, chance moves an ECE by more than calibration leaves.
FEW_LINKS = 100


def chance_limits(links: int, negatives: int, n_bins: int = 15) -> tuple[float, float]:
    """What chance does with so few pairs: precision of a probability, ECE of a calibrated predictor.

    The first is half the 95 % interval of a probability near the base rate r, at best: 1.96 times
    ``r (1 - r) sqrt(1 / links + 1 / negatives)``, the standard error of one shift of all logits. The second
    is ``sqrt(2 / pi) sqrt(n_bins v / n)``, the mean of ``sum_b |S_b| / n`` for normal ``S_b`` in equally
    filled bins; ``v = 2 r (1 - r) / 3`` is the mean of p (1 - p) if p is uniform (at r = 1/2) over [0, 1].
    """
    n, spread = links + negatives, links * negatives / (links + negatives) ** 2
    return 1.96 * math.sqrt(spread / n), math.sqrt(2.0 / math.pi * n_bins * spread / 1.5 / n)


def warn_of_few_links(links: int, negatives: int, *, stacklevel: int) -> None:
    """FewLinksWarning for fewer than ``FEW_LINKS`` calibration pairs of a class, if there is one of each."""
    if not 0 < min(links, negatives) < FEW_LINKS:
        return
    precision, ece = chance_limits(links, negatives)
    warnings.warn(
        f"{links} links and {negatives} negatives to calibrate on, fewer than {FEW_LINKS} of a class: a "
        f"probability near the base rate is known to +- {100 * precision:.0f} points at best (95 %), and on "
        f"as many test pairs calibrated probabilities show an ECE of about {100 * ece:.0f} %",
        FewLinksWarning,
        stacklevel=stacklevel + 1,
    )
