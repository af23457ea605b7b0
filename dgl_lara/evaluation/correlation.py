"""Appendix, Figure 2: does an attribution of random node sets J say how large the fidelity of J will be?"""

from __future__ import annotations

import pandas as pd
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.mi_value import mi_value
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

FEWEST_PLAYERS = 3
MOST_MEMBERS = 32  # of J whose single removals are averaged; a larger J is judged by so many, drawn at random
ATTRIBUTIONS = ("MI value", "removal, one node at a time", "phi, Eq. 5")


def random_sets(game: Game, targets: Tensor, pairs: int, seed: int, keep_target: bool = False) -> pd.DataFrame:
    """One random J for each target: three attributions of J, and its Fidelity+.

    The MI value alpha of J and the attribution by single nodes, E_j [f({j}) - f(N without j)], as in the appendix;
    and the mean over J of phi as Eq. 5 defines it, from `pairs` coalition pairs. With `keep_target` the target is
    in no J and never removed.
    """
    targets = targets[game.players(targets).counts >= FEWEST_PLAYERS]
    players, classes = game.players(targets), game.explained_class[targets]
    drawn = generator(seed)
    order = torch.rand(len(players.player), generator=drawn).to(targets.device)
    own = Explanations(players, order, classes, game.task, "random").is_target
    always = own if keep_target else torch.zeros_like(own)
    # uniform over sets; the player drawn first is in, so that no J is empty
    first = Explanations(players, order.masked_fill(always, -torch.inf), classes, game.task, "random").rank() == 0
    inside = (torch.rand(len(order), generator=drawn).to(targets.device) < 0.5) & ~always | first
    size = _sums(inside.float(), players.row, len(targets))

    place = Explanations(players, order.masked_fill(~inside, -torch.inf), classes, game.task, "random").rank()
    singles = torch.stack([(place == member) & inside for member in range(min(MOST_MEMBERS, int(size.max())))])
    alone, without = (game.coalitions(players, keep | always, classes) for keep in (singles, ~singles))
    counted = torch.arange(len(singles), device=size.device).unsqueeze(1) < size  # (members, num_targets)
    by_one = ((alone - without) * counted).sum(0) / counted.sum(0)

    only = inside.unsqueeze(0)
    phi = least_squares(game, players, pairs, drawn).phi
    removed, kept = (game.coalitions(players, keep | always, classes)[0] for keep in (~only, only))
    full = game.full[targets, classes]
    columns = {
        "target": targets,
        "players": players.counts,
        "size of J": size,
        "holds target": _sums((inside & own).float(), players.row, len(targets)) > 0,
        "MI value": mi_value(game.logits[targets], _logits(game, players, only | always)),
        "removal, one node at a time": by_one,
        "phi, Eq. 5": _sums(phi * inside, players.row, len(targets)) / size,
        "fidelity+": full - removed,
        "delta fidelity": kept - removed,
    }
    return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})


def _sums(values: Tensor, row: Tensor, count: int) -> Tensor:
    return values.new_zeros(count).index_add(0, row, values)


def _logits(game: Game, players: Players, keep: Tensor) -> Tensor:
    """(num_targets, num_classes) under one coalition, whatever value the game explains."""
    plain = Game(
        game.f, game.graph, game.features, game.task, game.hops, "logit", game.answer, memory=game.budget.memory
    )
    each = [torch.full_like(players.targets, c) for c in range(game.num_classes)]
    return torch.stack([plain.coalitions(players, keep, classes)[0] for classes in each], dim=1)


def correlations(sets: pd.DataFrame) -> pd.DataFrame:
    """A row an attribution: its correlation with Fidelity+ over the sets."""
    rows = []
    for name in ATTRIBUTIONS:
        x, y = sets[name], sets["fidelity+"]
        rows.append({"attribution": name, "pearson": pearsonr(x, y).statistic, "spearman": spearmanr(x, y).statistic})
    return pd.DataFrame(rows)
