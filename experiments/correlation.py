"""Appendix, Figure 2: how well attributions of random node sets J predict the fidelity of J."""

import pandas as pd
import torch
from scipy.stats import pearsonr, spearmanr

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.mi_value import mi_value
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.explanation import Explanations

MIN_PLAYERS = 3
MAX_MEMBERS = 32  # of J whose single removals are averaged; of a larger J, that many drawn at random
ATTRIBUTIONS = ("MI value", "removal, one node at a time", "phi, Eq. 5")


def random_sets(game, targets, pairs, seed, keep_target=False):
    """Draw one random set J for each target. Return three attributions of J and its Fidelity+, a row per target.

    The MI value of J and the attribution by single nodes, E_j [f({j}) - f(N without j)], are those of the appendix. The
    third is the mean over J of phi (Eq. 5), estimated from `pairs` coalition pairs. With `keep_target` the target is
    in no J and is never removed.
    """
    targets = targets[game.players(targets).counts >= MIN_PLAYERS]
    players, classes = game.players(targets), game.explained_class[targets]
    drawn = generator(seed)
    order = torch.rand(len(players.player), generator=drawn).to(targets.device)
    own = Explanations(players, order, classes, game.task, "random").is_target
    always = own if keep_target else torch.zeros_like(own)
    # uniform over sets; the player drawn first is in, so that no J is empty
    first = Explanations(players, order.masked_fill(always, -torch.inf), classes, game.task, "random").rank() == 0
    inside = (torch.rand(len(order), generator=drawn).to(targets.device) < 0.5) & ~always | first
    size = _sums(inside.float(), players)

    rank = Explanations(players, order.masked_fill(~inside, -torch.inf), classes, game.task, "random").rank()
    singles = torch.stack([(rank == member) & inside for member in range(min(MAX_MEMBERS, int(size.max())))])
    alone, without = (game.values_per_target(players, keep | always) for keep in (singles, ~singles))
    counted = torch.arange(len(singles), device=size.device).unsqueeze(1) < size  # (members, num_targets)
    by_one = ((alone - without) * counted).sum(0) / counted.sum(0)

    only = inside.unsqueeze(0)
    phi = least_squares(game, players, pairs, drawn).phi
    removed, kept = (game.values_per_target(players, keep | always)[0] for keep in (~only, only))
    full = game.full_value_of(targets, game.query(targets))
    columns = {
        "target": targets,
        "players": players.counts,
        "size of J": size,
        "holds target": _sums((inside & own).float(), players) > 0,
        "MI value": mi_value(game.full_logits[targets], game.logits_per_target(players, only | always)[0]),
        "removal, one node at a time": by_one,
        "phi, Eq. 5": _sums(phi * inside, players) / size,
        "fidelity+": full - removed,
        "delta fidelity": kept - removed,
    }
    return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})


def _sums(values, players):
    return values.new_zeros(len(players.targets)).index_add(0, players.row, values)


def correlations(sets):
    """Return a row per attribution: its correlation with Fidelity+ over the sets."""
    rows = []
    for name in ATTRIBUTIONS:
        x, y = sets[name], sets["fidelity+"]
        rows.append({"attribution": name, "pearson": pearsonr(x, y).statistic, "spearman": spearmanr(x, y).statistic})
    return pd.DataFrame(rows)
