"""Rows of an export: players and scores, with the trust in each explanation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from torch import Tensor

from dgl_lara.explanation import Explanations, pairs_frame, to_user_ids
from dgl_lara.inference.request import RefineCost, RefineOptions, refine_as_requested
from dgl_lara.inference.scorer import Scorer, TopPlayers
from dgl_lara.inference.verification import verify

MakeRows = Callable[[Scorer, Tensor, int | None], pd.DataFrame]


def amortised_rows(scorer: Scorer, targets: Tensor, top: int | None) -> pd.DataFrame:
    """Return the rows of amortised explanations. `top` players are kept of each target (None means all)."""
    if top is None:
        return scorer.explain(targets).to_frame()
    best = scorer.top(targets, min(top, scorer.game.max_players(targets)))
    return to_user_ids(top_frame(best), scorer.game)


def refined_rows(
    explain: Callable[[Tensor], Explanations], options: RefineOptions, stretch: float, seed: int, cost: RefineCost
) -> MakeRows:
    """Return a function for the rows of refined explanations, with trust and with what refining changed.

    Args:
        explain: Explains some targets.
        options: Model calls to spend on each.
        stretch: Factor of the expected errors, see `ErrorModel`.
        seed: Seed of the coalitions.
        cost: Grows by what is spent.
    """

    def rows(scorer: Scorer, targets: Tensor, top: int | None) -> pd.DataFrame:
        explanations, more, spent = refine_as_requested(scorer.game, explain(targets), options, stretch, seed)
        cost.num_doubtful += spent.num_doubtful
        cost.num_pairs += spent.num_pairs
        cost.num_still_doubtful += spent.num_still_doubtful
        frame = explanations.to_frame()
        row = explanations.players.row.cpu().numpy()
        if top is not None:
            order = np.lexsort((frame["rank"], row))  # best first, as in `Scorer.top`
            order = order[frame["rank"].to_numpy()[order] <= top]
            frame, row = frame.iloc[order].reset_index(drop=True), row[order]
        for name, column in explanations.trust().items():
            frame[name] = column[row]
        for name, values in more.items():
            frame[name] = values.cpu().numpy()[row]
        if options.verify:
            verdict = verify(scorer.game, explanations, seed=seed).drop(columns="target")
            frame[verdict.columns] = verdict.iloc[row].to_numpy()
            frame = frame.astype(verdict.dtypes)
        return frame

    return rows


def top_frame(best: TopPlayers) -> pd.DataFrame:
    """Return one row for each kept (target, player) pair, best first."""
    real = best.player >= 0
    row, rank = np.nonzero(real)
    return pairs_frame(
        target=best.targets[row],
        player=best.player[real],
        hop=best.hop[real],
        score=best.score[real],
        rank=rank + 1,
        explained_class=best.explained_class[row],
        kind=best.player_type,
    ).assign(**{name: values[real] for name, values in best.endpoints.items()})
