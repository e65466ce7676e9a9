"""How a warning names a calibrator."""

from __future__ import annotations

__all__ = ["said_name"]


def said_name(calibrator: object) -> str:
    """Name of the command line and of every table, as in ``CALIBRATORS``; the class for one that has none.

    Examples
    --------
    >>> from linkcal import StructuralCalibrator
    >>> said_name(StructuralCalibrator()), said_name(3)
    ('in-n-out-plus', 'int')
    """
    from linkcal.calibrators.registry import CALIBRATORS  # which imports the calibrators that call this

    names = {spec.cls: name for name, spec in CALIBRATORS.items()}
    return next((names[cls] for cls in type(calibrator).__mro__ if cls in names), type(calibrator).__name__)
