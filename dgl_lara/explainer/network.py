"""The explainer g (Eq. 6, 7): a GraphConv encoder and two heads, source p and target t.

    phi_hat(j -> i, class c) = sum_d w_d(i, j) <p_j^(d) * m_c^(d), t_i^(d)>

The form of the paper is the special case with one term, w = 1 and no m: <p_j, t_i>. The gate w depends on where j is
relative to i (`gate.py`). With m_c one g explains every class, without extra model calls in training. A graph task
needs no gate, since its target embedding is the max-pool of t over the graph (Eq. 7).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_lara._util.atomic import load_tensors, save_tensors
from dgl_lara._util.schema import (
    between,
    flag,
    maybe,
    number,
    rows_of,
    table,
    tensor,
    tensors,
    text,
    validate,
    validation_error,
    whole,
    word,
)
from dgl_lara.blackbox.identity import load_exactly
from dgl_lara.constants import EMBEDDINGS, ENCODERS, PLAYERS
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.decoder import Decoder
from dgl_lara.explainer.decoders import DECODERS
from dgl_lara.explainer.encoder import Encoder, EncoderGraph
from dgl_lara.explainer.gate import Gate
from dgl_lara.explainer.gates import GATES
from dgl_lara.game.receptive_field import MAX_HOPS
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import TASKS, as_task
from dgl_lara.game.values import ClassQuery

FIELDS = {
    "task": word(*TASKS), "in_dim": whole(1, 2**31), "num_classes": whole(1, 2**31), "hops": whole(0, MAX_HOPS),
    "layers": whole(0, 64), "hidden": whole(1, 16_384), "dim": whole(1, 4096), "gate": word(*GATES.names),
    "embedding": word(*EMBEDDINGS), "encoder": word(*ENCODERS), "all_classes": flag, "players": word(*PLAYERS),
    "columns": whole(0, 2**31), "alone": flag, "edge_columns": whole(0, 2**31),
}  # fmt: skip


@dataclass(frozen=True)
class ExplainerConfig:
    """Shape of g, stored with its weights.

    Attributes:
        task: "node", "graph" or "link".
        in_dim: Inputs of each node.
        num_classes: Classes of the explained model.
        hops: K of the explained model.
        layers: GraphConv layers. With 0 the encoder is an MLP.
        hidden: Width of the encoder.
        dim: Width of a term.
        gate: Name of the gate.
        embedding: "dual", or "single" if p and t share a head.
        encoder: "residual", or "plain" for the stack of GraphConv and ReLU of the paper.
        all_classes: Whether g explains all classes.
        players: Name of the player set.
        columns: Columns of the features, if they are players.
        alone: Whether features are removed in the target only.
        edge_columns: Columns of the edge data that g reads.
    """

    task: str
    in_dim: int
    num_classes: int
    hops: int
    layers: int
    hidden: int = 64
    dim: int = 20
    gate: str = "walk"
    embedding: str = "dual"
    encoder: str = "residual"
    all_classes: bool = True
    players: str = "nodes"
    columns: int = 0
    alone: bool = False
    edge_columns: int = 0

    def __post_init__(self) -> None:
        wrong = validation_error(vars(self), FIELDS)
        if wrong:
            raise InputError("explainer.shape", problem=wrong)

    @property
    def num_weights(self) -> int:
        """Return the number of weights of encoder and heads, without biases."""
        states = self.hidden * (self.layers + 1 if self.encoder == "residual" else 1)
        deep = TASKS[self.task].head_layers > 1 and self.encoder == "residual"
        source = DECODERS[self.players].source_width(self)
        widths = [source, self.width] if self.embedding == "dual" else [self.width]
        heads = sum((states + width) * self.hidden if deep else states * width for width in widths if width)
        heads += self.all_classes * self.num_classes * self.width
        heads += self.columns * self.width
        return self.hidden * (self.in_dim + self.layers * self.hidden) + heads

    @cached_property
    def reach(self) -> int:
        """Return the distance from the target up to which nodes hold messages of players."""
        return DECODERS[self.players].reach(self)

    @cached_property
    def terms(self) -> int:
        """Return how many products <p, t> a score sums."""
        return GATES[self.gate].terms(self.reach)

    @cached_property
    def width(self) -> int:
        """Return the width of p and t."""
        return self.terms * self.dim


@dataclass(frozen=True, eq=False)
class Embeddings:
    """p of all nodes and t of all targets.

    Attributes:
        source: p, one row for each node or for each feature column, see `Explainer.source_shape`.
        target: t, (num_targets, width).
    """

    source: Any
    target: Tensor


class Explainer(nn.Module):
    """The network g. One pass embeds all nodes, and any score is a product of two embeddings."""

    centre: Tensor
    spread: Tensor
    clip: Tensor
    unit: Tensor

    def __init__(self, config: ExplainerConfig) -> None:
        super().__init__()
        self.config = config
        self.task: Task = as_task(config.task)
        self.gate: Gate = GATES[config.gate]
        self.decoder: Decoder = DECODERS[config.players]
        self.encoder = Encoder(config.in_dim, config.hidden, config.layers, config.encoder == "residual")
        source_width = self.decoder.source_width(config)
        if config.embedding == "single" and source_width != config.width:
            raise InputError("explainer.single_embedding", players=config.players)
        self.task.check_embedding(config.embedding)
        self.source_head = self._head(source_width) if source_width else None
        shared = self.source_head if config.embedding == "single" else None
        self.target_head = self._head(config.width * self.task.num_endpoints) if shared is None else shared
        classes = config.num_classes if config.all_classes else 0
        self.class_weight = nn.Parameter(0.5 + 0.5 * torch.randn(classes, config.width)) if classes else None
        self.decoder_weights = self.decoder.weights(config)
        # inputs are centred, scaled and clipped, so that unseen nodes do not explode. `unit` is the unit of scores
        self.register_buffer("centre", torch.zeros(config.in_dim))
        self.register_buffer("spread", torch.ones(config.in_dim))
        self.register_buffer("clip", torch.tensor(torch.inf))
        self.register_buffer("unit", torch.ones(()))

    def _head(self, width: int) -> nn.Linear | nn.Sequential:
        """Return a linear layer, or two layers if players have no distances that a gate could use."""
        config, states = self.config, self.encoder.out_dim
        if self.task.head_layers == 1 or config.encoder == "plain":
            return nn.Linear(states, width)
        return nn.Sequential(nn.Linear(states, config.hidden), nn.ReLU(), nn.Linear(config.hidden, width))

    def _heads(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of both heads. Their hidden layers are one product, which is faster than two."""
        source, target = self.source_head, self.target_head
        if not isinstance(source, nn.Sequential) or not isinstance(target, nn.Sequential) or source is target:
            return h[:, :0] if source is None else source(h), target(h)
        first = [torch.cat(both) for both in zip(source[0].parameters(), target[0].parameters(), strict=True)]
        hidden = F.linear(h, *first).relu_().chunk(2, dim=1)
        return source[2](hidden[0]), target[2](hidden[1])

    def forward(self, graph: EncoderGraph) -> tuple[Tensor, Tensor]:
        """Return p (see `Decoder.sources`) and t of every target, rows of terms * dim (Eq. 7 for graphs)."""
        h = self.encoder(graph, self.normalised(graph.inputs))
        p, t = self.embeddings(*self._heads(h), graph.scale)
        return p, self.task.pool(graph.sizes, t)

    def embeddings(self, source: Tensor, target: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Return p and t from the outputs of the heads.

        For pairs, each end also has factors for the t of the other end.
        """
        target, *other = target.chunk(self.task.num_endpoints, dim=1)
        _, target = self.gate.scaled(target, target, scale)
        # layer-wise passes have the rest in main memory
        target = target * self.unit.to(target.device)
        return self.decoder.sources(self, source, scale), torch.cat([target, *(1 + part for part in other)], dim=1)

    def source_shape(self, num_nodes: int) -> tuple[int, int]:
        """Return the shape of p for a graph with this number of nodes."""
        source_width = self.decoder.source_width(self.config)
        return (num_nodes, source_width) if source_width else (self.config.columns, self.config.width)

    def normalised(self, inputs: Tensor) -> Tensor:
        """Return inputs that are centred, scaled and clipped as in training."""
        if inputs.shape[1] != self.config.in_dim:
            raise InputError("explainer.inputs", expected=self.config.in_dim, got=inputs.shape[1])
        return (inputs - self.centre).div_(self.spread).clamp_(-self.clip, self.clip)

    def checked_query(self, predicted: ClassQuery, query: ClassQuery | None) -> ClassQuery:
        """Return the query, or the one about the predicted classes if there is none.

        Raises:
            InputError: If g was trained for the predicted class only and another one is requested.
        """
        if query is None or self.class_weight is not None:
            return query or predicted
        if query.versus is not None or bool((query.classes != predicted.classes).any()):
            raise InputError("classes.predicted_only")
        return query

    def for_class(self, target: Tensor, query: ClassQuery) -> Tensor:
        """Return t weighted by the class of each row, (rows, width).

        Scores are linear in the weights, so a contrast of two classes is the difference of two explanations.
        """
        if self.class_weight is None:
            return target
        weight = query.rows_of(self.class_weight)
        t = target.view(len(target), self.task.num_endpoints, -1)
        return (t * weight.unsqueeze(1)).view_as(target)

    def all_class_weights(self) -> Tensor:
        """Return the weights of all classes, (num_classes or 1, width)."""
        if self.class_weight is None:
            return torch.ones(1, self.config.width, device=self.unit.device)
        return self.class_weight


# --- on disk -------------------------------------------------------------------------------------------------------


def save_explainer(explainer: Explainer, path: Path, **more: Any) -> None:
    """Write shape and weights of an explainer.

    Args:
        explainer: The explainer.
        path: File to write.
        more: Plain values to store with it.
    """
    content = {"config": asdict(explainer.config), "weights": explainer.state_dict(), **more}
    save_tensors(content, path)


def load_explainer(path: Path, device: torch.device) -> tuple[Explainer, dict[str, Any]]:
    """Read an explainer, ready to explain, and what else the file holds.

    Args:
        path: File that `save_explainer` wrote.
        device: Device of the explainer.

    Raises:
        LaraError: If the file is damaged.
    """
    fields = {"config": table, "weights": tensors}
    more = {
        "model": text,
        "code": text,
        "training": table,
        "value": text,
        "index": text,
        "data": maybe(text),
        "errors": maybe(table),
        "samples": maybe(table),
        "samples_file": text,
        "cost": maybe(between(0, 1e30)),
        "best": number,
        "players": maybe(table),
        "pairs": maybe(tensor(torch.long, None, 2)),
        "history": rows_of({"step": whole(), "epoch": whole(), "loss": number, "agreement": number}),
    }
    content = load_tensors(path)
    if not isinstance(content, dict) or not fields.keys() <= content.keys():
        raise LaraError("explainer.file", path=path)
    required = {"model", "code", "training", "value", "errors", "cost"} if "model" in content else set()
    validate(content, {**fields, **more}, path, optional=tuple(more.keys() - required))
    try:
        config, weights = ExplainerConfig(**content.pop("config")), content.pop("weights")
        # before anything is built: a shape that does not fit its weights could be of any size
        if sum(part.numel() for part in weights.values()) < config.num_weights:
            raise LaraError("explainer.weights")
        explainer = Explainer(config)
        load_exactly(explainer, weights)
    except (KeyError, TypeError, AttributeError, RuntimeError, LaraError) as error:
        raise LaraError("explainer.damaged", path=path, problem=str(error).splitlines()[0]) from error
    return explainer.to(device).requires_grad_(False).eval(), content
