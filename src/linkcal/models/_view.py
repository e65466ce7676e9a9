"""A model in evaluation mode that its owner, and other threads, never see change."""

import copy
import functools
from collections import OrderedDict
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn


def evaluation_view(model: nn.Module) -> nn.Module:
    """The same model in evaluation mode, as modules of its own that share everything else.

    The mode of the model itself, and its hooks, are seen by everybody who uses it at the same time. The view
    is a copy of the module tree alone: tensors and all other attributes are the originals, so it needs no
    memory and follows later changes of the weights. Functions and bound methods that an attribute, a hook or
    a container holds, and that reach modules of the tree, reach those of the view instead.
    """
    made: dict[int, Any] = {}
    for module in model.modules():
        # The mode of a scripted module is outside Python.
        scripted = isinstance(module, torch.jit.ScriptModule)
        made[id(module)] = copy.deepcopy(module) if scripted else object.__new__(type(module))
    for module in model.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            attributes = {name: _rebound(value, made) for name, value in vars(module).items()}
            vars(made[id(module)]).update(attributes)
    view: nn.Module = made[id(model)]
    return view.eval()


def _rebound(value: Any, made: dict[int, Any]) -> Any:
    """`value` with what reaches a module in `made` reaching its copy; itself where nothing does."""
    if id(value) in made:
        return made[id(value)]
    if type(value) in (dict, OrderedDict):
        made[id(value)] = type(value)()
        made[id(value)].update((key, _rebound(part, made)) for key, part in value.items())
        return made[id(value)]
    if type(value) is list:
        made[id(value)] = []
        made[id(value)].extend(_rebound(part, made) for part in value)
        return made[id(value)]
    if type(value) is tuple:
        return tuple(_rebound(part, made) for part in value)
    if isinstance(value, MethodType):
        return MethodType(value.__func__, _rebound(value.__self__, made))
    if isinstance(value, functools.partial):
        return functools.partial(
            _rebound(value.func, made), *_rebound(value.args, made), **_rebound(value.keywords, made)
        )
    if isinstance(value, FunctionType):
        return _rebound_function(value, made)
    return value


def _rebound_function(function: FunctionType, made: dict[int, Any]) -> FunctionType:
    cells = [cell for cell in function.__closure__ or () if _is_filled(cell)]
    held = (*(cell.cell_contents for cell in cells), *(function.__defaults__ or ()))
    if not any(_reaches(part, made) for part in (*held, *(function.__kwdefaults__ or {}).values())):
        return function
    closure = tuple(CellType() for _ in function.__closure__ or ())
    fresh = FunctionType(function.__code__, function.__globals__, function.__name__, None, closure or None)
    made[id(function)] = fresh
    for cell, new in zip(function.__closure__ or (), closure, strict=True):
        if _is_filled(cell):
            new.cell_contents = _rebound(cell.cell_contents, made)
    fresh.__defaults__ = _rebound(function.__defaults__, made)
    fresh.__kwdefaults__ = _rebound(function.__kwdefaults__, made)
    fresh.__dict__.update(function.__dict__)
    return fresh


def _reaches(value: Any, made: dict[int, Any]) -> bool:
    """Whether a module of the tree is among what a function holds, directly or inside another function."""
    return id(value) in made or isinstance(
        value, (dict, list, tuple, MethodType, functools.partial, FunctionType)
    )


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that has no value yet
        return False
