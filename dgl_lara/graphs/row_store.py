"""Arrays on disk with one row a node, made batch after batch: a pass that was stopped goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.distributed import ProcessGroup
from dgl_lara._util.progress import Progress, detail
from dgl_lara.errors import LaraError

Make = Callable[[Tensor], Tensor]  # nodes -> their rows


class RowStore:
    """`folder`: where the arrays lie, each beside a note of what it is of and how many rows are done. `data`: a text
    that tells the graph and the model from any others."""

    def __init__(self, folder: Path, data: str) -> None:
        self.folder, self.data = folder, data

    def rows(self, name: str, of: str, num_nodes: int, make: Make, size: int, label: str) -> Tensor:
        """(num_nodes, columns) float32, mapped: from disk where it is whole, else made, `size` nodes at a time. `of`:
        what it depends on beside `data`."""
        path, key = self.folder / f"{name}.npy", f"{of} {self.data}"
        done = self._done(path, key, num_nodes)
        bar = Progress(
            range(done, num_nodes, size), label, total=num_nodes, done=done, unit="node", weight=lambda _: size
        )
        array, started = self._opened(path) if done else None, time.monotonic()
        for first in bar if done < num_nodes else ():
            nodes = torch.arange(first, min(first + size, num_nodes))
            found = make(nodes).numpy()
            if array is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._note(path, "", 0)  # what lay there is no more
                shape = (num_nodes, found.shape[1])
                array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
            array[first : first + len(found)] = found
            self._note(path, key, first + len(found))
        assert array is not None
        detail(f"{label}: {time.monotonic() - started:.1f} s")
        return torch.from_numpy(array)

    def keep_part(self, name: str, of: str, num_nodes: int, nodes: Tensor, rows: Tensor, ranks: ProcessGroup) -> None:
        """Rows of some of the nodes, from each of several processes that see the folder; all of them call this."""
        path = self.folder / f"{name}.npy"
        if ranks.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._note(path, "", 0)  # what lay there is no more
            shape = (num_nodes, rows.shape[1])
            np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape).flush()
        ranks.total(0)
        array = self._opened(path)
        array[nodes.numpy()] = rows.numpy()
        array.flush()  # type: ignore[attr-defined]
        ranks.total(0)
        if ranks.is_first:
            self._note(path, f"{of} {self.data}", num_nodes)

    def is_whole(self, name: str, of: str, num_nodes: int) -> bool:
        path = self.folder / f"{name}.npy"
        return self._done(path, f"{of} {self.data}", num_nodes) == num_nodes

    @contextmanager
    def passing(self, *names: str) -> Iterator[None]:
        """For arrays that are needed no longer when the block ends well."""
        yield
        for name in names:
            for path in (self.folder / f"{name}.npy", self.folder / f"{name}.json"):
                path.unlink(missing_ok=True)

    def _done(self, path: Path, key: str, num_nodes: int) -> int:
        """How many rows are there; 0 where the file is missing, damaged or of something else."""
        try:
            note = json.loads(path.with_suffix(".json").read_text())
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            fits = note["key"] == key and array.dtype == np.float32 and array.ndim == 2 and len(array) == num_nodes
            return int(note["done"]) if fits and 0 <= note["done"] <= num_nodes else 0
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            return 0

    def _opened(self, path: Path) -> np.ndarray:
        try:
            return np.load(path, mmap_mode="r+", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise LaraError(f"{path} cannot be read ({error}); remove it, and it is made anew.") from error

    def _note(self, path: Path, key: str, done: int) -> None:
        with atomic_write(path.with_suffix(".json")) as temporary:
            temporary.write_text(json.dumps({"key": key, "done": done}))
