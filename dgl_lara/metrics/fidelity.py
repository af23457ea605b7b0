"""Eq. 1-3: Fidelity+, Fidelity- and their difference, against sparsity.

Twice: as the paper defines them (the target itself is a player and may be removed) and with the target kept (players
are the neighbours only). The first is dominated by whether the target is removed; the second tells methods apart.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game

SPARSITIES = (0.3, 0.4, 0.5, 0.6, 0.7)


def fidelity_per_target(
    game: Game, explanations: Explanations, sparsities: tuple[float, ...] = SPARSITIES, keep_target: bool = False
) -> tuple[Tensor, Tensor]:
    """Eq. 1, 2: Fidelity+ and Fidelity-, (num_sparsities, num_targets) each; NaN where a kept target is alone."""
    players = explanations.players
    include = not keep_target or game.task == "graph"
    important = torch.stack([explanations.important(sparsity, include) for sparsity in sparsities])
    always = explanations.is_target if keep_target else torch.zeros_like(important[0])
    full = game.full[players.targets, explanations.explained_class]
    without = game.coalitions(players, ~important | always, explanations.explained_class)
    only = game.coalitions(players, important | always, explanations.explained_class)
    nobody = (players.counts < 2) & ~torch.tensor(include, device=players.counts.device)
    plus, minus = full - without, full - only
    return plus.masked_fill(nobody, torch.nan), minus.masked_fill(nobody, torch.nan)


def standard_error(values: Tensor) -> float:
    """Of the mean; unknown (NaN) from fewer than two targets."""
    return (values.std() / len(values) ** 0.5).item() if len(values) > 1 else float("nan")


def fidelity(game: Game, explanations: Explanations, sparsities: tuple[float, ...] = SPARSITIES) -> pd.DataFrame:
    """Mean and standard error over targets, a row for each definition and sparsity and one for their average."""
    rows = []
    for definition in ("paper", "kept") if game.task == "node" else ("paper",):
        plus, minus = fidelity_per_target(game, explanations, sparsities, keep_target=definition == "kept")
        seen = ~plus[0].isnan()
        plus, minus = plus[:, seen].double(), minus[:, seen].double()
        for name, p, m in [
            *((f"{sparsity:.1f}", plus[i], minus[i]) for i, sparsity in enumerate(sparsities)),
            ("average", plus.mean(0), minus.mean(0)),
        ]:
            row: dict[str, object] = {"definition": definition, "sparsity": name, "targets": int(seen.sum())}
            for label, values in (("fidelity+", p), ("fidelity-", m), ("delta", p - m)):
                row[label] = values.mean().item()
                row[f"{label} error"] = standard_error(values)
            rows.append(row)
    return pd.DataFrame(rows)
