"""Parsing of classes, in all the ways users write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.registry import closest
from dgl_lara._util.schema import abbreviated
from dgl_lara.errors import InputError
from dgl_lara.game.target_reader import UNREADABLE
from dgl_lara.game.values import ClassQuery

MAX_LISTED_CLASSES = 8  # names of classes in an error


def parse_classes(classes: Any, count: int, num_classes: int, device: torch.device) -> ClassQuery:
    """Return the query that a user's `classes` stand for.

    Args:
        classes: One class for each target, a pair (a, b) for all targets, or a pair for each target.
        count: Number of targets.
        num_classes: Number of classes of the model.
        device: Device of the tensors.

    Raises:
        InputError: If a class does not exist, is contrasted with itself, or if the meaning is ambiguous.
    """
    pairs: list = []
    if isinstance(classes, ClassQuery):
        return classes
    if isinstance(classes, tuple) and len(classes) == 2:
        if count == 2:
            raise InputError("classes.ambiguous", got=classes, each=list(classes), contrast=[list(classes)] * 2)
        pairs = [classes] * count
    elif isinstance(classes, list) and classes and all(isinstance(one, list | tuple) for one in classes):
        pairs = classes
    if not pairs:
        return ClassQuery(_class_ids(classes, count, num_classes, device))
    if any(len(pair) != 2 for pair in pairs):
        raise InputError("classes.pair", got=abbreviated(classes))
    explained, versus = (_class_ids(list(side), count, num_classes, device) for side in zip(*pairs, strict=True))
    if bool((explained == versus).any()):
        raise InputError("classes.same", got=int(explained[explained == versus][0]))
    return ClassQuery(explained, versus)


def _class_ids(classes: Any, count: int, num_classes: int, device: torch.device) -> Tensor:
    wrong = InputError("classes.range", most=num_classes - 1, got=abbreviated(classes))
    try:
        ids = torch.as_tensor(classes, device=device).flatten()
    except UNREADABLE as error:
        raise wrong from error
    if len(ids) and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise wrong
    if len(ids) != count:
        raise InputError("classes.count", expected=count, got=len(ids))
    if int(ids.min()) < 0 or int(ids.max()) >= num_classes:
        raise wrong
    return ids.long()


def classes_of_options(
    values: Sequence[int | str],
    names: Sequence[str] | None,
    num_classes: int,
    options: tuple[str, str] = ("--class", "--rather-than"),
) -> list[int]:
    """Return the class numbers that two options stand for.

    Args:
        values: The values of the options that were used, numbers or names.
        names: Names of the classes, if they have any.
        num_classes: Number of classes of the model.
        options: The options as users write them.
    """
    used = zip(options, values, strict=False)
    numbers = [class_number(option, value, names, num_classes) for option, value in used]
    if len(numbers) == 2 and numbers[0] == numbers[1]:
        raise InputError("classes.same", got=values[0])
    return numbers


def class_number(option: str, value: int | str, names: Sequence[str] | None, num_classes: int) -> int:
    """Return the number of a class that an option names."""
    if isinstance(value, int) and value < num_classes:
        return value
    known = [str(name) for name in names or ()][:num_classes]
    folded = [name.casefold() for name in known]
    if str(value).casefold() in folded:
        return folded.index(str(value).casefold())
    expected = f"in 0..{num_classes - 1}"
    if known:
        more = ", ..." if len(known) > MAX_LISTED_CLASSES else ""
        expected += f" or one of {', '.join(known[:MAX_LISTED_CLASSES])}{more}"
    close = closest(str(value), known)
    raise InputError("classes.unknown", option=option, expected=expected, got=str(value)[:40], closest=close)
