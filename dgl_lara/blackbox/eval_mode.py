"""Eval mode for the time of a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import nn


@dataclass
class _Loan:
    """The mode that a module returns to, and the number of blocks in all threads that use it."""

    mode: bool
    users: int = 0


_loans: WeakKeyDictionary[nn.Module, _Loan] = WeakKeyDictionary()
_lock = threading.Lock()


@contextmanager
def eval_mode(model: object) -> Iterator[None]:
    """Run the block in eval mode and without gradients, then restore the mode of every submodule.

    Several threads may share a model: the first one notes the mode, the last one restores it.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    with _lock:
        for module in modules:
            loan = _loans.setdefault(module, _Loan(module.training))
            loan.users += 1
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with _lock:
            for module in modules:
                loan = _loans[module]
                loan.users -= 1
                if not loan.users:
                    module.training = loan.mode
                    del _loans[module]
