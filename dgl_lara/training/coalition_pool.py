"""A pool of coalitions that all targets and all training steps share. f is evaluated under each once.

If players are few, a few hundred pairs of coalitions hold nearly all information, and g needs more steps than that.
Steps then reuse the pairs. They also give the validator its estimate of phi and are kept to correct the scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.distributed import ALONE, ProcessGroup
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW, Samples, mask_invalid, total_of
from dgl_lara.attribution.shared_samples import SHARE_OF_MEMORY, SampleReservoir
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_masks

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players
    from dgl_lara.training.config import TrainingConfig

POOL_PAIRS = 512  # if the size is not configured. The validator would draw as many
PAIRS_PER_PLAYER = 32  # at least, g could do with fewer, the correction of its scores could not
SMALL_GRAPH_NODES = 20_000  # a larger graph has too many players to count, and fewer steps
COUNTED_TARGETS = 128  # whose players are counted


@dataclass(frozen=True, eq=False)
class CoalitionPool:
    """f's outputs for every target under the coalitions of the pool."""

    game: Game
    outputs: CoalitionBatch
    training_targets: Tensor
    seed: int

    @property
    def pairs(self) -> int:
        return len(self.outputs.masks)

    def for_step(self, number: int, masks: int) -> CoalitionBatch:
        """Select the coalitions of a step. Each sweep over the steps takes every pair once, in an order of its own."""
        sweep, place = divmod(number, max(1, self.pairs // masks))
        order = torch.randperm(self.pairs, generator=generator(self.seed * 1_000_003 + 600_000_000 + sweep))
        return self.outputs.for_masks(order[place * masks : (place + 1) * masks].to(self.outputs.ids.device))

    def overlaps(self, targets: Tensor) -> bool:
        """Return whether g is trained on any of these targets."""
        return bool(torch.isin(targets, self.training_targets).any())

    def samples(self, players: Players) -> Samples:
        """Return the samples of the targets' explained classes."""
        game, targets = self.game, players.targets
        masks = self.outputs.masks
        query = game.query(targets)
        y = query.select(self.outputs.for_targets(targets, targets).responses())
        y = mask_invalid(game, masks.keep, y, targets)
        own, total = game.task.is_target(players), total_of(game, players, query)
        return Samples(game.index, players, masks, y, own, total, players.player)

    def add_to(self, reservoir: SampleReservoir) -> None:
        reservoir.add(self.outputs.masks, self.outputs.responses())


def pool_size(game: Game, config: TrainingConfig, targets: Tensor, validation: Tensor, steps: int) -> int:
    """Return the pairs of coalitions in the pool, or 0 if every step shall draw new ones.

    The pool is smaller than what all steps would draw, and fits the memory budget.
    """
    pairs = _default_pairs(game, targets, validation) if config.pool is None else config.pool
    if not 0 < pairs < (drawn := steps * config.masks):
        if config.pool:
            notice("pool.not_needed", drawn=drawn, pairs=pairs)
        return 0
    # logits and values of both sides, for each target and class
    pair_bytes = BYTES_A_DRAW * game.num_players + 4 * 4 * game.num_targets * game.num_classes
    if pairs * pair_bytes <= game.budget.memory / SHARE_OF_MEMORY:
        return pairs
    if config.pool:
        notice("pool.too_large", pairs=pairs)
    return 0


def _default_pairs(game: Game, targets: Tensor, validation: Tensor) -> int:
    """Return 0 if players are many, or if g is validated on training targets, for which it would overfit the pool."""
    if game.graph.num_nodes() > SMALL_GRAPH_NODES or bool(torch.isin(validation, targets).any()):
        return 0
    counts = game.players(sample_targets(targets, COUNTED_TARGETS, 0)).counts
    return POOL_PAIRS if PAIRS_PER_PLAYER * counts.float().mean() <= POOL_PAIRS else 0


def evaluate_pool(
    game: Game, pairs: int, training_targets: Tensor, seed: int, processes: ProcessGroup = ALONE
) -> CoalitionPool:
    """Draw the coalitions of the pool and evaluate f under all of them."""
    game.budget.check(BYTES_A_DRAW * pairs * game.num_players, f"{pairs:,} coalitions of the whole graph")
    drawn, device = generator(seed * 1_000_003 + 500_000_000), game.features.device
    masks = game.index.draw(pairs, game.num_players, drawn, device)
    masks_per_call = max(1, game.nodes_per_call // game.graph.num_nodes())
    bar = Progress(masks.split(masks_per_call), "asking the model about the coalitions of all steps", unit="pass")
    batches = [evaluate_masks(game, game.full_batch, part, processes) for part in bar]
    inside, outside = (torch.cat(side) for side in zip(*((b.inside, b.outside) for b in batches), strict=True))
    outputs = replace(batches[0], masks=masks, inside=inside, outside=outside)
    return CoalitionPool(game, outputs, training_targets, seed)
