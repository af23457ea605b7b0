"""`fastdnx`: FastDnX (Pereira et al., "Distill n' Explain", AISTATS 2023), an explanation of a linear stand-in for f.

Distil: a surrogate softmax(Â^L X Theta + b), an SGC with L = K, learns f's class probabilities on every node of the
graph (the least KL divergence; no labels). It uses nothing of f but its outputs.

Explain: before the softmax the surrogate is a sum over nodes, z_v = sum over j of (Â^L)[v, j] x_j Theta. `credit` says
what of player j's term is its score:
- "prediction", the paper's: its inner product with z_v, over all classes; the target's own score is the sum of all
  scores, as in the authors' code, which ranks it first.
- "class": its part in the explained class alone, the target's own like any other.
The default is the paper's for node tasks, and "class" for graph tasks, where it measured better.

Deviations: the authors run Adam for a fixed number of steps on four fifths of the nodes; the problem is convex, and
here L-BFGS solves it on all of them (their weight decay makes the solution unique). For graph tasks, which the paper
does not treat, the surrogate is the mean of the nodes' SGC states: sums over nodes again, so everything carries over.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_lara.baselines.common.egos import batches
from dgl_lara.baselines.common.method import Method
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import smooth

WEIGHT_DECAY = 5e-6  # the authors'
CREDITS = ("prediction", "class")


class FastDnX(Method):
    name = "fastdnx"
    style = ("#009E73", "--")

    def __init__(self, game: Game, seed: int = 0, credit: str | None = None, iterations: int = 300) -> None:
        super().__init__(game, seed)
        self.usual_credit = "prediction" if game.task.has_distances else "class"
        credit = credit or self.usual_credit
        if credit not in CREDITS:
            raise InputError(f"credit must be one of {', '.join(CREDITS)} (got '{credit}').")
        self.credit, self.iterations = credit, iterations

    @property
    def label(self) -> str:
        return self.name if self.credit == self.usual_credit else f"{self.name}, credit {self.credit}"

    def with_fewer_steps(self) -> FastDnX:
        self.iterations = 2
        return self

    def fit(self, targets: Tensor) -> None:
        """Distil f on the whole graph, whatever the targets: the surrogate is one for all of them."""
        game = self.game
        states = smooth(game.graph, game.features, game.hops)
        states = game.task.readout(game.graph, states)
        theta, self.bias_ = distil(states, game.full_logits.softmax(dim=1), self.iterations)
        self.terms_ = game.features @ theta  # (num_nodes, num_classes) x_j Theta
        self.predictions_ = states @ theta  # (num_targets, num_classes) z without the bias

    def explain(self, targets: Tensor) -> Explanations:
        if "terms_" not in vars(self):
            raise LaraError(f"{self.name} has not learned yet; call fit(targets) first.")
        players = self.game.players(targets)
        scores = [self._explain(part) for part in batches(players, self.game.nodes_per_call)]
        return self.result(players, torch.cat([*scores, torch.empty(0, device=targets.device)]))

    def _explain(self, players: Players) -> Tensor:
        weight = self.game.task.walk_shares(self.game.graph, players, self.game.hops)
        row, terms = players.row, self.terms_[players.player]
        if self.credit == "class":
            classes = self.game.explained_class[players.targets][row]
            return weight * terms.gather(1, classes.unsqueeze(1)).squeeze(1)
        scores = weight * (terms * self.predictions_[players.targets][row]).sum(dim=1)
        own = self.game.task.is_target(players)
        total = torch.zeros(len(players.targets), device=row.device).index_add_(0, row, scores)
        scores[own] = total[row[own]]
        return scores


def distil(states: Tensor, probabilities: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Theta (in_dim, num_classes) and bias of the softmax regression that is nearest to the probabilities (KL).

    It is solved for states of mean 0 and deviation 1, which only changes how fast it is found.
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
