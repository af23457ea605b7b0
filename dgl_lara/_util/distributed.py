"""Process groups: several processes that train as one.

Processes started by torchrun or `--processes` share a group after `join()`. `get_process_group()` returns that group,
or a group of one process, which has the same methods.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from dgl_lara._util.progress import QUIET, set_loudness
from dgl_lara.errors import InputError, LaraError, message

MEETING = "DGL_LARA_MEETING"  # names a file through which the processes of `--processes` find each other
PATIENCE = 300.0  # seconds that processes wait for each other at the start
BEAT, SILENCE = 2.0, 60.0  # seconds between heartbeats, and without one until a process counts as lost
FOREVER = timedelta(days=1)  # the first process may work alone for long, and heartbeats show that it lives


class ProcessLost(LaraError):
    """Raised when another process of the group is gone."""


class ProcessGroup:
    """A group of one process.

    Attributes:
        rank: Number of this process.
        count: Number of processes.
        nearby: Number of processes on this machine.
        sent: Bytes sent to other processes.
    """

    rank, count, nearby, sent = 0, 1, 1, 0

    @property
    def is_first(self) -> bool:
        """Return whether this process validates and writes files."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """Return the share of this process in a number of items."""
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def joined(self, own: Tensor, mine: slice, total: int, dim: int = 0) -> Tensor:
        """Return the shares of all processes side by side.

        Gradients flow into the own share only. Summed over processes, those of the weights are as in one process.
        """
        return own

    def summed(self, numbers: Tensor) -> Tensor:
        """Sum over all processes, in place."""
        return numbers

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum gradients over all processes, in place."""

    def total(self, *numbers: int) -> list[int]:
        """Return each number summed over all processes."""
        return list(numbers)

    def exchange(self, parts: list[Tensor]) -> list[Tensor]:
        """Send one tensor of rows to each process, and return those received."""
        return parts

    def of_first(self, part: Tensor) -> Tensor:
        """Return the tensor of the first process."""
        return part

    def text_of_first(self, text: str) -> str:
        return text

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Run the block in the first process, then in the others, which find its files."""
        yield

    def agree(self, facts: dict[str, object]) -> None:
        """Raise InputError if a value differs between processes."""

    def may_report(self) -> bool:
        """Return whether this process prints an error that all of them meet."""
        return True

    def leave(self) -> None:
        """Wait for all processes at the end of the work."""


class _TorchProcessGroup(ProcessGroup):
    """One process of several, connected by torch.distributed."""

    def __init__(self, store: dist.Store, rank: int, count: int, nearby: int, backend: str) -> None:
        self.store, self.rank, self.count, self.nearby = store, rank, count, nearby
        self._meet()
        dist.init_process_group(backend, store=dist.PrefixStore("group", store), rank=rank, world_size=count,
                                timeout=FOREVER)  # fmt: skip
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _meet(self) -> None:
        arrived, deadline = self.store.add("arrivals", 1), time.monotonic() + PATIENCE
        while arrived < self.count:
            if time.monotonic() > deadline:
                raise LaraError("processes.late", count=self.count, arrived=arrived, seconds=PATIENCE)
            time.sleep(0.02)
            arrived = self.store.add("arrivals", 0)

    # --- together

    def summed(self, numbers: Tensor) -> Tensor:
        with _checked_collective():
            dist.all_reduce(numbers)
        self.sent += 2 * numbers.nbytes * (self.count - 1) // self.count  # twice around a ring
        return numbers

    def joined(self, own: Tensor, mine: slice, total: int, dim: int = 0) -> Tensor:
        shape = list(own.shape)
        shape[dim] = total
        every = own.new_zeros(shape)  # zero but for the own share, because every backend can sum
        every.narrow(dim, mine.start, mine.stop - mine.start).copy_(own.detach())
        self.summed(every)
        return torch.cat([every.narrow(dim, 0, mine.start), own, every.narrow(dim, mine.stop, total - mine.stop)], dim)

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        parameters = list(parameters)
        for parameter in parameters:  # an empty share has no gradients
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        summed = self.summed(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, summed.split([one.numel() for one in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def total(self, *numbers: int) -> list[int]:
        return self.summed(torch.tensor(numbers)).tolist()

    def exchange(self, parts: list[Tensor]) -> list[Tensor]:
        counts = [len(part) for part in parts]
        sizes, rows = torch.empty(self.count, dtype=torch.long), torch.cat(parts).contiguous()
        with _checked_collective():
            dist.all_to_all_single(sizes, torch.tensor(counts))
            got = rows.new_empty(int(sizes.sum()), *rows.shape[1:])
            dist.all_to_all_single(got, rows, sizes.tolist(), counts)
        self.sent += sum(part.nbytes for rank, part in enumerate(parts) if rank != self.rank)
        return list(got.split(sizes.tolist()))

    def of_first(self, part: Tensor) -> Tensor:
        return self.summed(part.clone() if self.is_first else torch.zeros_like(part))

    def text_of_first(self, text: str) -> str:
        return self._from_all({"text": text})[0]["text"]

    def _from_all(self, own: dict[str, str]) -> list[dict[str, str]]:
        """Return what each process passes."""
        turn = f"message {self.store.add(f'turns of {self.rank}', 1)}"
        self.store.set(f"{turn} by {self.rank}", json.dumps(own))
        self.total(0)  # all have written
        return [json.loads(self.store.get(f"{turn} by {rank}")) for rank in range(self.count)]

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        if not self.is_first:
            self.total(0)
        yield
        if self.is_first:
            self.total(0)

    def agree(self, facts: dict[str, object]) -> None:
        first, *others = self._from_all({name: str(fact) for name, fact in facts.items()})
        for rank, other in enumerate(others, 1):
            for name in first:
                if other[name] != first[name]:
                    fields = {"name": name, "first": first[name], "other": other[name], "rank": rank}
                    raise InputError("processes.differ", **fields)

    # --- the end

    def may_report(self) -> bool:
        try:
            return self.store.add("reports", 1) == 1
        except RuntimeError:  # the store is gone
            return True

    def leave(self) -> None:
        self.total(0)
        self._over.set()

    def _watch(self) -> None:
        """Send heartbeats and watch those of the others, in a thread.

        A process that dies is noticed at the next collective call. The heartbeats are for machines that vanish, and for
        a parent process that is gone.
        """
        parent, beats, orphaned = os.getppid(), [0] * self.count, False
        last_beat = [time.monotonic()] * self.count
        while not self._over.wait(BEAT):
            if os.getppid() != parent and not orphaned:
                orphaned = True
                os.kill(os.getpid(), signal.SIGTERM)
            try:
                self.store.add(f"beats of {self.rank}", 1)
                now = [self.store.add(f"beats of {rank}", 0) for rank in range(self.count)]
            except RuntimeError:
                now = beats
            for rank, (before, beat) in enumerate(zip(beats, now, strict=True)):
                last_beat[rank] = last_beat[rank] if beat == before else time.monotonic()
            beats = now
            if time.monotonic() - min(last_beat) > SILENCE and not self._over.is_set():
                text = message("processes.silent", rank=last_beat.index(min(last_beat)), seconds=SILENCE)
                os.write(2, f"Error: {text} [processes.silent]\n".encode())
                os._exit(LaraError.exit_code)  # the main thread waits for a lost process


@contextmanager
def _checked_collective() -> Iterator[None]:
    """Raise ProcessLost if a collective call fails."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost("processes.lost") from error


ALONE = ProcessGroup()
_group: ProcessGroup = ALONE


def get_process_group() -> ProcessGroup:
    """Return the group of this process."""
    return _group


def _is_one_of_several() -> bool:
    """Return whether this process was started as one of several."""
    return MEETING in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def join(device: str = "cpu") -> ProcessGroup:
    """Join the group that this process was started in. All processes but the first print errors only."""
    global _group
    if not _is_one_of_several() or _group is not ALONE:
        return _group
    rank, count, nearby = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if count == 1:
        return _group
    try:
        if MEETING in os.environ:
            store: dist.Store = dist.FileStore(os.environ[MEETING], count)
        else:
            store, rank, count = next(iter(dist.rendezvous("env://", timeout=timedelta(seconds=PATIENCE))))
        _group = _TorchProcessGroup(store, rank, count, nearby, "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    except RuntimeError as error:
        raise LaraError("processes.no_meeting", count=count, problem=str(error).splitlines()[0]) from error
    atexit.register(_forget)
    if not _group.is_first:
        set_loudness(QUIET)
        warnings.simplefilter("ignore")
    return _group


def _forget() -> None:
    """Close connections before the interpreter shuts down, because they have threads."""
    global _group
    if dist.is_initialized():
        dist.destroy_process_group()
    _group = ALONE
