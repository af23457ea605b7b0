"""`pg-explainer` (Luo et al. 2020): a network that predicts edge masks from f's embeddings, trained on many targets.

The mask of a training step is drawn from a concrete distribution, a coin softened by a temperature that changes over
the epochs. Explaining takes its mode. Settings start from those of the replication study ("[Re] Parameterized Explainer
for Graph Neural Networks", Holdijk et al.), whose target models LARA's paper explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator, seeded
from dgl_lara.baselines.common.edge_masks import EdgeMethod, MaskBatch, entropy, mask_batches
from dgl_lara.baselines.common.method import BenchmarkSetting
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import InputError
from dgl_lara.game.game import Game

HIDDEN = 64


@dataclass(frozen=True)
class PGExplainerConfig:
    """How the network is trained. The defaults are the study's, for data sets that it does not have.

    Args:
        epochs: Passes over the targets.
        lr: Learning rate of Adam.
        size: Weight of the sum of the mask.
        entropy: Weight of its mean entropy.
        temperature: In the first epoch, and towards the end.
        bias: Noise is uniform in (bias, 1 - bias). At 0.5 there is none.
        batch: Targets a step. None means one step an epoch over all targets, as the authors do.
    """

    epochs: int = 30
    lr: float = 0.003
    size: float = 0.05
    entropy: float = 1.0
    temperature: tuple[float, float] = (5.0, 2.0)
    bias: float = 0.0
    batch: int | None = None


# as in the study's files
STUDY = {
    "ba-shapes": PGExplainerConfig(epochs=10),
    "ba-community": PGExplainerConfig(epochs=20, temperature=(1.0, 1.0), bias=0.5),
    "tree-cycles": PGExplainerConfig(epochs=20, size=0.1, entropy=10.0, temperature=(1.0, 5.0)),
    "ba-2motifs": PGExplainerConfig(epochs=20, lr=0.005, size=0.03, entropy=0.01, temperature=(5.0, 1.0)),
    "mutag": PGExplainerConfig(lr=0.0003, size=0.005, temperature=(5.0, 5.0)),
}
# The study's settings miss the published AUC on these and others reach it. Under their size terms the masks shrink
# before the motif shows (BA-2Motifs ends inverted). On MUTAG, with our target model, 30 small steps hardly change them.
SETTINGS = {
    **STUDY,
    "ba-community": replace(STUDY["ba-community"], size=0.01),
    "ba-2motifs": replace(STUDY["ba-2motifs"], size=0.003, epochs=60),
    "mutag": replace(STUDY["mutag"], lr=0.003, size=0.001, entropy=0.1, temperature=(5.0, 1.0)),
    "ogbn-arxiv": PGExplainerConfig(batch=64),
    "citation": PGExplainerConfig(batch=64),
}


class _EdgeNetwork(nn.Module):
    """A hidden layer on the concatenated embeddings of an edge's two ends (and of the target)."""

    def __init__(self, width: int, ends: int) -> None:
        super().__init__()
        self.first = nn.Linear(ends * width, HIDDEN)
        self.second = nn.Linear(HIDDEN, 1)

    def forward(self, z: Tensor, ends: list[Tensor]) -> Tensor:
        # each end has its own columns of the first layer, so they are multiplied once per node, not once per edge
        blocks = self.first.weight.chunk(len(ends), dim=1)
        h = self.first.bias + sum((z @ block.T)[end] for block, end in zip(blocks, ends, strict=True))
        return self.second(F.relu(h)).squeeze(1)


class PGExplainer(EdgeMethod):
    """A network that predicts edge masks from f's embeddings.

    Args:
        game: The explained game.
        seed: Seed of the network and of the noise.
        config: How the network is trained.
    """

    name = "pg-explainer"
    style = ("#56B4E9", "-")
    needs = ("edge weights", "gradients", "embeddings")

    def __init__(self, game: Game, seed: int = 0, config: PGExplainerConfig | None = None) -> None:
        super().__init__(game, seed)
        self.config = config or PGExplainerConfig()
        self.network: _EdgeNetwork | None = None

    @classmethod
    def for_benchmark(cls, game: Game, seed: int, setting: BenchmarkSetting) -> PGExplainer:
        return cls(game, seed, SETTINGS.get(setting.dataset))

    def with_fewer_steps(self) -> PGExplainer:
        self.config = replace(self.config, epochs=1)
        return self

    def fit(self, targets: Tensor) -> None:
        self.game.check_targets(targets)
        config, noise = self.config, generator(self.seed)
        self.game.caller.record(self.game.graph)
        with eval_mode(self.game.f):
            self.embeddings = self.game.f.embed(self.game.graph, self.game.features)  # type: ignore[attr-defined]
        with seeded(self.seed):
            self.network = _EdgeNetwork(self.embeddings.shape[1], 2 + self.game.task.num_context_nodes)
        self.network.to(self.embeddings.device)
        parameters = list(self.network.parameters())
        optimiser = torch.optim.Adam(parameters, lr=config.lr)
        epochs = Progress(range(config.epochs), f"fitting {self.label}")
        with eval_mode(self.game.f), torch.enable_grad():
            for epoch in epochs:
                first, last = config.temperature
                temperature = first * (last / first) ** (epoch / config.epochs)
                for step_targets in self._steps(targets, noise):
                    optimiser.zero_grad()
                    for batch in mask_batches(self.game, step_targets):
                        loss = self._loss(batch, temperature, noise)
                        loss.backward(inputs=parameters)  # f's own parameters get no gradient
                    optimiser.step()
                epochs.note(loss=loss.item() / len(batch.targets))

    def _steps(self, targets: Tensor, order: torch.Generator) -> Iterator[Tensor]:
        if self.config.batch is None:
            return iter([targets])
        shuffled = targets[torch.randperm(len(targets), generator=order).to(targets.device)]
        return iter(shuffled.split(self.config.batch))

    def _loss(self, batch: MaskBatch, temperature: float, noise: torch.Generator) -> Tensor:
        """Sum the losses of the targets."""
        logits = self._edge_logits(batch)
        low = self.config.bias + 1e-4
        uniform = low + (1 - 2 * low) * torch.rand(len(logits), generator=noise).to(logits.device)
        mask = ((uniform.logit() + logits) / temperature).sigmoid()
        predicted = self.predict(batch, batch.both_ways(mask), self.game.features[batch.egos.nodes])
        prediction = F.cross_entropy(predicted, self.game.explained_class[batch.targets], reduction="sum")
        terms = self.config.size * batch.sums(mask) + self.config.entropy * batch.means(entropy(mask))
        return prediction + terms.sum()

    def _edge_logits(self, batch: MaskBatch) -> Tensor:
        if self.network is None:
            raise InputError("baseline.not_fitted", method=self.name)
        nodes, index = torch.unique(batch.egos.nodes, return_inverse=True)  # ego graphs share many nodes
        ends = [*batch.egos.graph.find_edges(batch.edge), *self.game.task.context_nodes(batch.egos, batch.row)]
        return self.network(self.embeddings[nodes], [index[end] for end in ends])

    def score(self, batch: MaskBatch) -> Tensor:
        with torch.no_grad():
            return batch.both_ways(self._edge_logits(batch).sigmoid())


METHOD = PGExplainer
