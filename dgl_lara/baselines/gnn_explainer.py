"""`gnn-explainer` (Ying et al. 2019): a mask of edges and features, learned anew for each target.

Minimises the cross-entropy of the predicted class under the masks, plus their size and entropy. Targets share
nothing: a batch sums their losses, each normalised by itself, so the result is that of one target at a time.

Weights and terms are the authors'. Two settings are not, because theirs depend on the size of the graph: masks start
around 1/2 (theirs around 3/4, from where the entropy drives all masks of a small graph to 1), and the learning rate
lies between theirs (.1) and that of the libraries (.01, which moves a mask too little in 100 epochs).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator
from dgl_lara.baselines.common.edge_masks import EdgeMethod, MaskBatch, entropy
from dgl_lara.baselines.common.method import BenchmarkSetting
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.game.game import Game

EDGE_SIZE, EDGE_ENTROPY = 0.005, 1.0
FEATURE_SIZE, FEATURE_ENTROPY = 1.0, 0.1

# All nodes of BA-2Motifs have the same features: masking them switches the model off, not the features.
SETTINGS: dict[str, dict[str, bool]] = {"ba-2motifs": {"mask_features": False}}


class GNNExplainer(EdgeMethod):
    name = "gnn-explainer"
    style = ("#0072B2", "-")

    def __init__(
        self, game: Game, seed: int = 0, epochs: int = 100, lr: float = 0.03, mask_features: bool = True
    ) -> None:
        super().__init__(game, seed)
        self.epochs, self.lr, self.mask_features = epochs, lr, mask_features

    @classmethod
    def for_comparison(cls, game: Game, seed: int, where: BenchmarkSetting) -> GNNExplainer:
        return cls(game, seed, **SETTINGS.get(where.dataset, {}))

    def score(self, some: MaskBatch) -> Tensor:
        features = self.game.features[some.egos.nodes]
        edge_logits = self._start(some).requires_grad_()
        feature_logits = features.new_zeros(len(some.targets), features.shape[1]).requires_grad_()
        optimiser = torch.optim.Adam([edge_logits, feature_logits], lr=self.lr)
        with eval_mode(self.game.f), torch.enable_grad():
            for _ in Progress(range(self.epochs), f"{self.label}, {len(some.targets)} target(s) at once"):
                loss = self._loss(some, features, edge_logits.sigmoid(), feature_logits.sigmoid())
                optimiser.zero_grad()
                loss.backward(inputs=[edge_logits, feature_logits])  # these only: f's own parameters get no gradient
                optimiser.step()
        return some.both_ways(edge_logits.detach().sigmoid())

    def _start(self, some: MaskBatch) -> Tensor:
        """(num_scored,) normal around 0, from a generator of the target's own: its company changes nothing."""
        edges = torch.bincount(some.row, minlength=len(some.targets)).tolist()
        parts = [
            torch.randn(count, generator=generator(self.seed * 1_000_003 + target)) * (2 / size) ** 0.5
            for target, count, size in zip(some.targets.tolist(), edges, some.num_players.tolist(), strict=True)
        ]
        return torch.cat(parts).to(some.row.device)

    def _loss(self, some: MaskBatch, features: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """Summed over the targets; `mask` is that of the features, (num_targets, dim)."""
        seen = features * mask[some.egos.row] if self.mask_features else features
        logits = self.predict(some, some.both_ways(edges), seen)
        wrong = F.cross_entropy(logits, self.game.explained_class[some.targets], reduction="sum")
        # the authors' mean goes over all pairs of nodes; over the edges alone the entropy outweighs the prediction
        # on small graphs, and drives every mask to 1
        mean_entropy = some.sums(entropy(edges)) / some.num_players**2
        edge_terms = EDGE_SIZE * some.sums(edges) + EDGE_ENTROPY * mean_entropy
        feature_terms = FEATURE_SIZE * mask.mean(dim=1) + FEATURE_ENTROPY * entropy(mask).mean(dim=1)
        return wrong + edge_terms.sum() + feature_terms.sum()


METHOD = GNNExplainer
