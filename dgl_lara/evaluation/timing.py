"""The speed of a method beside LARA's: in turns, so that the ratio of the two does not depend on what else the machine
was doing; how long a method has learned makes no difference to it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara._util.timing import clock
from dgl_lara.baselines.common.method import Method
from dgl_lara.evaluation.lara_method import LaraMethod
from dgl_lara.explanation import Explanations

ROUNDS, SECONDS_A_ROUND, LONGEST_ROUND = 3, 1.0, 10.0


def in_turns(method: Method, lara: LaraMethod) -> dict[str, float]:
    """Targets a second, of everything that can be explained: this method on a draw as large as time allows, LARA on all
    of it, in turns; LARA from scratch, with the pass of g over everything, and from stored embeddings. Both ratios are
    `lara`'s rate by this method's, of a form of LARA too; its own rate from stored embeddings has a name of its own."""
    count, device = method.game.num_targets, method.game.features.device
    everyone = torch.arange(count, device=device)
    drawn = everyone[torch.randperm(count, generator=generator(0)).to(device)]
    some = everyone if isinstance(method, LaraMethod) else drawn[: affordable(method, drawn)]
    calls = [(method.explain, some), (lara.explain, everyone), (lara.explain_again, everyone)]
    calls += [(method.explain_again, everyone)] if isinstance(method, LaraMethod) else []
    rounds = [[rate(call, targets, device) for call, targets in calls] for _ in range(ROUNDS)]
    theirs, scratch, stored, *own_stored = zip(*rounds, strict=True)
    figures = {
        "targets/s": median(theirs),
        "LARA is x times faster": median(ours / rate for ours, rate in zip(scratch, theirs, strict=True)),
        "LARA, stored, is x times faster": median(ours / rate for ours, rate in zip(stored, theirs, strict=True)),
    }
    return figures | ({"targets/s, stored": median(own_stored[0])} if own_stored else {})


def affordable(method: Method, targets: Tensor) -> int:
    """How many of the targets to explain in one round: more and more, while that takes less than a second or makes the
    method a fifth faster (many take hardly longer for a hundred targets than for one), but not for minutes."""
    count, best = 1, 0.0
    while True:
        reached = rate(method.explain, targets[:count], targets.device)
        spent = count / reached
        if count == len(targets) or spent > LONGEST_ROUND or (spent > SECONDS_A_ROUND and reached < 1.2 * best):
            return count
        count, best = min(4 * count, len(targets)), max(best, reached)


def rate(call: Callable[[Tensor], Explanations], targets: Tensor, device: torch.device) -> float:
    start = clock(device)
    call(targets)
    return len(targets) / max(clock(device) - start, 1e-9)
