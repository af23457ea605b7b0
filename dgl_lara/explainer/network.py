"""The explainer g (Eq. 6, 7): a GraphConv encoder and two heads, source p and target t.

    phi_hat(j -> i, class c) = sum_d w_d(i, j) <p_j^(d) * m_c^(d), t_i^(d)>

The paper's form is the special case with one term, w = 1 and no m: <p_j, t_i>. The gate w says where j stands as seen
from i (`gate.py`). m_c lets one g explain every class: each logit of f is a game of its own and teaches g without extra
model calls. A graph task needs no gate, its target embedding is the max-pool of t over the graph (Eq. 7).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.receptive_field import MAX_HOPS
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import TASKS, as_task

FIELDS = {
    "task": word(*TASKS), "in_dim": whole(1, 2**31), "num_classes": whole(1, 2**31), "hops": whole(0, MAX_HOPS),
    "layers": whole(0, 64), "hidden": whole(1, 16_384), "dim": whole(1, 4096), "gate": word(*GATES.names),
    "embedding": word(*EMBEDDINGS), "encoder": word(*ENCODERS), "all_classes": flag, "players": word(*PLAYERS),
    "columns": whole(0, 2**31), "alone": flag, "edge_columns": whole(0, 2**31),
}  # fmt: skip


@dataclass(frozen=True)
class ExplainerConfig:
    """Everything that determines the shape of g; stored beside its weights."""

    task: str
    in_dim: int
    num_classes: int
    hops: int  # K of the explained model
    layers: int  # GraphConv layers of g; 0 makes it an MLP
    hidden: int = 64
    dim: int = 20
    gate: str = "walk"
    embedding: str = "dual"
    encoder: str = "residual"  # plain: the paper's stack of GraphConv and ReLU
    all_classes: bool = True
    players: str = "nodes"  # which kind of players it scores
    columns: int = 0  # of the features, where they play
    alone: bool = False  # features play in the target alone
    edge_columns: int = 0  # what g sees of an edge beside its ends

    def __post_init__(self) -> None:
        wrong = validation_error(vars(self), FIELDS)
        if wrong:
            raise InputError(f"the shape of an explainer: {wrong}.")

    @property
    def num_weights(self) -> int:
        """Of the encoder and the heads, but for biases."""
        states = self.hidden * (self.layers + 1 if self.encoder == "residual" else 1)
        deep = TASKS[self.task].head_layers > 1 and self.encoder == "residual"
        source = DECODERS[self.players].source_width(self)
        widths = [source, self.width] if self.embedding == "dual" else [self.width]
        heads = sum((states + width) * self.hidden if deep else states * width for width in widths if width)
        heads += self.all_classes * self.num_classes * self.width
        heads += self.columns * self.width
        return self.hidden * (self.in_dim + self.layers * self.hidden) + heads

    @property
    def reach(self) -> int:
        """How many hops from the target the nodes stand at which players contribute."""
        return DECODERS[self.players].reach(self)

    @property
    def terms(self) -> int:
        """How many <p, t> a score sums."""
        return GATES[self.gate].terms(self.reach)

    @property
    def width(self) -> int:
        """Of p and t."""
        return self.terms * self.dim


class Explainer(nn.Module):
    """g: embeddings of all nodes in one pass; scores of any pair from them."""

    centre: Tensor
    spread: Tensor
    clip: Tensor
    unit: Tensor

    def __init__(self, config: ExplainerConfig) -> None:
        super().__init__()
        self.config = config
        self.task: Task = as_task(config.task)
        self.gate: Gate = GATES[config.gate]
        self.form: Decoder = DECODERS[config.players]
        self.encoder = Encoder(config.in_dim, config.hidden, config.layers, config.encoder == "residual")
        said = self.form.source_width(config)
        if config.embedding == "single" and said != config.width:
            raise InputError(f"one embedding for p and t is for nodes as players, not for {config.players}.")
        self.task.check_embedding(config.embedding)
        self.source_head = self._head(said) if said else None
        shared = self.source_head if config.embedding == "single" else None
        self.target_head = self._head(config.width * self.task.num_endpoints) if shared is None else shared
        classes = config.num_classes if config.all_classes else 0
        self.class_weight = nn.Parameter(0.5 + 0.5 * torch.randn(classes, config.width)) if classes else None
        self.form_weights = self.form.weights(config)
        # inputs are centred, scaled and clipped: unseen nodes cannot blow up; scores come in units of `unit`
        self.register_buffer("centre", torch.zeros(config.in_dim))
        self.register_buffer("spread", torch.ones(config.in_dim))
        self.register_buffer("clip", torch.tensor(torch.inf))
        self.register_buffer("unit", torch.ones(()))

    def _head(self, width: int) -> nn.Linear | nn.Sequential:
        """Linear; where no gate can tell players apart because they have no distances, with one hidden layer."""
        config, states = self.config, self.encoder.out_dim
        if self.task.head_layers == 1 or config.encoder == "plain":
            return nn.Linear(states, width)
        return nn.Sequential(nn.Linear(states, config.hidden), nn.ReLU(), nn.Linear(config.hidden, width))

    def _heads(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """What both say; hidden layers side by side are one product, which is faster than two."""
        source, target = self.source_head, self.target_head
        if not isinstance(source, nn.Sequential) or not isinstance(target, nn.Sequential) or source is target:
            return h[:, :0] if source is None else source(h), target(h)
        first = [torch.cat(both) for both in zip(source[0].parameters(), target[0].parameters(), strict=True)]
        hidden = F.linear(h, *first).relu_().chunk(2, dim=1)
        return source[2](hidden[0]), target[2](hidden[1])

    def forward(self, graph: EncoderGraph) -> tuple[Tensor, Tensor]:
        """p (`Form.sources`) and t of every target (node, or graph: Eq. 7), rows of terms * dim."""
        h = self.encoder(graph, self.normalised(graph.inputs))
        p, t = self.embeddings(*self._heads(h), graph.scale)
        return p, self.task.pool(graph.sizes, t)

    def embeddings(self, source: Tensor, target: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """p and t from what the heads say. Of a pair, each end also says what it makes of the other's t."""
        target, *other = target.chunk(self.task.num_endpoints, dim=1)
        _, target = self.gate.scaled(target, target, scale)
        # layer-wise passes have the rest in main memory
        target = target * self.unit.to(target.device)
        return self.form.sources(self, source, scale), torch.cat([target, *(1 + part for part in other)], dim=1)

    def source_shape(self, num_nodes: int) -> tuple[int, int]:
        """Of p, for a graph of so many nodes."""
        said = self.form.source_width(self.config)
        return (num_nodes, said) if said else (self.config.columns, self.config.width)

    def normalised(self, inputs: Tensor) -> Tensor:
        if inputs.shape[1] != self.config.in_dim:
            raise InputError("explainer.inputs", expected=self.config.in_dim, got=inputs.shape[1])
        return (inputs - self.centre).div_(self.spread).clamp_(-self.clip, self.clip)

    def for_class(self, target: Tensor, query: ClassQuery) -> Tensor:
        """(rows, width) Weight t by the class of each row.

        Scores are linear in the weights, so a contrast of two classes is the difference of two explanations.
        """
        if self.class_weight is None:
            return target
        weight = query.rows_of(self.class_weight)
        t = target.view(len(target), self.task.num_endpoints, -1)
        return (t * weight.unsqueeze(1)).view_as(target)

    def all_class_weights(self) -> Tensor:
        """(num_classes or 1, width)"""
        if self.class_weight is None:
            return torch.ones(1, self.config.width, device=self.unit.device)
        return self.class_weight


# --- on disk -------------------------------------------------------------------------------------------------------


def save_explainer(explainer: Explainer, path: Path, **more: Any) -> None:
    """Shape and weights, and whatever plain values are to go with them."""
    content = {"config": asdict(explainer.config), "weights": explainer.state_dict(), **more}
    save_tensors(content, path)


def load_explainer(path: Path, device: torch.device) -> tuple[Explainer, dict[str, Any]]:
    """g, ready to explain, and what else the file holds."""
    fields = {"config": table, "weights": tensors}
    more = {
        "model": text,
        "code": text,
        "training": table,
        "value": text,
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
        raise LaraError(f"{path} holds no trained explainer: neither `save` of a LARA nor `dgl-lara train` wrote it.")
    told = {"model", "code", "training", "value", "errors", "cost"} if "model" in content else set()  # older ones: less
    validate(content, {**fields, **more}, path, optional=tuple(more.keys() - told))
    try:
        config, weights = ExplainerConfig(**content.pop("config")), content.pop("weights")
        # before anything is built: a shape that does not fit its weights could be of any size
        if sum(part.numel() for part in weights.values()) < config.num_weights:
            raise RuntimeError("its shape and its weights do not fit together")
        explainer = Explainer(config)
        load_exactly(explainer, weights)
    except (KeyError, TypeError, AttributeError, RuntimeError, InputError) as error:
        raise LaraError(f"{path} is not a trained explainer ({str(error).splitlines()[0]}).") from error
    return explainer.to(device).requires_grad_(False).eval(), content
