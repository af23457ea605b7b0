"""The tasks by name."""

from __future__ import annotations

from dgl_lara.errors import InputError
from dgl_lara.game.graph_task import GraphTask
from dgl_lara.game.link_task import LinkTask
from dgl_lara.game.node_task import NodeTask
from dgl_lara.game.task import Task

NODE, GRAPH, LINK = NodeTask(), GraphTask(), LinkTask()
TASKS: dict[str, Task] = {task.name: task for task in (NODE, GRAPH, LINK)}


def as_task(task: str | Task) -> Task:
    """Return the task of that name. A task is returned unchanged."""
    if isinstance(task, Task):
        return task
    if task not in TASKS:
        raise InputError("task.unknown", known=" or ".join(f"'{name}'" for name in TASKS), got=task)
    return TASKS[task]
