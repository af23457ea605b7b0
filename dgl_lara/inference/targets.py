"""What users ask about: targets and classes, in the many ways that people write them, as numbers of the game."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.registry import closest
from dgl_lara._util.schema import abbreviated
from dgl_lara.errors import InputError
from dgl_lara.game.game import check_targets
from dgl_lara.game.task import Task

MOST_CLASSES = 8  # that are listed to somebody who names another


def as_targets(targets: Any, count: int, task: Task, device: torch.device) -> Tensor:
    """Nodes or graphs, 0 ... count - 1, from numbers or a mask of booleans."""
    if isinstance(targets, list | tuple) and len({isinstance(one, bool) for one in targets}) > 1:
        raise InputError(f"targets must be whole numbers or a mask of booleans, not both (got {abbreviated(targets)}).")
    try:
        chosen = torch.as_tensor(targets, device=device)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"targets must be whole numbers or a mask of booleans (got {abbreviated(targets)})."
        ) from error
    if chosen.dtype == torch.bool and len(chosen) != count:
        raise InputError(f"a mask of targets must have {count} entries (got {len(chosen)}).")
    if chosen.dim() > 1:
        raise InputError(f"targets must be one list of {task} numbers (got shape {tuple(chosen.shape)}).")
    if (chosen.is_floating_point() or chosen.is_complex()) and len(chosen.flatten()):
        raise InputError("targets must be whole numbers or a mask of booleans.")
    chosen = chosen.nonzero().flatten() if chosen.dtype == torch.bool else chosen.long().flatten()
    check_targets(chosen, count, task)
    return chosen


def as_classes(classes: Any, count: int, known: int, device: torch.device) -> Tensor:
    """(count,), or (count, 2) where a class is set against another; `known`: how many classes there are."""
    if isinstance(classes, tuple) and len(classes) == 2:
        if count == 2:
            raise InputError(
                f"classes={classes} can mean one class for each of the two targets, or one rather than the other; "
                f"write {list(classes)} for the first, {[list(classes)] * 2} for the second."
            )
        return _apart(*(as_classes([one] * count, count, known, device) for one in classes))
    if isinstance(classes, list) and classes and all(isinstance(one, list | tuple) for one in classes):
        if any(len(one) != 2 for one in classes):
            raise InputError("classes must name one, or two to set against each other, for each target.")
        sides = ([one[side] for one in classes] for side in (0, 1))
        return _apart(*(as_classes(side, count, known, device) for side in sides))
    try:
        given = torch.as_tensor(classes, device=device).flatten()
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError(f"classes must be whole numbers in 0..{known - 1} (got {abbreviated(classes)}).") from error
    if len(given) and (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool):
        raise InputError(f"classes must be whole numbers (got {given.tolist()[:5]}).")
    wanted = given.long()
    if len(wanted) != count:
        raise InputError(f"classes must name one a target, {count} (got {len(wanted)}).")
    if int(wanted.min()) < 0 or int(wanted.max()) >= known:
        raise InputError(f"classes must lie in 0..{known - 1} (got {wanted.tolist()[:5]}).")
    return wanted


def named_classes(given: Sequence[int | str], names: Sequence[str] | None, count: int) -> list[int]:
    """What --class and --rather-than name, as numbers of classes."""
    options = zip(("--class", "--rather-than"), given, strict=False)
    numbers = [class_number(option, one, names, count) for option, one in options]
    if len(numbers) == 2 and numbers[0] == numbers[1]:
        raise InputError(f"--class and --rather-than must be two classes (got {given[0]} twice).")
    return numbers


def class_number(option: str, given: int | str, names: Sequence[str] | None, count: int) -> int:
    """The number of a class that was named on the command line."""
    if isinstance(given, int) and given < count:
        return given
    called = [str(name).casefold() for name in names or ()][:count]
    if str(given).casefold() in called:
        return called.index(str(given).casefold())
    some = [str(name) for name in (names or ())[:count]]
    listed = ", ".join(some[:MOST_CLASSES]) + (", ..." if len(some) > MOST_CLASSES else "")
    expected = f"in 0..{count - 1}" + (f" or one of {listed}" if listed else "")
    raise InputError(f"{option} must be {expected} (got {str(given)[:40]}).{closest(str(given), some)}")


def _apart(classes: Tensor, rivals: Tensor) -> Tensor:
    """(count, 2)"""
    if bool((classes == rivals).any()):
        raise InputError(
            f"a class can be set against another one, not against itself (got {classes.tolist()[:5]} twice)."
        )
    return torch.stack([classes, rivals], dim=1)
