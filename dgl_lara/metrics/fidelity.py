"""Eq. 1-3: Fidelity+, Fidelity- and their difference, against sparsity.

There are two definitions. "paper": the target itself is a player and may be removed. "kept": the target stays and the
players are the neighbours. The first depends mostly on whether the target is removed, the second separates methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.metrics.common.metric import EvalCase, Metric, Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPARSITIES = (0.3, 0.4, 0.5, 0.6, 0.7)
AVERAGE = "average"  # over the sparsities
DEFINITIONS = ("paper", "kept")
MEASURES = {"F+": ("fidelity+", 1), "F-": ("fidelity-", -1), "Delta": ("delta", 1)}  # short: (long, good direction)


def fidelity_column(short: str, definition: str, sparsity: float | str = AVERAGE) -> str:
    """Return the name of a column in a benchmark, such as 'F+ kept, 0.5'."""
    return f"{short} {definition}, {sparsity if isinstance(sparsity, str) else f'{sparsity:.1f}'}"


class Fidelity(Metric):
    columns = {
        fidelity_column(short, definition): sign
        for definition in ("paper", "kept")
        for short, (_, sign) in MEASURES.items()
    }

    def notes(self, table: pd.DataFrame) -> dict[str, dict[str, Any]]:
        return {"fidelity.note_kept" if (table["definition"] == "kept").any() else "fidelity.note": {}}

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        return fidelity(case.game, explanations)

    def values(self, table: pd.DataFrame) -> dict[str, float]:
        """Select the averages, and each measure at each sparsity."""
        return {
            fidelity_column(short, row["definition"], row["sparsity"]): row[long]
            for _, row in table.iterrows()
            for short, (long, _) in MEASURES.items()
        }

    def summary(self, table: pd.DataFrame) -> Rows:
        rows = [
            [
                row["definition"],
                row["method"],
                *(format_with_error(row, long, "7.3f", ".3f") for long, _ in MEASURES.values()),
            ]
            for _, row in table[table["sparsity"] == AVERAGE].iterrows()
        ]
        header = ["definition", "method", "fidelity+ (high)", "fidelity- (low)", "delta (high)"]
        return header, sorted(rows, key=lambda row: row[0] != "paper")

    def plot(self, table: pd.DataFrame, title: str) -> Figure:
        from dgl_lara.explanation.plot.training_curves import fidelity_figure

        return fidelity_figure(table, title)


def format_with_error(row: pd.Series, measure: str, form: str = ".2f", error_form: str = ".2f") -> str:
    """Format a measure and its error, such as '0.51 ± 0.02'."""
    return f"{row[measure]:{form}} ± {row[f'{measure} error']:{error_form}}"


def fidelity_per_target(
    game: Game, explanations: Explanations, sparsities: tuple[float, ...] = SPARSITIES, keep_target: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute Fidelity+ and Fidelity- (Eq. 1, 2) for each target.

    Args:
        game: The explained game.
        explanations: Scores that rank the players.
        sparsities: Shares of the players that are unimportant.
        keep_target: Use the definition "kept".

    Returns:
        (num_sparsities, num_targets) each, NaN for a target without players to remove.
    """
    players = explanations.players
    removes_target = not keep_target or not explanations.includes_target
    important = torch.stack([explanations.important(sparsity, removes_target) for sparsity in sparsities])
    always = explanations.is_target if keep_target else torch.zeros_like(important[0])
    full = game.full_value_of(players.targets, explanations.query)
    without = game.values_per_target(players, ~important | always, explanations.query)
    only = game.values_per_target(players, important | always, explanations.query)
    no_players = players.counts < (1 if removes_target else 2)
    plus, minus = full - without, full - only
    return plus.masked_fill(no_players, torch.nan), minus.masked_fill(no_players, torch.nan)


def standard_error(values: Tensor) -> float:
    """Compute the standard error of the mean, or NaN for fewer than two targets."""
    return (values.std() / len(values) ** 0.5).item() if len(values) > 1 else float("nan")


def fidelity(game: Game, explanations: Explanations, sparsities: tuple[float, ...] = SPARSITIES) -> pd.DataFrame:
    """Compute the mean and standard error of fidelity over targets.

    Args:
        game: The explained game.
        explanations: Scores that rank the players.
        sparsities: Shares of the players that are unimportant.

    Returns:
        A row for each definition and sparsity, and one for the average over sparsities.
    """
    rows = []
    for definition in DEFINITIONS if explanations.includes_target else DEFINITIONS[:1]:
        plus, minus = fidelity_per_target(game, explanations, sparsities, keep_target=definition == "kept")
        valid = ~plus[0].isnan()
        plus, minus = plus[:, valid].double(), minus[:, valid].double()
        for name, p, m in [
            *((f"{sparsity:.1f}", plus[i], minus[i]) for i, sparsity in enumerate(sparsities)),
            (AVERAGE, plus.mean(0), minus.mean(0)),
        ]:
            row: dict[str, object] = {"definition": definition, "sparsity": name, "targets": int(valid.sum())}
            for label, values in (("fidelity+", p), ("fidelity-", m), ("delta", p - m)):
                row[label] = values.mean().item()
                row[f"{label} error"] = standard_error(values)
            rows.append(row)
    return pd.DataFrame(rows)


METRIC = Fidelity()
