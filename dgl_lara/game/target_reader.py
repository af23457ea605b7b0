"""Targets as users write them, read as ids of a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.schema import abbreviated
from dgl_lara.errors import InputError
from dgl_lara.game.game import check_targets
from dgl_lara.game.inputs import to_internal_pairs, to_user_pairs
from dgl_lara.game.link_task import LinkTask, PairIndex
from dgl_lara.game.removal import without_pairs
from dgl_lara.game.task import Task
from dgl_lara.graphs.graph import Graph

UNREADABLE = (ValueError, TypeError, RuntimeError, OverflowError)  # raised by torch.as_tensor


@dataclass(frozen=True, eq=False)
class TargetReader:
    """Reads nodes or graphs, which are numbers or a mask of booleans.

    Attributes:
        f: The model, which may translate ids of several node types.
        graph: The graph that is explained.
        task: The task.
        relation: The relation of pairs, if the graph has several.
        device: Device of the ids.
    """

    f: Callable
    graph: Graph
    task: Task
    relation: Any
    device: torch.device

    def ids(self, targets: Any) -> Tensor:
        """Return the ids of the targets, (num_targets,).

        Raises:
            InputError: If some of them are no targets of the task.
        """
        return parse_targets(targets, self.task.num_targets(self.graph), self.task, self.device)

    def unlisted(self, targets: Any) -> tuple[Task, Tensor, Tensor] | None:
        """Return a task of exactly these targets if the present task lacks some of them, otherwise None.

        The tensors are the position of each target in the present task, and whether it is there.
        """
        return None

    def pairs_of(self, targets: Any) -> Any:
        """Return the targets if they are pairs, otherwise None."""
        return None

    def graph_and_task(self, targets: Sequence[Any], leave_out: bool) -> tuple[Graph, Task]:
        """Return what to train on. A task without targets takes those to learn from.

        Args:
            targets: Targets to learn from and to validate on.
            leave_out: Remove edges between the ends of the pairs from the graph.
        """
        return self.graph, self.task

    def check_not_empty(self) -> None:
        """Raise InputError if the task has no targets yet."""

    def stored_pairs(self) -> Tensor | None:
        """Return the pairs of the task in user ids, None if targets are no pairs."""
        return None

    def positions_among(self, stored: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position of each target in a stored list of pairs, and whether it is there."""
        ids = torch.arange(len(stored))
        return ids, torch.ones_like(ids, dtype=torch.bool)


class _PairReader(TargetReader):
    """Reads pairs of nodes in the ids of the user's graph."""

    task: LinkTask

    def _pairs(self, targets: Any) -> Tensor:
        """Return (num_pairs, 2) internal ids."""
        if isinstance(targets, Tensor) and targets.dim() == 1 and len(self.task.pairs):  # positions or a mask
            return self.task.pairs[parse_targets(targets, len(self.task.pairs), self.task, self.device)]
        return to_internal_pairs(self.f, self.graph, targets, self.relation)

    def _lookup(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        return PairIndex(self.task.pairs, self.graph.num_nodes()).lookup(pairs)

    def ids(self, targets: Any) -> Tensor:
        ids, is_known = self._lookup(self._pairs(targets))
        if not is_known.all():
            raise InputError("pairs.not_of_lara")
        return ids

    def unlisted(self, targets: Any) -> tuple[Task, Tensor, Tensor] | None:
        pairs = self._pairs(targets)
        positions, is_listed = self._lookup(pairs)
        return None if bool(is_listed.all()) else (LinkTask(pairs), positions, is_listed)

    def pairs_of(self, targets: Any) -> Any:
        return targets

    def graph_and_task(self, targets: Sequence[Any], leave_out: bool) -> tuple[Graph, Task]:
        if len(self.task.pairs):
            return self.graph, self.task
        pairs = torch.cat([self._pairs(some) for some in targets if some is not None])
        task = LinkTask(torch.unique(pairs, dim=0))
        return without_pairs(self.graph, task.pairs) if leave_out else self.graph, task

    def check_not_empty(self) -> None:
        if not len(self.task.pairs):
            raise InputError("pairs.missing")

    def stored_pairs(self) -> Tensor | None:
        return to_user_pairs(self.f, self.task.pairs)

    def positions_among(self, stored: Tensor) -> tuple[Tensor, Tensor]:
        return PairIndex(self._pairs(stored), self.graph.num_nodes()).lookup(self.task.pairs)


def target_reader(f: Callable, graph: Graph, task: Task, relation: Any, device: torch.device) -> TargetReader:
    """Return the reader for the targets of a task.

    Args:
        f: The model, which may translate ids of several node types.
        graph: The graph that is explained.
        task: The task.
        relation: The relation of pairs, if the graph has several.
        device: Where ids are returned.
    """
    reader = _PairReader if isinstance(task, LinkTask) else TargetReader
    return reader(f, graph, task, relation, device)


def parse_targets(targets: Any, count: int, task: Task, device: torch.device) -> Tensor:
    """Return target ids, (num_targets,), from numbers or a mask of booleans.

    Raises:
        InputError: If they are neither, or not in 0 ... count - 1.
    """
    if isinstance(targets, list | tuple) and len({isinstance(one, bool) for one in targets}) > 1:
        raise InputError("targets.type", got=abbreviated(targets))
    try:
        ids = torch.as_tensor(targets, device=device)
    except UNREADABLE as error:
        raise InputError("targets.type", got=abbreviated(targets)) from error
    if ids.dtype == torch.bool and len(ids) != count:
        raise InputError("targets.mask_size", expected=count, got=len(ids))
    if ids.dim() > 1:
        raise InputError("targets.shape", task=task, got=tuple(ids.shape))
    if (ids.is_floating_point() or ids.is_complex()) and len(ids.flatten()):
        raise InputError("targets.type", got=abbreviated(targets))
    ids = ids.nonzero().flatten() if ids.dtype == torch.bool else ids.long().flatten()
    check_targets(ids, count, task)
    return ids
