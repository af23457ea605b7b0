"""`graphsvx`: GraphSVX (Duval & Malliaros, ECML 2021), Shapley values of the nodes by kernel SHAP.

For each target it draws coalitions, evaluates f, and fits f(S) by a linear function of membership, weighted with the
Shapley kernel (n - 1) / (C(n, s) s (n - s)). If every coalition is used, the solution is the Shapley value.

`sampling` is how coalitions are drawn:
- "uniform": each player with probability one half, as LARA's authors ran it. With kernel weights it is unbiased in the
  limit, but for many players almost all weight is on the few coalitions whose size is farthest from n/2.
- "smarter": the default of GraphSVX's own code. First all coalitions of one player and of all but one, then random ones
  of 2 (3) players and their complements, up to nine tenths of the budget, then uniform ones.
If the budget allows all 2^n coalitions, they are all used.

Deviations from GraphSVX's code:
D1. Only nodes are players, no features (as in LARA's paper), and a removed node is removed as in this package.
D2. The full and the empty coalition are constraints. The original gives them the weight 1,000.
D3. An underdetermined fit takes the minimum-norm solution. The original adds noise to the matrix.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import all_coalitions
from dgl_lara.baselines.common.ego_graphs import batches
from dgl_lara.baselines.common.method import BenchmarkSetting, Method
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

QUICK_SAMPLES = 200
MASK_BYTES = 50_000_000  # of coalitions held at once
MAX_SMALL_SIZE = 3  # "smarter": the size up to which small coalitions come first, S in GraphSVX's code
SAMPLINGS = ("uniform", "smarter")


class GraphSVX(Method):
    """Shapley values of nodes by kernel SHAP.

    Args:
        game: The explained game.
        seed: Seed of the coalitions.
        samples: Coalitions a target.
        sampling: "uniform" or "smarter".
        target_plays: The target is a player, as in this package. If not, it is always present (as in GraphSVX) and its
            score is the value that it has alone, so that scores still add up to f - null.
    """

    name = "graphsvx"
    style = ("#E69F00", "-")
    quick_note = f"GraphSVX draws {QUICK_SAMPLES} of 800 samples on large graphs"

    def __init__(
        self, game: Game, seed: int = 0, samples: int = 800, sampling: str = "uniform", target_plays: bool = True
    ) -> None:
        super().__init__(game, seed)
        if sampling not in SAMPLINGS:
            raise InputError("graphsvx.sampling", known=", ".join(SAMPLINGS), got=sampling)
        if samples < 4:
            raise InputError("graphsvx.samples", got=samples)
        self.samples, self.sampling, self.target_plays = samples, sampling, target_plays

    @classmethod
    def for_benchmark(cls, game: Game, seed: int, setting: BenchmarkSetting) -> GraphSVX:
        return cls(game, seed, samples=QUICK_SAMPLES) if setting.quick and setting.large else cls(game, seed)

    @property
    def label(self) -> str:
        return f"graphsvx {self.samples}" + (" smarter" if self.sampling == "smarter" else "")

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        parts = list(batches(players, MASK_BYTES // self.samples))
        scores = [self._explain(part) for part in Progress(parts, self.name)]
        return self.result(players, torch.cat([*scores, torch.empty(0, device=targets.device)]))

    def _explain(self, players: Players) -> Tensor:
        """Evaluate the coalitions of all targets together. Each target has its own generator and its own fit."""
        device = players.player.device
        own = self.game.task.is_target(players)
        is_fixed = torch.zeros_like(own) if self.target_plays else own
        rows = players.slices
        keep = torch.ones(self.samples, len(players.player), dtype=torch.bool, device=device)
        counts = []  # coalitions of each target. The first two are the empty and the full one
        for target, pairs in zip(players.targets.tolist(), rows, strict=True):
            free = (~is_fixed[pairs]).nonzero().flatten() + pairs.start
            masks = coalitions(len(free), self.samples, self.sampling, generator(self.seed * 1_000_003 + target))
            keep[: len(masks), free] = masks.to(device)
            counts.append(len(masks))
        values = self.game.values_per_target(players, keep[: max(counts)])  # (coalitions, num_targets)
        scores = torch.empty(len(players.player), device=device)
        for row, pairs in enumerate(rows):
            free = ~is_fixed[pairs]
            target_scores, count = scores[pairs], counts[row]
            target_scores[free] = _shapley(keep[:count, pairs][:, free], values[:count, row])
            alone = values[0, row] - self.game.null_values[self.game.explained_class[players.targets[row]]]
            target_scores[~free] = alone
        return scores


def coalitions(players: int, samples: int, sampling: str, random: torch.Generator) -> Tensor:
    """Draw (at most samples, players) bool. The empty and the full coalition come first."""
    if 2**players <= samples:
        every = all_coalitions(players)
        return torch.cat([every[:1], every[-1:], every[1:-1]])
    ends = torch.tensor([[False], [True]]).expand(2, players)
    budget = samples - 2
    small = _small_and_large(players, budget, random) if sampling == "smarter" else ends[:0]
    return torch.cat([ends, small, torch.rand(budget - len(small), players, generator=random) < 0.5])


def _small_and_large(players: int, budget: int, random: torch.Generator) -> Tensor:
    """Draw coalitions of 1, 2, 3 players in random order, each with its complement."""
    small: list[Tensor] = []
    for size in range(1, min(MAX_SMALL_SIZE, players // 2) + 1):
        if size == 2:
            budget = 9 * budget // 10
        members = torch.combinations(torch.arange(players), size)
        members = members[torch.randperm(len(members), generator=random)[: budget // 2]]
        masks = torch.zeros(len(members), players, dtype=torch.bool).scatter_(1, members, True)
        small += [masks, ~masks]
        budget -= 2 * len(members)
        if budget < 2 or len(members) < math.comb(players, size):
            break
    return torch.cat(small)


def _log_kernel(players: int, sizes: Tensor) -> Tensor:
    """Compute log of (n - 1) / (C(n, s) s (n - s)). It is -inf at s = 0 and s = n, which are constraints."""
    n, s = torch.tensor(float(players), dtype=torch.double), sizes.double()
    log_binomial = torch.lgamma(n + 1) - torch.lgamma(s + 1) - torch.lgamma(n - s + 1)
    inner = torch.log(n - 1) - log_binomial - torch.log(s) - torch.log(n - s)
    return torch.where((sizes == 0) | (sizes == players), -torch.inf, inner)


def _shapley(keep: Tensor, values: Tensor) -> Tensor:
    """Compute (players,) the weighted least-squares fit. The first two rows are the empty and the full coalition.

    Scores add up to f(all) - f(none). Every player starts from an equal share, and the fitted departures from it add up
    to zero because the rows of the centred memberships do.
    """
    players = keep.shape[1]
    if players < 2:
        return (values[1] - values[0]).expand(players)
    membership, values = keep.double(), values.double()
    sizes = keep.sum(1)
    share = (values[1] - values[0]) / players
    rest = values - values[0] - sizes * share
    log_weight = _log_kernel(players, sizes.cpu()).to(values.device)
    root = ((log_weight - log_weight.max().clamp(min=-1e6)) / 2).exp().unsqueeze(1)
    centred = root * (membership - membership.mean(1, keepdim=True))
    return (share + _min_norm_solution(centred, root.squeeze(1) * rest)).float()


def _min_norm_solution(x: Tensor, y: Tensor) -> Tensor:
    """Solve least squares from the smaller of the two Gram matrices, several times faster than from x itself."""
    if len(x) < x.shape[1]:
        return x.T @ (torch.linalg.pinv(x @ x.T, rtol=1e-12, hermitian=True) @ y)
    return torch.linalg.pinv(x.T @ x, rtol=1e-12, hermitian=True) @ (x.T @ y)


METHOD = GraphSVX
