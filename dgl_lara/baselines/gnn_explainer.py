"""`gnn-explainer` (Ying et al. 2019): a mask of edges and features, optimised for each target.

It minimises the cross-entropy of the predicted class under the masks, plus their size and entropy. Targets share
nothing: a batch sums their losses, each normalised by itself, so the result is that of one target at a time.

Weights and terms are the authors'. Two settings differ, because theirs depend on the size of the graph. Masks start
around 1/2 (theirs around 3/4, from where the entropy drives all masks of a small graph to 1). The learning rate lies
between theirs (.1) and that of the libraries (.01, which changes a mask too little in 100 epochs).
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

EDGE_SIZE, EDGE_ENTROPY = 0.005, 1.0  # weights of the terms of the loss
FEATURE_SIZE, FEATURE_ENTROPY = 1.0, 0.1

# All nodes of BA-2Motifs have equal features, so masking features would only scale the input.
SETTINGS: dict[str, dict[str, bool]] = {"ba-2motifs": {"mask_features": False}}


class GNNExplainer(EdgeMethod):
    """A mask of edges, and if `mask_features` a mask of features, for each target.

    Args:
        game: The explained game.
        seed: Seed of the first masks.
        epochs: Steps of Adam.
        lr: Learning rate of Adam.
        mask_features: Optimise a mask of features too.
    """

    name = "gnn-explainer"
    style = ("#0072B2", "-")

    def __init__(
        self, game: Game, seed: int = 0, epochs: int = 100, lr: float = 0.03, mask_features: bool = True
    ) -> None:
        super().__init__(game, seed)
        self.epochs, self.lr, self.mask_features = epochs, lr, mask_features

    @classmethod
    def for_benchmark(cls, game: Game, seed: int, setting: BenchmarkSetting) -> GNNExplainer:
        return cls(game, seed, **SETTINGS.get(setting.dataset, {}))

    def score(self, batch: MaskBatch) -> Tensor:
        features = self.game.features[batch.egos.nodes]
        edge_logits = self._initial_logits(batch).requires_grad_()
        feature_logits = features.new_zeros(len(batch.targets), features.shape[1]).requires_grad_()
        optimiser = torch.optim.Adam([edge_logits, feature_logits], lr=self.lr)
        with eval_mode(self.game.f), torch.enable_grad():
            for _ in Progress(range(self.epochs), f"{self.label}, {len(batch.targets)} target(s) at once"):
                loss = self._loss(batch, features, edge_logits.sigmoid(), feature_logits.sigmoid())
                optimiser.zero_grad()
                loss.backward(inputs=[edge_logits, feature_logits])  # f's own parameters get no gradient
                optimiser.step()
        return batch.both_ways(edge_logits.detach().sigmoid())

    def _initial_logits(self, batch: MaskBatch) -> Tensor:
        """Draw (num_scored,) normal numbers, from a generator for each target."""
        edges = torch.bincount(batch.row, minlength=len(batch.targets)).tolist()
        logits = [
            torch.randn(count, generator=generator(self.seed * 1_000_003 + target)) * (2 / size) ** 0.5
            for target, count, size in zip(batch.targets.tolist(), edges, batch.num_players.tolist(), strict=True)
        ]
        return torch.cat(logits).to(batch.row.device)

    def _loss(self, batch: MaskBatch, features: Tensor, edge_mask: Tensor, feature_mask: Tensor) -> Tensor:
        """Sum the losses of the targets. `feature_mask` is (num_targets, dim)."""
        inputs = features * feature_mask[batch.egos.row] if self.mask_features else features
        logits = self.predict(batch, batch.both_ways(edge_mask), inputs)
        prediction = F.cross_entropy(logits, self.game.explained_class[batch.targets], reduction="sum")
        # the authors average over all pairs of nodes. Averaged over the edges, the entropy would outweigh the
        # prediction on small graphs and drive every mask to 1
        mean_entropy = batch.sums(entropy(edge_mask)) / batch.num_players**2
        edge_terms = EDGE_SIZE * batch.sums(edge_mask) + EDGE_ENTROPY * mean_entropy
        feature_terms = FEATURE_SIZE * feature_mask.mean(dim=1) + FEATURE_ENTROPY * entropy(feature_mask).mean(dim=1)
        return prediction + edge_terms.sum() + feature_terms.sum()


METHOD = GNNExplainer
