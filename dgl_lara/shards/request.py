"""Many explanations asked of a run: a question that any process can open, here or on another machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.environment import versions
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.datasets.file_fields import NUMBER, text_lines
from dgl_lara.datasets.link_files import read_pairs
from dgl_lara.datasets.user_files import load_graph
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.inference.adaptive import MOST_SPENT
from dgl_lara.inference.export import explain_to_file
from dgl_lara.inference.rows import RefineBudget, trusted_rows
from dgl_lara.inference.targets import named_classes
from dgl_lara.inference.top_players import BulkExplainer
from dgl_lara.runs.run import Run, open_run
from dgl_lara.shards.shard_folder import Shard, ShardFolder


@dataclass(frozen=True)
class RefineOptions:
    """What is bought with model calls at the time of asking, and whether those of training are used."""

    refine: int | None = None  # pairs of coalitions
    at_least: float | None = None  # or: until every explanation has this confidence
    verify: bool = False
    corrected: bool = True


@dataclass(frozen=True)
class ExplainRequest:
    """Names and numbers only: what is large is opened where it is needed."""

    run: Path
    wanted: RefineOptions = RefineOptions()
    top: int | None = 20  # players kept; None: all of them
    split: str = "all"
    nodes: Path | None = None  # a file of numbers, in the place of a split
    pairs: Path | None = None  # a file of links
    graph: Path | None = None  # a file with another graph
    players: str | None = None
    memory: int | None = None
    workers: int = 0
    offload: bool = False
    device: str = "cpu"
    trust: bool | str = False
    classes: tuple[int | str, ...] = ()  # explained in the place of the predicted one; and rather than which

    def open(self) -> ExplainJob:
        named = read_targets(self.nodes) if self.nodes else None
        run = self.open_run()
        targets = run.dataset.split(self.split) if named is None else named
        return ExplainJob(self, run, targets, self.classes_of(run))

    def classes_of(self, run: Run) -> list[int]:
        """The classes by their numbers."""
        names, count = run.names.get("classes"), run.trained().explainer_.config.num_classes
        return named_classes(self.classes, names, count)

    def open_run(self, pairs: Sequence[tuple[int, int]] = ()) -> Run:
        """The run, with what is asked about in the place of its own graph, or of its own links."""
        links = torch.tensor(pairs) if pairs else read_pairs(self.pairs) if self.pairs else None
        run = open_run(self.run, self.device, self.memory, self.offload, self.trust, self.players, True)
        reuse_freed_memory(run.dataset.num_nodes)
        return run if self.graph is None and links is None else _elsewhere(run, self.graph, links)


@dataclass(frozen=True, eq=False)
class ExplainJob:
    """The question with its run, and the targets that it asks about."""

    question: ExplainRequest
    run: Run
    targets: Tensor
    classes: list[int]

    @cached_property
    def bought(self) -> RefineBudget:
        wanted, errors = self.question.wanted, self.run.trained().errors_
        return RefineBudget(wanted.refine, wanted.at_least, errors.stretch if errors else 1.0, wanted.verify)

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the explanations are explanations of."""
        run, wanted, lara = self.run, self.question.wanted, self.run.trained()
        return {
            "run": run.folder.resolve().name,
            "dataset": run.dataset.name,
            "source": run.dataset.source,
            "data": run.dataset.fingerprint,
            "players": lara.game.kind.in_words,
            "value": lara.game.value,
            "gate": lara.explainer_.config.gate,
            "seed": run.config.training.seed,
            "model": weights_hash(run.model),
            "explainer": weights_hash(lara.explainer_),
            "refined": wanted.refine,
            "at least": wanted.at_least,
            "corrected by": lara.samples_.pairs if wanted.corrected and lara.samples_ else 0,
            "verified": wanted.verify,
            **dict(zip(("class", "rather than"), self.classes, strict=False)),
        }

    @cached_property
    def _bulk(self) -> BulkExplainer:
        lara, wanted = self.run.trained(), self.question.wanted
        lara.check_supports_refinement(wanted.refine or wanted.at_least or wanted.verify)
        return lara.bulk(self.question.workers)

    def to_file(self, targets: Tensor, out: Path) -> int:
        """Stream the explanations of these of its targets; returns how many rows the file has."""
        lara, wanted = self.run.trained(), self.question.wanted
        make = trusted_rows(self._explain, self.bought, self.run.config.training.seed)
        plain = not (wanted.refine or wanted.at_least or wanted.verify or wanted.corrected or self.classes)
        pairs = wanted.refine or (MOST_SPENT if wanted.at_least else 0)
        asked = targets.to(lara.features.device)
        return explain_to_file(self._bulk, asked, self.question.top, out, self.about, None if plain else make, pairs)

    def _explain(self, targets: Tensor) -> Explanations:
        classes = None
        if self.classes:  # (num_targets,), or (num_targets, 2) where one is set against another
            classes = torch.tensor(self.classes, device=targets.device).expand(len(targets), -1).squeeze(1)
        return self.run.trained().explain_indices(targets, classes, self.question.wanted.corrected)

    def to_shard(self, shard: Shard, folder: ShardFolder) -> dict[str, Any]:
        """Explain one shard, unless that was done before; returns its record."""
        targets, asked = shard.cut(self.targets), self._for_shards(shard.of, folder.ending)
        folder.agree(asked)
        record = folder.record(shard)
        if record is None:
            rows = self.to_file(targets, folder.file(shard))
            folder.agree(asked)
            record = folder.done(shard, len(targets), rows)
        folder.complete()
        return record

    def _for_shards(self, of: int, ending: str) -> dict[str, Any]:
        """What must be the same for all shards, wherever they are explained."""
        order = hashlib.sha256(self.targets.cpu().numpy().tobytes()).hexdigest()[:16]
        count = {"targets": len(self.targets), "order": order, "top": self.question.top, "shards": of}
        return {
            **self.about,
            **count,
            "files": ending,
            **{f"version of {name}": one for name, one in versions().items()},
        }


def _elsewhere(run: Run, graph_file: Path | None, pairs: Tensor | None) -> Run:
    lara = run.trained()
    if pairs is not None and lara.task.sides == 1:
        raise InputError(f"this run explains {lara.task}s, not links (its data set is {run.dataset.name}).")
    if graph_file is None:
        assert pairs is not None
        return run.with_lara(lara.about(pairs), pairs=pairs)
    if lara.task.sides > 1 and pairs is None:
        raise InputError("say with --pair or --pairs which links of that graph to explain.")
    graph, features = load_graph(graph_file)
    return run.with_lara(lara.on(graph, features, pairs), graph_file, graph, features, pairs)


def read_targets(path: Path) -> Tensor:
    """Node (or graph) numbers from a text file, one a line."""
    numbers = []
    for place, line in text_lines(path):
        for word in line.split():
            if not re.fullmatch(NUMBER, word):
                raise InputError(f"{path} must hold one whole number a line (line {place} is '{line[:40]}').")
            numbers.append(int(word))
    return torch.tensor(numbers, dtype=torch.long)
