"""`RowStore`: arrays on disk with one row per node, computed in batches. An interrupted pass is resumed."""

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
    """A folder of arrays, each with a note of its content and of the rows that are complete.

    Args:
        folder: The folder.
        data: Key of the graph and the model.
    """

    def __init__(self, folder: Path, data: str) -> None:
        self.folder, self.data = folder, data

    def rows(self, name: str, key_part: str, num_nodes: int, make: Make, size: int, label: str) -> Tensor:
        """Return (num_nodes, columns) a mapped float32 array, computed unless it is complete.

        Args:
            name: Name of the array.
            key_part: Key of what it depends on, besides `data`.
            num_nodes: Number of rows.
            make: Returns the rows of nodes.
            size: Nodes per batch.
            label: Label of the progress bar.
        """
        path, key = self.folder / f"{name}.npy", f"{key_part} {self.data}"
        done = self._done(path, key, num_nodes)
        bar = Progress(
            range(done, num_nodes, size), label, total=num_nodes, done=done, unit="node", weight=lambda _: size
        )
        array, started = self._opened(path) if done else None, time.monotonic()
        for first in bar if done < num_nodes else ():
            nodes = torch.arange(first, min(first + size, num_nodes))
            rows = make(nodes).numpy()
            if array is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._note(path, "", 0)  # an older array is overwritten
                shape = (num_nodes, rows.shape[1])
                array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
            array[first : first + len(rows)] = rows
            self._note(path, key, first + len(rows))
        assert array is not None
        detail(f"{label}: {time.monotonic() - started:.1f} s")
        return torch.from_numpy(array)

    def keep_part(
        self, name: str, key_part: str, num_nodes: int, nodes: Tensor, rows: Tensor, ranks: ProcessGroup
    ) -> None:
        """Write rows of some nodes from each of several processes that share the folder. All of them call this."""
        path = self.folder / f"{name}.npy"
        if ranks.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._note(path, "", 0)  # an older array is overwritten
            shape = (num_nodes, rows.shape[1])
            np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape).flush()
        ranks.total(0)
        array = self._opened(path)
        array[nodes.numpy()] = rows.numpy()
        array.flush()  # type: ignore[attr-defined]
        ranks.total(0)
        if ranks.is_first:
            self._note(path, f"{key_part} {self.data}", num_nodes)

    def is_whole(self, name: str, key_part: str, num_nodes: int) -> bool:
        """Return whether an array is complete."""
        path = self.folder / f"{name}.npy"
        return self._done(path, f"{key_part} {self.data}", num_nodes) == num_nodes

    @contextmanager
    def passing(self, *names: str) -> Iterator[None]:
        """Delete arrays when the block ends without an error."""
        yield
        for name in names:
            for path in (self.folder / f"{name}.npy", self.folder / f"{name}.json"):
                path.unlink(missing_ok=True)

    def _done(self, path: Path, key: str, num_nodes: int) -> int:
        """Return the number of complete rows, 0 if the file is missing, damaged or of other content."""
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
            raise LaraError("rows.unreadable", path=path, cause=error) from error

    def _note(self, path: Path, key: str, done: int) -> None:
        with atomic_write(path.with_suffix(".json")) as temporary:
            temporary.write_text(json.dumps({"key": key, "done": done}))
