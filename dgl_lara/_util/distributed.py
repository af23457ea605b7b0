"""Several processes that work as one: which of them this is, sums and joins over all, and an end together.

A process is one of several where torchrun or `dgl-lara train --processes` started it, and it has called `join`. Whoever
asks `here()` gets the others then, and itself alone otherwise; the two answer the same questions, so nobody else needs
to know which of them it is.
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
from dgl_lara.errors import InputError, LaraError

MEETING = "DGL_LARA_MEETING"  # a file through which processes that `--processes` started find each other
PATIENCE = 300.0  # seconds that the first to come waits for the last
BEAT, SILENCE = 2.0, 60.0  # seconds between two signs of life, and without one of them until somebody counts as lost
FOREVER = timedelta(days=1)  # the first process may work alone for long; whether it lives is seen by its signs of life
LOST = "another process of this training has ended, so it was stopped"


class ProcessLost(LaraError):
    """Another process is gone, and nothing can be done together any more."""


class ProcessGroup:
    """A process by itself."""

    rank, count, nearby = 0, 1, 1  # which one, of how many; of them on this machine

    @property
    def is_first(self) -> bool:
        """The one that judges, and that writes files."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """This one's part of so many things."""
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def joined(self, own: Tensor, mine: slice, total: int, dim: int = 0) -> Tensor:
        """All shares side by side, this one's at `mine`. Gradients go back into this one's alone: summed over all
        processes, those of the weights are then as if one had done everything."""
        return own

    def summed(self, numbers: Tensor) -> Tensor:
        """Over all processes, in place."""
        return numbers

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Likewise."""

    def total(self, *numbers: int) -> list[int]:
        """Each summed over all processes."""
        return list(numbers)

    sent = 0  # bytes that went to others

    def exchange(self, parts: list[Tensor]) -> list[Tensor]:
        """To each process one of these, rows of one kind, and from each what it has for this one."""
        return parts

    def of_first(self, part: Tensor) -> Tensor:
        """What the first one has in this place."""
        return part

    def text_of_first(self, text: str) -> str:
        return text

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """What one of them leaves on disk the others find there."""
        yield

    def agree(self, facts: dict[str, object]) -> None:
        """InputError where a process knows otherwise than the first."""

    def may_tell(self) -> bool:
        """Of a failure that all processes meet, one tells."""
        return True

    def leave(self) -> None:
        """When all is done, together."""


class TorchProcessGroup(ProcessGroup):
    """One of several processes."""

    def __init__(self, store: dist.Store, rank: int, count: int, nearby: int, backend: str) -> None:
        self.store, self.rank, self.count, self.nearby = store, rank, count, nearby
        self._meet()
        dist.init_process_group(backend, store=dist.PrefixStore("group", store), rank=rank, world_size=count,
                                timeout=FOREVER)  # fmt: skip
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _meet(self) -> None:
        come, deadline = self.store.add("come", 1), time.monotonic() + PATIENCE
        while come < self.count:
            if time.monotonic() > deadline:
                raise LaraError(f"only {come} of {self.count} processes have come within {PATIENCE:.0f} s.")
            time.sleep(0.02)
            come = self.store.add("come", 0)

    # --- together

    def summed(self, numbers: Tensor) -> Tensor:
        with missing_others():
            dist.all_reduce(numbers)
        self.sent += 2 * numbers.nbytes * (self.count - 1) // self.count  # round a ring, twice
        return numbers

    def joined(self, own: Tensor, mine: slice, total: int, dim: int = 0) -> Tensor:
        shape = list(own.shape)
        shape[dim] = total
        every = own.new_zeros(shape)  # a share and nothing else: a sum is a join that any backend can do
        every.narrow(dim, mine.start, mine.stop - mine.start).copy_(own.detach())
        self.summed(every)
        return torch.cat([every.narrow(dim, 0, mine.start), own, every.narrow(dim, mine.stop, total - mine.stop)], dim)

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        parameters = list(parameters)
        for parameter in parameters:  # nothing came back from an empty share
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        summed = self.summed(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, summed.split([one.numel() for one in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def total(self, *numbers: int) -> list[int]:
        return self.summed(torch.tensor(numbers)).tolist()

    def exchange(self, parts: list[Tensor]) -> list[Tensor]:
        counts = [len(part) for part in parts]
        comes, rows = torch.empty(self.count, dtype=torch.long), torch.cat(parts).contiguous()
        with missing_others():
            dist.all_to_all_single(comes, torch.tensor(counts))
            got = rows.new_empty(int(comes.sum()), *rows.shape[1:])
            dist.all_to_all_single(got, rows, comes.tolist(), counts)
        self.sent += sum(part.nbytes for rank, part in enumerate(parts) if rank != self.rank)
        return list(got.split(comes.tolist()))

    def of_first(self, part: Tensor) -> Tensor:
        return self.summed(part.clone() if self.is_first else torch.zeros_like(part))

    def text_of_first(self, text: str) -> str:
        return self._told({"text": text})[0]["text"]

    def _told(self, mine: dict[str, str]) -> list[dict[str, str]]:
        """What each process says."""
        turn = f"said {self.store.add(f'turns of {self.rank}', 1)}"
        self.store.set(f"{turn} by {self.rank}", json.dumps(mine))
        self.total(0)  # everybody has said it
        return [json.loads(self.store.get(f"{turn} by {rank}")) for rank in range(self.count)]

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        if not self.is_first:
            self.total(0)
        yield
        if self.is_first:
            self.total(0)

    def agree(self, facts: dict[str, object]) -> None:
        first, *others = self._told({name: str(fact) for name, fact in facts.items()})
        for rank, other in enumerate(others, 1):
            for name in first:
                if other[name] != first[name]:
                    raise InputError(
                        f"processes that train together must agree: {name} is {first[name]} in process 0 and "
                        f"{other[name]} in process {rank}."
                    )

    # --- the end

    def may_tell(self) -> bool:
        try:
            return self.store.add("told", 1) == 1
        except RuntimeError:  # nobody is left to ask
            return True

    def leave(self) -> None:
        self.total(0)
        self._over.set()

    def _watch(self) -> None:
        """In a thread of its own: says that this process lives, and looks after the others. One that dies is missed as
        soon as something is done together; this is for a machine that vanishes, and for whoever started us."""
        started_by, beats, orphaned = os.getppid(), [0] * self.count, False
        heard = [time.monotonic()] * self.count
        while not self._over.wait(BEAT):
            if os.getppid() != started_by and not orphaned:
                orphaned = True
                os.kill(os.getpid(), signal.SIGTERM)
            try:
                self.store.add(f"beats of {self.rank}", 1)
                now = [self.store.add(f"beats of {rank}", 0) for rank in range(self.count)]
            except RuntimeError:
                now = beats
            for rank, (before, beat) in enumerate(zip(beats, now, strict=True)):
                heard[rank] = heard[rank] if beat == before else time.monotonic()
            beats = now
            if time.monotonic() - min(heard) > SILENCE and not self._over.is_set():
                os.write(2, f"Error: process {heard.index(min(heard))} has not been heard of for {SILENCE:.0f} s; "
                            "go on from the last checkpoint with --resume.\n".encode())  # fmt: skip
                os._exit(LaraError.exit_code)  # the main thread waits for somebody who is not there


@contextmanager
def missing_others() -> Iterator[None]:
    """What is done together fails where somebody is gone."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(f"{LOST}.") from error


ALONE = ProcessGroup()
_here: ProcessGroup = ALONE


def get_process_group() -> ProcessGroup:
    """The processes that this one works with."""
    return _here


def is_one_of_several() -> bool:
    """By whoever started this process."""
    return MEETING in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def join(device: str = "cpu") -> ProcessGroup:
    """Meet the others, where there are any. All but the first are silent from then on, but for errors."""
    global _here
    if not is_one_of_several() or _here is not ALONE:
        return _here
    rank, count, nearby = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if count == 1:
        return _here
    try:
        if MEETING in os.environ:
            store: dist.Store = dist.FileStore(os.environ[MEETING], count)
        else:
            store, rank, count = next(iter(dist.rendezvous("env://", timeout=timedelta(seconds=PATIENCE))))
        _here = TorchProcessGroup(store, rank, count, nearby, "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    except RuntimeError as error:
        raise LaraError(f"the {count} processes did not find each other ({str(error).splitlines()[0]}).") from error
    atexit.register(_forget)
    if not _here.is_first:
        set_loudness(QUIET)
        warnings.simplefilter("ignore")
    return _here


def _forget() -> None:
    """Connections are closed in order, so that Python's end does not meet their threads."""
    global _here
    if dist.is_initialized():
        dist.destroy_process_group()
    _here = ALONE
