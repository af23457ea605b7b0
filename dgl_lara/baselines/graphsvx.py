"""`graphsvx`: GraphSVX (Duval & Malliaros, ECML 2021), Shapley values of the nodes by kernel SHAP.

For each target: draw coalitions, evaluate f on them, and fit f(S) by a linear function of membership, weighted with
the Shapley kernel (n - 1) / (C(n, s) s (n - s)), whose solution is the Shapley value when every coalition is used.

`sampling` says how the coalitions are drawn:
- "uniform": each player with probability one half, as LARA's authors ran it. A uniform draw with kernel weights is
  unbiased in the limit, but where there are many players almost all the weight falls on the few draws whose size is
  farthest from n/2.
- "smarter": the default of GraphSVX's own code: all coalitions of one player and of all but one, then random ones of
  2 (3) players and their complements, as long as nine tenths of the budget last, the rest uniform.
Where the budget allows all 2^n coalitions they are all used.

Deviations from GraphSVX's code: nodes only, no features (as in LARA's paper); a removed node is removed as everywhere
in this package; the full and the empty coalition are met exactly, where the original gives them the weight 1,000;
where the fit is underdetermined the shortest solution is taken, where the original adds noise to the matrix.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import all_coalitions
from dgl_lara.baselines.common.egos import batches
from dgl_lara.baselines.common.method import BenchmarkSetting, Method
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

QUICK_SAMPLES = 200
MASK_ENTRIES = 50_000_000  # bytes of coalitions held at once
LARGEST_FAVOURED = 3  # "smarter": the size up to which small coalitions come first; S in GraphSVX's code
SAMPLINGS = ("uniform", "smarter")


class GraphSVX(Method):
    """`target_plays`: the target is a player like any other, as everywhere in this package. If not, it is always
    present (GraphSVX's own choice), and its score is what it gives alone, so that scores still add up to f - null."""

    name = "graphsvx"
    style = ("#E69F00", "-")
    quick_words = f"GraphSVX draws {QUICK_SAMPLES} of 800 samples on large graphs"

    def __init__(
        self, game: Game, seed: int = 0, samples: int = 800, sampling: str = "uniform", target_plays: bool = True
    ) -> None:
        super().__init__(game, seed)
        if sampling not in SAMPLINGS:
            raise InputError(f"sampling must be one of {', '.join(SAMPLINGS)} (got '{sampling}').")
        if samples < 4:
            raise InputError(f"samples must be at least 4 (got {samples}).")
        self.samples, self.sampling = samples, sampling
        self.target_plays = target_plays or not game.task.has_distances

    @classmethod
    def for_comparison(cls, game: Game, seed: int, where: BenchmarkSetting) -> GraphSVX:
        return cls(game, seed, samples=QUICK_SAMPLES) if where.quick and where.large else cls(game, seed)

    @property
    def label(self) -> str:
        return f"graphsvx {self.samples}" + (" smarter" if self.sampling == "smarter" else "")

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        parts = list(batches(players, MASK_ENTRIES // self.samples))
        scores = [self._explain(part) for part in Progress(parts, self.name)]
        return self.result(players, torch.cat([*scores, torch.empty(0, device=targets.device)]))

    def _explain(self, players: Players) -> Tensor:
        """One evaluation for the coalitions of all these targets; each has its own generator and its own fit."""
        device = players.player.device
        is_fixed = torch.zeros_like(players.player, dtype=torch.bool) if self.target_plays else players.hop == 0
        rows = players.slices
        keep = torch.ones(self.samples, len(players.player), dtype=torch.bool, device=device)
        drawn = []  # how many rows of `keep` are this target's coalitions; the first are the empty and the full one
        for target, pairs in zip(players.targets.tolist(), rows, strict=True):
            free = (~is_fixed[pairs]).nonzero().flatten() + pairs.start
            masks = coalitions(len(free), self.samples, self.sampling, generator(self.seed * 1_000_003 + target))
            keep[: len(masks), free] = masks.to(device)
            drawn.append(len(masks))
        values = self.game.values_per_target(players, keep[: max(drawn)])  # (coalitions, num_targets)
        scores = torch.empty(len(players.player), device=device)
        for row, pairs in enumerate(rows):
            free = ~is_fixed[pairs]
            mine, count = scores[pairs], drawn[row]
            mine[free] = shapley(keep[:count, pairs][:, free], values[:count, row])
            alone = values[0, row] - self.game.null_values[self.game.explained_class[players.targets[row]]]
            mine[~free] = alone
        return scores


def coalitions(players: int, samples: int, sampling: str, random: torch.Generator) -> Tensor:
    """(at most samples, players) bool. The empty and the full coalition come first, and never again."""
    if 2**players <= samples:
        everything = all_coalitions(players)
        return torch.cat([everything[:1], everything[-1:], everything[1:-1]])
    ends = torch.tensor([[False], [True]]).expand(2, players)
    left = samples - 2
    small = _small_and_large(players, left, random) if sampling == "smarter" else ends[:0]
    return torch.cat([ends, small, torch.rand(left - len(small), players, generator=random) < 0.5])


def _small_and_large(players: int, budget: int, random: torch.Generator) -> Tensor:
    """Coalitions of 1, 2, 3 players in random order, each with its complement."""
    small: list[Tensor] = []
    left = budget
    for size in range(1, min(LARGEST_FAVOURED, players // 2) + 1):
        if size == 2:
            left = 9 * left // 10
        members = torch.combinations(torch.arange(players), size)
        members = members[torch.randperm(len(members), generator=random)[: left // 2]]
        masks = torch.zeros(len(members), players, dtype=torch.bool).scatter_(1, members, True)
        small += [masks, ~masks]
        left -= 2 * len(members)
        if left < 2 or len(members) < math.comb(players, size):
            break
    return torch.cat(small)


def log_kernel(players: int, sizes: Tensor) -> Tensor:
    """log of (n - 1) / (C(n, s) s (n - s)), -inf at s = 0 and s = n: the ends are constraints, not samples."""
    n, s = torch.tensor(float(players), dtype=torch.double), sizes.double()
    log_binomial = torch.lgamma(n + 1) - torch.lgamma(s + 1) - torch.lgamma(n - s + 1)
    inner = torch.log(n - 1) - log_binomial - torch.log(s) - torch.log(n - s)
    return torch.where((sizes == 0) | (sizes == players), -torch.inf, inner)


def shapley(keep: Tensor, values: Tensor) -> Tensor:
    """(players,) the weighted least-squares fit; the first two rows are the empty and the full coalition.

    The scores add up to f(all) - f(none): every player starts from an equal share, and what is fitted are the
    departures from it, which add up to zero because the rows of the centred memberships do.
    """
    players = keep.shape[1]
    if players < 2:
        return (values[1] - values[0]).expand(players)
    membership, values = keep.double(), values.double()
    sizes = keep.sum(1)
    share = (values[1] - values[0]) / players
    rest = values - values[0] - sizes * share
    log_weight = log_kernel(players, sizes.cpu()).to(values.device)
    root = ((log_weight - log_weight.max().clamp(min=-1e6)) / 2).exp().unsqueeze(1)
    centred = root * (membership - membership.mean(1, keepdim=True))
    return (share + shortest_solution(centred, root.squeeze(1) * rest)).float()


def shortest_solution(x: Tensor, y: Tensor) -> Tensor:
    """Of least squares, from the smaller of the two Gram matrices: several times faster than from x itself."""
    if len(x) < x.shape[1]:
        return x.T @ (torch.linalg.pinv(x @ x.T, rtol=1e-12, hermitian=True) @ y)
    return torch.linalg.pinv(x.T @ x, rtol=1e-12, hermitian=True) @ (x.T @ y)


METHOD = GraphSVX
