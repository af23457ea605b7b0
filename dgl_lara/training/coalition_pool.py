"""A bounded number of coalitions that all targets share, which f is asked about once, before the first step.

Where players are few, a few hundred pairs (S, rest) say nearly all that there is to know, and g needs more steps than
that: steps take the same pairs again and again, and f is asked no further. The judge reads phi of validation targets,
which g does not learn from, off them, and they are kept to correct the scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgl_lara._util.distributed import ALONE, ProcessGroup
from dgl_lara._util.progress import Progress, log_info
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW, Samples, mask_invalid, random_coalitions
from dgl_lara.attribution.shared_samples import SHARE_OF_MEMORY, SampleReservoir
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.game.values import to_values
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_masks
from dgl_lara.training.config import TrainingConfig

PAIRS = 512  # in a pool that is chosen here: as many as the judge would draw by itself
A_PLAYER = 32  # of them, at the least; g could do with fewer, the correction of its scores could not
SMALL_GRAPH = 20_000  # nodes: on larger ones players are too many to be counted, and steps fewer
COUNTED = 128  # targets whose players are counted


@dataclass(frozen=True, eq=False)
class CoalitionPool:
    """What f says of every target under these coalitions."""

    game: Game
    heard: CoalitionBatch
    learning: Tensor  # the targets that g is taught with
    seed: int

    @property
    def pairs(self) -> int:
        return len(self.heard.keep)

    def of_step(self, number: int, masks: int) -> CoalitionBatch:
        """Every pair is taken once before any is taken again, each time in another order."""
        sweep, place = divmod(number, max(1, self.pairs // masks))
        order = torch.randperm(self.pairs, generator=generator(self.seed * 1_000_003 + 600_000_000 + sweep))
        return self.heard.under(order[place * masks : (place + 1) * masks].to(self.heard.keep.device))

    def teaches(self, targets: Tensor) -> bool:
        """Any of them."""
        return bool(torch.isin(targets, self.learning).any())

    def samples(self, players: Players) -> Samples:
        """Of the explained class of some targets."""
        game, targets = self.game, players.targets
        d = game.query(targets).select(self.heard.of(targets, targets).differences(game.value))
        known = mask_invalid(game, self.heard.keep, d, targets)
        return Samples(players, self.heard.keep, known, game.task.is_target(players), players.player)

    def show(self, keeper: SampleReservoir) -> None:
        inside, outside = (to_values(side, self.game.value) for side in (self.heard.inside, self.heard.outside))
        keeper.add(self.heard.keep, inside, outside)


def pool_size(game: Game, config: TrainingConfig, targets: Tensor, validation: Tensor, steps: int) -> int:
    """Pairs, fewer than so many steps would draw, and within the memory; 0: every step asks f about new ones."""
    pairs = _enough(game, targets, validation) if config.pool is None else config.pool
    if not 0 < pairs < (drawn := steps * config.masks):
        if config.pool:
            log_info(
                f"no pool: all steps together draw {drawn:,} pairs of coalitions, not more than the {pairs:,} of it."
            )
        return 0
    # of each target and class both sides as logits, and again as values
    a_pair = BYTES_A_DRAW * game.num_players + 4 * 4 * game.num_targets * game.num_classes
    if pairs * a_pair <= game.budget.memory / SHARE_OF_MEMORY:
        return pairs
    if config.pool:
        log_info(
            f"the model's answers to {pairs:,} coalitions of the whole graph do not fit: each step asks about new ones."
        )
    return 0


def _enough(game: Game, targets: Tensor, validation: Tensor) -> int:
    """0 where players are more, or where g is judged on targets that it learns from: of those it would know the pool
    by heart."""
    if game.graph.num_nodes() > SMALL_GRAPH or bool(torch.isin(validation, targets).any()):
        return 0
    counted = game.players(sample_targets(targets, COUNTED, 0)).counts
    return PAIRS if A_PLAYER * counted.float().mean() <= PAIRS else 0


def ask_pool(game: Game, pairs: int, learning: Tensor, seed: int, ranks: ProcessGroup = ALONE) -> CoalitionPool:
    game.budget.check(BYTES_A_DRAW * pairs * game.num_players, f"{pairs:,} coalitions of the whole graph")
    drawn, device = generator(seed * 1_000_003 + 500_000_000), game.features.device
    keep = random_coalitions(pairs, game.num_players, drawn, device)
    step = max(1, game.nodes_per_call // game.graph.num_nodes())
    bar = Progress(keep.split(step), "asking the model about the coalitions of all steps", unit="pass")
    parts = [evaluate_masks(game, game.full_batch, part, ranks) for part in bar]
    inside, outside = (torch.cat(side) for side in zip(*((part.inside, part.outside) for part in parts), strict=True))
    return CoalitionPool(game, replace(parts[0], keep=keep, inside=inside, outside=outside), learning, seed)
