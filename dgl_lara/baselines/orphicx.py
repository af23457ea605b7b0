"""`orphicx`: OrphicX (Lin et al., CVPR 2022), a generator of edge masks whose latent space has causal dimensions.

A variational graph autoencoder encodes every node of a target's ego graph (or of the graph) into z = (alpha, beta) and
decodes the weight of an edge from its two ends, sigmoid <h(z_u), h(z_v)>. It minimises the sum of
- causal: minus the information flow I(alpha; y), for f's prediction y on the decoded graph and alpha and beta drawn
  from the prior, so that the first dimensions of z are the ones that change the prediction,
- reconstruction and prior: the usual loss of such an autoencoder,
- likeness: the KL divergence of f's prediction on the graph decoded from alpha alone from that on the graph,
- size: the mean weight of an edge decoded from alpha.
The explanation is the graph decoded from alpha's mean. The score of a node is the mean weight of its edges.

The settings are those of the authors' code for node and for graph tasks. Deviations:
D1. Only edges are decoded. The reconstruction loss uses as many random non-edges as there are edges, an unbiased
    estimate of the original's loss over all pairs. Nothing is N x N, so it runs on graphs too large for the original.
D2. Memory is bounded. The information flow is estimated with the authors' 25 x 100 draws if the ego graph is small,
    and with fewer, of beta first, if they would decode more than `FLOW_EDGES` edges (never fewer than 2 x 2). A batch
    is cut if its ego graphs have more than `STEP_EDGES` edges (never to less than one target).
D3. A tenth of the targets is held out. The weights that do best on them are kept, and training ends after as many
    epochs without improvement as the authors wait (100 of 300).
D4. The encoder of graph tasks normalises the adjacency, like that of node tasks (the authors' does not).
D5. The labels that distinguish the nodes of a graph come from colour refinement with hashes instead of sorted strings.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_lara._util.memory_budget import slices_within_budget
from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator, seeded
from dgl_lara.baselines.common.ego_graphs import batches, ego_graphs, player_nodes
from dgl_lara.baselines.common.method import BenchmarkSetting, Method
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import LaraError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.game.removal import copies
from dgl_lara.gnns.models import GCNLayer
from dgl_lara.graphs.graph import Graph, dot_edges
from dgl_lara.graphs.indexing import is_member
from dgl_lara.graphs.subgraph import EgoBatch

FLOW_EDGES = 300_000  # decoded for one estimate of the information flow
STEP_EDGES = 1_000_000  # of the ego graphs in one step of training
QUICK_STEPS = 200
LABELS = 100  # of colour refinement, one-hot


@dataclass(frozen=True)
class OrphicXConfig:
    """The authors' settings for node tasks."""

    causal_dim: int = 3
    latent_dim: int = 16
    hidden: int = 32
    decoder_hidden: int = 16
    draws_alpha: int = 25
    draws_beta: int = 100
    flow_targets: int = 2  # targets of a step for which the information flow is estimated
    weight_reconstruction: float = 0.1
    weight_likeness: float = 0.2
    weight_causal: float = 1.0
    weight_size: float = 0.1
    batch_size: int = 32
    lr: float = 0.003
    epochs: int = 300
    patience: int = 100  # epochs
    steps: int | None = None  # instead of the epochs
    check_every: int = 25  # steps
    max_targets: int = 2000  # to learn from, drawn at random


# the authors' settings for graph tasks
GRAPH_CONFIG = OrphicXConfig(
    causal_dim=8,
    flow_targets=1,
    weight_reconstruction=0.01,
    weight_likeness=0.01,
    weight_size=0.0,
    batch_size=128,
    lr=0.01,
)


class _Autoencoder(nn.Module):
    def __init__(self, in_dim: int, config: OrphicXConfig) -> None:
        super().__init__()
        self.first = GCNLayer(in_dim, config.hidden)
        self.second = GCNLayer(config.hidden, config.hidden)
        self.mean = GCNLayer(config.hidden, config.latent_dim)
        self.log_deviation = GCNLayer(config.hidden, config.latent_dim)
        self.decoder = nn.Sequential(
            nn.Linear(config.latent_dim, config.decoder_hidden),
            nn.ReLU(),
            nn.Linear(config.decoder_hidden, config.decoder_hidden),
            nn.Sigmoid(),
        )

    def encode(self, graph: Graph, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log deviation of z, (num_nodes, latent_dim) each."""
        h = F.relu(self.first(graph, inputs))
        h = F.relu(self.second(graph, h))
        return self.mean(graph, h), self.log_deviation(graph, h)

    def decode(self, graph: Graph, z: Tensor) -> Tensor:
        """Return (num_edges,) logits of the edge weights."""
        h = self.decoder(z)
        return dot_edges(graph, h, h)


class OrphicX(Method):
    """A generator of edge masks with causal latent dimensions.

    Args:
        game: The explained game.
        seed: Seed of every random draw.
        config: Settings of the autoencoder. None means the authors' for the task.
    """

    name = "orphicx"
    style = ("#009E73", "-")
    quick_note = f"OrphicX makes {QUICK_STEPS} steps instead of its authors' 300 epochs"
    needs = ("gradients", "edge weights")

    def __init__(self, game: Game, seed: int = 0, config: OrphicXConfig | None = None) -> None:
        super().__init__(game, seed)
        self.config = config or CONFIGS.get(game.task.name, OrphicXConfig())
        self.model: _Autoencoder | None = None

    @classmethod
    def for_benchmark(cls, game: Game, seed: int, setting: BenchmarkSetting) -> OrphicX:
        method = cls(game, seed)
        if setting.quick:
            method.config = replace(method.config, steps=QUICK_STEPS)
        return method

    def with_fewer_steps(self) -> OrphicX:
        self.config = replace(self.config, steps=2)
        return self

    def fit(self, targets: Tensor) -> None:
        config, random = self.config, generator(self.seed)
        shuffled = targets[torch.randperm(len(targets), generator=random).to(targets.device)][: config.max_targets]
        held_out = min(max(1, len(shuffled) // 10), config.batch_size)
        validation, training = shuffled[:held_out], shuffled[held_out:] if len(shuffled) > held_out else shuffled
        with seeded(self.seed):
            model = _Autoencoder(self._in_dim, config).to(targets.device)
        optimiser = torch.optim.Adam(model.parameters(), lr=config.lr)
        best, best_weights = float("inf"), copy.deepcopy(model.state_dict())
        order = training[:0]
        steps_per_epoch = -(-len(training) // config.batch_size)
        total = config.steps or config.epochs * steps_per_epoch
        best_step = 0
        steps = Progress(range(total), self.name)
        with eval_mode(self.game.f):
            for step in steps:
                if not len(order):
                    order = training[torch.randperm(len(training), generator=random).to(targets.device)]
                batch, order = order[: config.batch_size], order[config.batch_size :]
                with torch.enable_grad():
                    loss = self._loss(model, batch, random, noise=True)
                    gradients = torch.autograd.grad(loss, list(model.parameters()))  # none reaches f's parameters
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.grad = gradient
                nn.utils.clip_grad_norm_(model.parameters(), 1)
                optimiser.step()
                if (step + 1) % config.check_every == 0 or step + 1 == total:
                    reached = self._loss(model, validation, generator(self.seed + 1), noise=False).item()
                    if reached < best:
                        best, best_step, best_weights = reached, step, copy.deepcopy(model.state_dict())
                    if step - best_step >= config.patience * steps_per_epoch:
                        break
                    steps.note(loss=loss.item(), validation=best)
        model.load_state_dict(best_weights)
        self.model = model.eval().requires_grad_(False)

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        scores = [self._explain(part) for part in batches(players, self.game.nodes_per_call)]
        return self.result(players, torch.cat([*scores, torch.empty(0, device=targets.device)]))

    def _explain(self, players: Players) -> Tensor:
        if self.model is None:
            raise LaraError("baseline.not_fitted", method=self.name)
        batch = ego_graphs(self.game, players, self.game.hops)
        mean, _ = self.model.encode(batch.graph, self._inputs(batch))
        weights = self.model.decode(batch.graph, self._causal_part(mean)).sigmoid()
        return node_means(batch.graph, weights)[player_nodes(batch, players)]

    @property
    def _in_dim(self) -> int:
        first = self.game.players(torch.zeros(1, dtype=torch.long, device=self.game.features.device))
        return self._inputs(ego_graphs(self.game, first, self.game.hops)).shape[1]

    def _inputs(self, batch: EgoBatch) -> Tensor:
        """Return features and the position of each node: its distance to the target, or its colour in the graph."""
        features = self.game.features[batch.nodes]
        position = POSITIONS.get(self.game.task.name, _distances)(batch, self.game.hops)
        return torch.cat([features, position.to(features)], dim=1)

    def _causal_part(self, z: Tensor) -> Tensor:
        is_causal = torch.arange(z.shape[1], device=z.device) < self.config.causal_dim
        return z * is_causal

    def _loss(self, model: _Autoencoder, targets: Tensor, random: torch.Generator, noise: bool) -> Tensor:
        """Compute all four terms, averaged over the targets."""
        game, config = self.game, self.config
        players = within_budget(game, game.players(targets))
        targets = players.targets
        batch = ego_graphs(game, players, game.hops)
        edge_row = batch.row[batch.graph.edges()[0]]
        mean, log_deviation = model.encode(batch.graph, self._inputs(batch))
        z = mean + _normal(mean.shape, random, mean.device) * log_deviation.exp() if noise else mean

        # reconstruction (a node is its own neighbour) and prior
        h = model.decoder(z)
        present = torch.cat([model.decode(batch.graph, z), (h * h).sum(dim=1)])
        present_row = torch.cat([edge_row, batch.row])
        absent_src, absent_dst = non_edges(batch, players.indptr, present_row, random)
        absent = (h[absent_src] * h[absent_dst]).sum(dim=1)
        missed = _averages(F.softplus(-present), present_row, len(targets))
        invented = _averages(F.softplus(absent), batch.row[absent_src], len(targets))
        divergence = -0.5 * (1 + 2 * log_deviation - mean**2 - (2 * log_deviation).exp()).sum(dim=1)
        prior = _averages(divergence, batch.row, len(targets)) / players.counts
        reconstruction = ((missed + invented) / 2 + prior).mean()

        # the graph decoded from alpha alone
        weights = model.decode(batch.graph, self._causal_part(z)).sigmoid()
        logits = self._predict(batch.graph, game.features[batch.nodes], weights)[batch.target_rows]
        likeness = F.kl_div(logits.log_softmax(1), game.full_logits[targets].softmax(1), reduction="none").mean()
        size = _averages(weights, edge_row, len(targets)).mean()

        drawn = torch.randperm(len(targets), generator=random)[: config.flow_targets].tolist()
        flow = torch.stack([self._flow(model, players.part(slice(row, row + 1)), random) for row in drawn]).mean()
        return (
            config.weight_reconstruction * reconstruction
            + config.weight_likeness * likeness
            + config.weight_size * size
            - config.weight_causal * flow
        )

    def _predict(self, graph: Graph, features: Tensor, weights: Tensor) -> Tensor:
        return self.call_with_weights(graph, features, weights).float()

    def _flow(self, model: _Autoencoder, player: Players, random: torch.Generator) -> Tensor:
        """Estimate I(alpha; y) of one target, for z drawn from the prior and y predicted on the decoded graphs."""
        config = self.config
        batch = ego_graphs(self.game, player, self.game.hops)
        nodes, edges, device = len(batch.row), batch.graph.num_edges(), batch.row.device
        causal, other = config.causal_dim, config.latent_dim - config.causal_dim
        affordable = FLOW_EDGES // max(1, edges)  # copies of the graph
        alphas = max(2, min(config.draws_alpha, affordable // 2))
        betas = max(2, min(config.draws_beta, affordable // alphas))
        alpha = _normal((alphas, 1, nodes, causal), random, device).expand(-1, betas, -1, -1)
        beta = _normal((alphas, betas, nodes, other), random, device)
        stacked = copies(batch.graph, alphas * betas)
        features = self.game.features[batch.nodes].repeat(alphas * betas, 1)
        weights = model.decode(stacked, torch.cat([alpha, beta], dim=3).flatten(0, 2)).sigmoid()
        count = torch.ones(alphas * betas, dtype=torch.long, device=device)
        stacked.set_batch_num_nodes(count * nodes)
        stacked.set_batch_num_edges(count * edges)
        logits = self._predict(stacked, features, weights)
        rows = self.game.task.num_targets(batch.graph)  # of f's output on one copy
        logits = logits[int(batch.target_rows) :: rows]
        return information_flow(logits.softmax(1).view(alphas, betas, -1))


def within_budget(game: Game, players: Players) -> Players:
    """Return the first targets, at least one, whose graphs together have at most `STEP_EDGES` edges."""
    degrees = game.graph.in_degrees(players.player)
    edges = torch.zeros_like(players.counts).index_add_(0, players.row, degrees.to(players.counts))
    return players.part(slices_within_budget(edges, STEP_EDGES)[0])


def information_flow(probabilities: Tensor) -> Tensor:
    """Compute I(alpha; y) = H(y) - H(y | alpha) from p(y | alpha, beta), (alphas, betas, num_classes)."""
    given_alpha = probabilities.mean(dim=1)
    return _entropy(given_alpha.mean(dim=0)) - _entropy(given_alpha).mean()


def _entropy(probabilities: Tensor) -> Tensor:
    return -(probabilities * (probabilities + 1e-8).log()).sum(dim=-1)


def _normal(shape: tuple[int, ...], random: torch.Generator, device: torch.device) -> Tensor:
    return torch.randn(shape, generator=random).to(device)


def _averages(values: Tensor, row: Tensor, count: int) -> Tensor:
    """Return (count,) the mean of the values of each row, 0 for a row without values."""
    total = torch.zeros(count, dtype=values.dtype, device=values.device).index_add(0, row, values)
    return total / torch.bincount(row, minlength=count).clamp(min=1)


def node_means(graph: Graph, weights: Tensor) -> Tensor:
    """Return (num_nodes,) the mean weight of the incoming and outgoing edges, 0 for a node without edges."""
    return _averages(weights.repeat(2), torch.cat(graph.edges()), graph.num_nodes())


def non_edges(batch: EgoBatch, first: Tensor, present_row: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a random pair of nodes of one graph for each edge and loop, and return those that are not connected."""
    start, nodes = first[:-1][present_row], (first[1:] - first[:-1])[present_row]
    u, v = (torch.rand(2, len(present_row), generator=random).to(nodes.device) * nodes).long().minimum(
        nodes - 1
    ) + start
    src, dst = batch.graph.edges()
    total = batch.graph.num_nodes()
    apart = (u != v) & ~is_member(u * total + v, torch.cat([src * total + dst, src.new_full((1,), -1)]).sort().values)
    return u[apart], v[apart]


def refined_labels(graph: Graph, row: Tensor, rounds: int = 100) -> Tensor:
    """Return (num_nodes,) colours of 1-WL, numbered within each graph. Isomorphic graphs have equal colours."""
    src, dst = graph.edges()
    label, neighbours = torch.zeros_like(row), graph.in_degrees().to(row)
    colours = 0
    for _ in range(rounds):
        _, number = torch.unique(torch.stack([row, label, neighbours]), dim=1, return_inverse=True)
        count = int(number.max()) + 1
        if count == colours:
            break
        colours = count
        smallest = torch.full_like(row, colours).scatter_reduce(0, row, number, "amin")
        label = number - smallest[row]
        neighbours = torch.zeros_like(label).index_add_(0, dst, _scramble(label)[src])
    return label


def _scramble(label: Tensor) -> Tensor:
    """Hash labels so that sums identify multisets. Overflow wraps around."""
    mixed = (label + 1) * -7046029254386353131
    return (mixed ^ (mixed >> 31)) * -4658895280553007687


def _distances(batch: EgoBatch, hops: int) -> Tensor:
    """Return (num_nodes, hops + 1) one-hot distances to the target."""
    return F.one_hot(batch.hop, hops + 1)


def _colours(batch: EgoBatch, hops: int) -> Tensor:
    """Return (num_nodes, LABELS) one-hot colours."""
    return F.one_hot(refined_labels(batch.graph, batch.row).clamp(max=LABELS - 1), LABELS)


CONFIGS = {"graph": GRAPH_CONFIG}  # by task
POSITIONS = {"graph": _colours}

METHOD = OrphicX
