"""A request for explanations, opened: its run, its targets and its classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.datasets.text_files import NODE_ID, read_lines, read_pairs
from dgl_lara.datasets.user_files import load_graph
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.values import ClassQuery
from dgl_lara.inference.adaptive import MAX_PAIRS_SPENT
from dgl_lara.inference.export import explain_to_file
from dgl_lara.inference.request import ExplainRequest, RefineCost
from dgl_lara.inference.rows import refined_rows
from dgl_lara.inference.scorer import Scorer
from dgl_lara.inference.targets import classes_of_options
from dgl_lara.runs.open import open_run
from dgl_lara.runs.run import Run


@dataclass(frozen=True, eq=False)
class ExplainJob:
    """A request with its run and its targets. `cost` grows while explanations are refined."""

    request: ExplainRequest
    run: Run
    targets: Tensor
    classes: list[int]
    cost: RefineCost = field(default_factory=RefineCost)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Return what the explanations depend on, as it is stored with them."""
        run, options, lara = self.run, self.request.refine, self.run.trained()
        return {
            "run": run.folder.resolve().name,
            "dataset": run.dataset.name,
            "source": run.dataset.source,
            "data": run.dataset.fingerprint,
            "players": lara.game.player_set.description,
            "value": lara.game.value,
            "gate": lara.explainer_.config.gate,
            "seed": run.config.training.seed,
            "model": weights_hash(run.model),
            "explainer": weights_hash(lara.explainer_),
            "refined": options.pairs,
            "at least": options.min_confidence,
            "corrected by": lara.samples_.pairs if options.corrected and lara.samples_ else 0,
            "verified": options.verify,
            **dict(zip(("class", "rather than"), self.classes, strict=False)),
        }

    @cached_property
    def _scorer(self) -> Scorer:
        lara = self.run.trained()
        lara.check_supports_refinement(self.request.refine.calls_model)
        return lara.scorer(self.request.workers)

    def to_file(self, targets: Tensor, out: Path) -> int:
        """Write the explanations of some of the targets to a file.

        Args:
            targets: Targets of this job.
            out: File to write.

        Returns:
            The number of rows of the file.
        """
        lara, options, make = self.run.trained(), self.request.refine, None
        if options.calls_model or options.corrected or self.classes:
            stretch = lara.fitted.stretch
            make = refined_rows(self._explain, options, stretch, self.run.config.training.seed, self.cost)
        pairs = options.pairs or (MAX_PAIRS_SPENT if options.min_confidence else 0)
        chosen = targets.to(lara.features.device)
        return explain_to_file(self._scorer, chosen, self.request.top, out, self.metadata, make, pairs)

    def _explain(self, targets: Tensor) -> Explanations:
        query = ClassQuery.repeat(self.classes, len(targets), targets.device)
        return self.run.trained().fitted.with_errors(
            self._scorer.explain(targets, query), self.request.refine.corrected
        )


def open_job(request: ExplainRequest) -> ExplainJob:
    """Open the run of a request and read its targets."""
    listed = read_targets(request.nodes) if request.nodes else None
    run = open_requested_run(request)
    targets = run.dataset.split(request.split) if listed is None else listed
    return ExplainJob(request, run, targets, class_indices(request, run))


def class_indices(request: ExplainRequest, run: Run) -> list[int]:
    """Return the requested classes as numbers."""
    num_classes = run.trained().explainer_.config.num_classes
    return classes_of_options(request.classes, run.names.get("classes"), num_classes)


def open_requested_run(request: ExplainRequest, pairs: Sequence[tuple[int, int]] = ()) -> Run:
    """Open the run of a request, on the requested graph or links instead of its own.

    Args:
        request: Request with a run.
        pairs: Links, instead of those of a file.
    """
    assert request.run is not None
    links = torch.tensor(pairs) if pairs else read_pairs(request.pairs) if request.pairs else None
    run = open_run(request.run, request.device, request.memory, request.offload, request.trust, request.players, True)
    reuse_freed_memory(run.dataset.num_nodes)
    if request.graph is None and links is None:
        return run
    lara = run.trained()
    lara.task.check_requested_links(links)
    if request.graph is None:
        assert links is not None
        return run.with_lara(lara.for_pairs(links), pairs=links)
    graph, features = load_graph(request.graph)
    return run.with_lara(lara.on_graph(graph, features, links), request.graph, graph, features, links)


def read_targets(path: Path) -> Tensor:
    """Read (num_targets,) numbers of nodes or graphs from a text file."""
    numbers = []
    for line_number, line in read_lines(path):
        for word in line.split():
            if not re.fullmatch(NODE_ID, word):
                raise InputError("targets_file.line", path=path, line=line_number, got=line[:40])
            numbers.append(int(word))
    return torch.tensor(numbers, dtype=torch.long)
