"""Eq. 1-3: Fidelity+, Fidelity- and their difference, against sparsity.

Twice: as the paper defines them (the target itself is a player and may be removed) and with the target kept (players
are the neighbours only). The first is dominated by whether the target is removed; the second tells methods apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.explanation.score_table import ScoreTable
from dgl_lara.game.game import Game
from dgl_lara.metrics.common.metric import EvalCase, Metric, Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPARSITIES = (0.3, 0.4, 0.5, 0.6, 0.7)


DEFINITIONS = ("paper", "kept")
MEASURES = {"F+": ("fidelity+", 1), "F-": ("fidelity-", -1), "Delta": ("delta", 1)}  # short: (long, good direction)


def fidelity_column(short: str, definition: str, sparsity: float | str = "average") -> str:
    """How a comparison calls it: 'F+ kept, 0.5'."""
    where = sparsity if isinstance(sparsity, str) else f"{sparsity:.1f}"
    return f"{short} {definition}, {where}"


class Fidelity(Metric):
    columns = {
        fidelity_column(short, definition): sign
        for definition in ("paper", "kept")
        for short, (_, sign) in MEASURES.items()
    }

    def note(self, table: pd.DataFrame) -> str:
        kept = "; 'kept': the target itself stays" * bool((table["definition"] == "kept").any())
        return f"average over sparsity 0.3 ... 0.7, ± standard error over targets{kept}"

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        return fidelity(case.game, explanations)

    def figures(self, table: pd.DataFrame) -> dict[str, float]:
        """Averages, and each measure at each sparsity."""
        return {
            fidelity_column(short, row["definition"], row["sparsity"]): row[long]
            for _, row in table.iterrows()
            for short, (long, _) in MEASURES.items()
        }

    def shown(self, table: pd.DataFrame) -> Rows:
        rows = [
            [
                row["definition"],
                row["method"],
                *(format_with_error(row, long, "7.3f", ".3f") for long, _ in MEASURES.values()),
            ]
            for _, row in table[table["sparsity"] == "average"].iterrows()
        ]
        header = ["definition", "method", "fidelity+ (high)", "fidelity- (low)", "delta (high)"]
        return header, sorted(rows, key=lambda row: row[0] != "paper")

    def figure(self, table: pd.DataFrame, title: str) -> Figure:
        from dgl_lara.explanation.plot.training_curves import fidelity_figure

        return fidelity_figure(table, title)


def format_with_error(row: pd.Series, measure: str, form: str = ".2f", error_form: str = ".2f") -> str:
    return f"{row[measure]:{form}} ± {row[f'{measure} error']:{error_form}}"


def fidelity_per_target(
    game: Game, explanations: ScoreTable, sparsities: tuple[float, ...] = SPARSITIES, keep_target: bool = False
) -> tuple[Tensor, Tensor]:
    """Eq. 1, 2: Fidelity+ and Fidelity-, (num_sparsities, num_targets) each; NaN where a kept target is alone."""
    players = explanations.players
    include = not keep_target or not explanations.includes_target
    important = torch.stack([explanations.important(sparsity, include) for sparsity in sparsities])
    always = explanations.is_target if keep_target else torch.zeros_like(important[0])
    full = game.full_value_of(players.targets, explanations.query)
    without = game.values_per_target(players, ~important | always, explanations.query)
    only = game.values_per_target(players, important | always, explanations.query)
    nobody = players.counts < (1 if include else 2)
    plus, minus = full - without, full - only
    return plus.masked_fill(nobody, torch.nan), minus.masked_fill(nobody, torch.nan)


def standard_error(values: Tensor) -> float:
    """Of the mean; unknown (NaN) from fewer than two targets."""
    return (values.std() / len(values) ** 0.5).item() if len(values) > 1 else float("nan")


def fidelity(game: Game, explanations: Explanations, sparsities: tuple[float, ...] = SPARSITIES) -> pd.DataFrame:
    """Mean and standard error over targets, a row for each definition and sparsity and one for their average."""
    rows = []
    for definition in DEFINITIONS if explanations.includes_target else DEFINITIONS[:1]:
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


METRIC = Fidelity()
