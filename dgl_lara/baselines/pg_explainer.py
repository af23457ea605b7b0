"""`pg-explainer` (Luo et al. 2020): one network that reads edge masks off f's embeddings, learned over many targets.

The mask of a training step is drawn from a concrete distribution, a coin softened by a temperature that changes over
the epochs; explaining takes its centre. Settings start from those of the replication study ("[Re] Parameterized
Explainer for Graph Neural Networks", Holdijk et al.) whose target models LARA's paper explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator, seeded
from dgl_lara.baselines.common.edge_masks import EdgeMethod, MaskBatch, entropy, instances
from dgl_lara.baselines.common.method import BenchmarkSetting
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import InputError
from dgl_lara.game.game import Game

HIDDEN = 64


@dataclass(frozen=True)
class PGExplainerConfig:
    """How the network is trained; the defaults are the study's, for data it does not have."""

    epochs: int = 30
    lr: float = 0.003
    size: float = 0.05  # weight of the sum of the mask
    entropy: float = 1.0  # weight of its mean entropy
    temperature: tuple[float, float] = (5.0, 2.0)  # in the first epoch, and where it goes
    bias: float = 0.0  # noise is uniform in (bias, 1 - bias): at 0.5 there is none
    batch: int | None = None  # targets a step; None: one step an epoch over all of them, as the authors


# as in the study's files
STUDY = {
    "ba-shapes": PGExplainerConfig(epochs=10),
    "ba-community": PGExplainerConfig(epochs=20, temperature=(1.0, 1.0), bias=0.5),
    "tree-cycles": PGExplainerConfig(epochs=20, size=0.1, entropy=10.0, temperature=(1.0, 5.0)),
    "ba-2motifs": PGExplainerConfig(epochs=20, lr=0.005, size=0.03, entropy=0.01, temperature=(5.0, 1.0)),
    "mutag": PGExplainerConfig(lr=0.0003, size=0.005, temperature=(5.0, 5.0)),
}
# Where the study's fall short of the published AUC and others reach it: under their size terms the masks shrink before
# the motif shows (BA-2Motifs ends inverted); on MUTAG, with a target model of our own, 30 small steps hardly move.
SETTINGS = {
    **STUDY,
    "ba-community": replace(STUDY["ba-community"], size=0.01),
    "ba-2motifs": replace(STUDY["ba-2motifs"], size=0.003, epochs=60),
    "mutag": replace(STUDY["mutag"], lr=0.003, size=0.001, entropy=0.1, temperature=(5.0, 1.0)),
    "ogbn-arxiv": PGExplainerConfig(batch=64),
    "citation": PGExplainerConfig(batch=64),
}


class EdgeNetwork(nn.Module):
    """A hidden layer on the embeddings of an edge's two ends (and of the target), side by side."""

    def __init__(self, width: int, ends: int) -> None:
        super().__init__()
        self.first = nn.Linear(ends * width, HIDDEN)
        self.second = nn.Linear(HIDDEN, 1)

    def forward(self, z: Tensor, ends: list[Tensor]) -> Tensor:
        # each end meets its own columns of the first layer: multiplied once a node, not once an edge
        blocks = self.first.weight.chunk(len(ends), dim=1)
        h = self.first.bias + sum((z @ block.T)[end] for block, end in zip(blocks, ends, strict=True))
        return self.second(F.relu(h)).squeeze(1)


class PGExplainer(EdgeMethod):
    name = "pg-explainer"
    style = ("#56B4E9", "-")
    needs = ("edge weights", "gradients", "embeddings")

    def __init__(self, game: Game, seed: int = 0, settings: PGExplainerConfig | None = None) -> None:
        super().__init__(game, seed)
        self.settings = settings or PGExplainerConfig()
        self.network: EdgeNetwork | None = None

    @classmethod
    def for_comparison(cls, game: Game, seed: int, where: BenchmarkSetting) -> PGExplainer:
        return cls(game, seed, SETTINGS.get(where.dataset))

    def with_fewer_steps(self) -> PGExplainer:
        self.settings = replace(self.settings, epochs=1)
        return self

    def fit(self, targets: Tensor) -> None:
        self.game.check_targets(targets)
        settings, noise = self.settings, generator(self.seed)
        self.game.record_call(self.game.graph)
        with eval_mode(self.game.f):
            self.embeddings = self.game.f.embed(self.game.graph, self.game.features)  # type: ignore[attr-defined]
        with seeded(self.seed):
            self.network = EdgeNetwork(self.embeddings.shape[1], 2 + self.game.task.num_context_nodes)
        self.network.to(self.embeddings.device)
        parameters = list(self.network.parameters())
        optimiser = torch.optim.Adam(parameters, lr=settings.lr)
        epochs = Progress(range(settings.epochs), f"fitting {self.label}")
        with eval_mode(self.game.f), torch.enable_grad():
            for epoch in epochs:
                first, last = settings.temperature
                temperature = first * (last / first) ** (epoch / settings.epochs)
                for batch in self._batches(targets, noise):
                    optimiser.zero_grad()
                    for some in instances(self.game, batch):
                        loss = self._loss(some, temperature, noise)
                        loss.backward(inputs=parameters)  # these only: f's own parameters get no gradient
                    optimiser.step()
                epochs.note(loss=loss.item() / len(some.targets))

    def _batches(self, targets: Tensor, order: torch.Generator) -> Iterator[Tensor]:
        if self.settings.batch is None:
            return iter([targets])
        shuffled = targets[torch.randperm(len(targets), generator=order).to(targets.device)]
        return iter(shuffled.split(self.settings.batch))

    def _loss(self, some: MaskBatch, temperature: float, noise: torch.Generator) -> Tensor:
        """Summed over the targets."""
        logits = self._edge_logits(some)
        low = self.settings.bias + 1e-4
        uniform = low + (1 - 2 * low) * torch.rand(len(logits), generator=noise).to(logits.device)
        mask = ((uniform.logit() + logits) / temperature).sigmoid()
        predicted = self.predict(some, some.both_ways(mask), self.game.features[some.egos.nodes])
        wrong = F.cross_entropy(predicted, self.game.explained_class[some.targets], reduction="sum")
        terms = self.settings.size * some.sums(mask) + self.settings.entropy * some.means(entropy(mask))
        return wrong + terms.sum()

    def _edge_logits(self, some: MaskBatch) -> Tensor:
        if self.network is None:
            raise InputError(f"{self.name} must be fitted before it explains.")
        nodes, place = torch.unique(some.egos.nodes, return_inverse=True)  # ego graphs share many
        ends = [place[end] for end in some.egos.graph.find_edges(some.edge)]
        ends += [place[index] for index in self.game.task.context_nodes(some.egos, some.row)]
        return self.network(self.embeddings[nodes], ends)

    def score(self, some: MaskBatch) -> Tensor:
        with torch.no_grad():
            return some.both_ways(self._edge_logits(some).sigmoid())


METHOD = PGExplainer
