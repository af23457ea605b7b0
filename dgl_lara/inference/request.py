"""What to explain and how: one request for the command line, HTTP, shards and Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dgl_lara.errors import message
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.adaptive import refine_until_confident
from dgl_lara.inference.refine import refine


@dataclass(frozen=True)
class RefineOptions:
    """Model calls that a request spends on its explanations.

    Args:
        pairs: Pairs of coalitions for every explanation.
        min_confidence: Refine only explanations below this confidence, until they reach it.
        verify: Measure the fidelity of every explanation.
        corrected: Correct the scores with the samples that were kept from training.
    """

    pairs: int | None = None
    min_confidence: float | None = None
    verify: bool = False
    corrected: bool = True

    @property
    def calls_model(self) -> bool:
        return bool(self.pairs or self.min_confidence or self.verify)


@dataclass(frozen=True)
class ExplainRequest:
    """A request for explanations. It holds names and numbers only, so that any process can open it.

    Args:
        run: Folder of the run. None means the run that is served.
        refine: Model calls to spend.
        top: Players kept of each target. None means all of them.
        classes: Class to explain instead of the predicted one, and the class it is set against.
        players: Player set. None means the first one trained.
        split: Targets of this split ("all", "train", "val", "test").
        nodes: File of target numbers, instead of a split.
        pairs: File of links, instead of those of the run.
        graph: File with another graph, instead of that of the run.
        memory: Bytes of working memory. None means most of what is free.
        workers: Sampler processes for graphs that are too large for one pass.
        offload: Keep data in main memory and move batches to the device.
        device: Device to compute on.
        trust: Whether code of the run may be loaded, as for `open_run`.
    """

    run: Path | None = None
    refine: RefineOptions = RefineOptions()
    top: int | None = 20
    classes: tuple[int | str, ...] = ()
    players: str | None = None
    split: str = "all"
    nodes: Path | None = None
    pairs: Path | None = None
    graph: Path | None = None
    memory: int | None = None
    workers: int = 0
    offload: bool = False
    device: str = "cpu"
    trust: bool | str = False


@dataclass
class RefineCost:
    """What refining has cost so far, in pairs of coalitions, and what it changed."""

    num_doubtful: int = 0
    num_pairs: int = 0
    num_still_doubtful: int = 0

    def text(self, min_confidence: float) -> str:
        """Return a sentence about the model calls."""
        if not self.num_doubtful:
            return message("refine.none", least=min_confidence)
        code = "refine.still_doubtful" if self.num_still_doubtful else "refine.done"
        fields = {"count": self.num_doubtful, "left": self.num_still_doubtful, "coalitions": 2 * self.num_pairs}
        return message(code, least=min_confidence, **fields)


def refine_as_requested(
    game: Game, explanations: Explanations, options: RefineOptions, stretch: float, seed: int = 0
) -> tuple[Explanations, dict[str, Tensor], RefineCost]:
    """Refine explanations with the model calls that a request allows.

    Args:
        game: Game that evaluates the model.
        explanations: Explanations to refine.
        options: Model calls to spend.
        stretch: Factor of the expected errors, see `ErrorModel`.
        seed: Seed of the coalitions.

    Returns:
        The explanations, columns for a table ("moved" or "pairs", one number a target), and the cost.
    """
    if options.pairs:
        refined = refine(game, explanations, options.pairs, stretch, seed)
        return refined.explanations, {"moved": refined.moved}, RefineCost()
    if options.min_confidence:
        result = refine_until_confident(game, explanations, stretch, options.min_confidence, seed)
        counts = ((result.pairs > 0).sum(), result.pairs.sum(), result.still.sum())
        return result.explanations, {"pairs": result.pairs}, RefineCost(*map(int, counts))
    return explanations, {}, RefineCost()
