"""The speed of a method relative to LARA's.

Both are timed alternately, so that the ratio does not depend on the load of the machine. It does not depend on how long
a method was trained either.
"""

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

ROUNDS = 3
ROUND_SECONDS, MAX_ROUND_SECONDS = 1.0, 10.0


def compare_speed(method: Method, lara: LaraMethod) -> dict[str, float]:
    """Measure how many targets a second a method and LARA explain.

    The method explains a random sample of all targets, as large as time allows, and LARA all of them.

    Args:
        method: The method.
        lara: LARA's amortised form. It is timed from scratch, with the pass of g over the full graph, and from stored
            embeddings.

    Returns:
        The method's rate, and LARA's two rates divided by it. A form of LARA also has its rate from stored embeddings.
    """
    count, device = method.game.num_targets, method.game.features.device
    every_target = torch.arange(count, device=device)
    shuffled = every_target[torch.randperm(count, generator=generator(0)).to(device)]
    sample = every_target if isinstance(method, LaraMethod) else shuffled[: _sample_size(method, shuffled)]
    calls = [(method.explain, sample), (lara.explain, every_target), (lara.explain_again, every_target)]
    calls += [(method.explain_again, every_target)] if isinstance(method, LaraMethod) else []
    rounds = [[rate(call, targets, device) for call, targets in calls] for _ in range(ROUNDS)]
    own, scratch, stored, *own_stored = zip(*rounds, strict=True)
    rates = {
        "targets/s": median(own),
        "LARA is x times faster": median(ours / other for ours, other in zip(scratch, own, strict=True)),
        "LARA, stored, is x times faster": median(ours / other for ours, other in zip(stored, own, strict=True)),
    }
    return rates | ({"targets/s, stored": median(own_stored[0])} if own_stored else {})


def _sample_size(method: Method, targets: Tensor) -> int:
    """Increase the sample while it takes less than a second, or while that makes the method a fifth faster.

    Many methods take hardly longer for a hundred targets than for one.
    """
    count, best = 1, 0.0
    while True:
        reached = rate(method.explain, targets[:count], targets.device)
        spent = count / reached
        if count == len(targets) or spent > MAX_ROUND_SECONDS or (spent > ROUND_SECONDS and reached < 1.2 * best):
            return count
        count, best = min(4 * count, len(targets)), max(best, reached)


def rate(call: Callable[[Tensor], Explanations], targets: Tensor, device: torch.device) -> float:
    """Measure the targets a second of one call."""
    start = clock(device)
    call(targets)
    return len(targets) / max(clock(device) - start, 1e-9)
