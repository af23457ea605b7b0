"""A model is borrowed: what it is called under is set before and put back after."""

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
    """How many have borrowed a module, in whatever thread, and the mode it goes back to."""

    mode: bool
    borrowers: int = 0


_loans: WeakKeyDictionary[nn.Module, _Loan] = WeakKeyDictionary()
_lock = threading.Lock()


@contextmanager
def eval_mode(model: object) -> Iterator[None]:
    """Eval mode and no gradients inside; both as before afterwards, whatever happens.

    The first who borrows a module notes its mode and the last who gives it back restores it, so that several threads
    can ask one model.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    with _lock:
        for module in modules:
            loan = _loans.setdefault(module, _Loan(module.training))
            loan.borrowers += 1
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with _lock:
            for module in modules:
                loan = _loans[module]
                loan.borrowers -= 1
                if not loan.borrowers:
                    module.training = loan.mode
                    del _loans[module]
