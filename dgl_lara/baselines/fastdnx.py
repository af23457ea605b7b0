"""`fastdnx`: FastDnX (Pereira et al., "Distill n' Explain", AISTATS 2023), an explanation of a linear surrogate of f.

Distil: a surrogate softmax(Â^L X Theta + b), an SGC with L = K, is fitted to f's class probabilities on every node of
the graph (KL divergence, no labels). It needs f's outputs only.

Explain: before the softmax the surrogate is a sum over nodes, z_v = sum over j of (Â^L)[v, j] x_j Theta. `credit` is
the part of player j's term that is its score:
- "prediction", the paper's: its inner product with z_v, over all classes. The target's own score is the sum of all
  scores, as in the authors' code, which ranks it first.
- "class": its part in the explained class, also for the target itself.
The default is the paper's, but "class" for graph tasks, for which it measured better.

Deviations:
D1. The authors run Adam for a fixed number of steps on four fifths of the nodes. The problem is convex, so L-BFGS
    solves it on all nodes (their weight decay makes the solution unique).
D2. The paper has no graph tasks. Their surrogate is the mean of the nodes' SGC states, which is a sum over nodes too.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_lara.baselines.common.ego_graphs import batches
from dgl_lara.baselines.common.method import Method
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import smooth

WEIGHT_DECAY = 5e-6  # the authors'
CREDITS = ("prediction", "class")
DEFAULT_CREDIT = {"graph": "class"}  # by task


class FastDnX(Method):
    """An explanation of a linear surrogate of f.

    Args:
        game: The explained game.
        seed: Unused, the method is deterministic.
        credit: "prediction" or "class". None means the default of the task.
        iterations: Iterations of L-BFGS.
    """

    name = "fastdnx"
    style = ("#009E73", "--")

    def __init__(self, game: Game, seed: int = 0, credit: str | None = None, iterations: int = 300) -> None:
        super().__init__(game, seed)
        self.default_credit = DEFAULT_CREDIT.get(game.task.name, "prediction")
        self.credit, self.iterations = credit or self.default_credit, iterations
        if self.credit not in CREDITS:
            raise InputError("fastdnx.credit", known=", ".join(CREDITS), got=credit)
        self.terms: Tensor | None = None  # (num_nodes, num_classes) x_j Theta
        self.predictions = torch.empty(0)  # (num_targets, num_classes) z without the bias

    @property
    def label(self) -> str:
        return self.name if self.credit == self.default_credit else f"{self.name}, credit {self.credit}"

    def with_fewer_steps(self) -> FastDnX:
        self.iterations = 2
        return self

    def fit(self, targets: Tensor) -> None:
        """Distil f on the full graph. The targets do not matter, because all have one surrogate."""
        game = self.game
        states = game.task.readout(game.graph, smooth(game.graph, game.features, game.hops))
        theta, self.bias = _distil(states, game.full_logits.softmax(dim=1), self.iterations)
        self.terms, self.predictions = game.features @ theta, states @ theta

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        scores = [self._explain(part) for part in batches(players, self.game.nodes_per_call)]
        return self.result(players, torch.cat([*scores, torch.empty(0, device=targets.device)]))

    def _explain(self, players: Players) -> Tensor:
        if self.terms is None:
            raise LaraError("baseline.not_fitted", method=self.name)
        weight = self.game.task.walk_shares(self.game.graph, players, self.game.hops)
        row, terms = players.row, self.terms[players.player]
        if self.credit == "class":
            classes = self.game.explained_class[players.targets][row]
            return weight * terms.gather(1, classes.unsqueeze(1)).squeeze(1)
        scores = weight * (terms * self.predictions[players.targets][row]).sum(dim=1)
        own = self.game.task.is_target(players)
        total = torch.zeros(len(players.targets), device=row.device).index_add_(0, row, scores)
        scores[own] = total[row[own]]
        return scores


def _distil(states: Tensor, probabilities: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Fit the softmax regression that is nearest to the probabilities (KL).

    It is solved for states of mean 0 and deviation 1, which only makes it faster.

    Returns:
        Theta (in_dim, num_classes) and bias (num_classes,).
    """
    states, probabilities = states.detach().double(), probabilities.double()
    mean, deviation = states.mean(0), states.std(0, correction=0)
    deviation = torch.where(deviation > 1e-9 * (1 + mean.abs()), deviation, torch.ones_like(deviation))
    inputs = (states - mean) / deviation
    theta = torch.zeros(states.shape[1], probabilities.shape[1], dtype=torch.double, device=states.device)
    bias = torch.zeros(probabilities.shape[1], dtype=torch.double, device=states.device)
    optimiser = torch.optim.LBFGS([theta, bias], max_iter=iterations, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        divergence = F.kl_div((inputs @ theta + bias).log_softmax(1), probabilities, reduction="batchmean")
        total = divergence + WEIGHT_DECAY / 2 * (theta**2).sum()
        total.backward()
        return total

    with torch.enable_grad():
        theta.requires_grad_()
        bias.requires_grad_()
        optimiser.step(loss)
    theta, bias = theta.detach(), bias.detach()
    theta = theta / deviation.unsqueeze(1)
    return theta.float(), (bias - mean @ theta).float()


METHOD = FastDnX
