"""Adapters between the game and f.

The game works on a homogeneous graph without edge data, which is cheap to cut and copy. An input adapter gives f the
data that the game left out, and describes that data to the explainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from dgl import ops
from torch import Tensor

from dgl_lara.blackbox.adapter import ModelAdapter
from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.errors import InputError
from dgl_lara.graphs.graph import Graph

EDGE_ID = "_EDGE_OF_WHOLE"  # edata: id of the edge in the full graph, -1 for none; a name that no user gives
MAX_INPUT_COLUMNS = 256  # of one block: wider ones are no inputs of the explainer, see `explainer/inputs.py`
CATEGORY_BUCKETS = 16  # one-hot columns for integer edge data


class InputAdapter(ModelAdapter):
    """Base class: f on a homogeneous graph whose edges carry no data."""

    types: HeteroIndex | None = None
    edge_data_is_optional = False  # f can also be called without its edge data

    def node_blocks(self, graph: Graph, features: Tensor) -> list[Tensor]:
        """Return blocks of columns with one row per node: node features, sum and mean of the data of incoming edges."""
        blocks, edges = self._feature_blocks(graph, features), self.edge_columns()
        if edges is None or edges.shape[1] > MAX_INPUT_COLUMNS:
            return blocks
        total = ops.copy_e_sum(graph, edges[graph.edata[EDGE_ID]])
        return [*blocks, total, total / graph.in_degrees().clamp(min=1).unsqueeze(1)]

    def _feature_blocks(self, graph: Graph, features: Tensor) -> list[Tensor]:
        return [features]

    def edge_columns(self) -> Tensor | None:
        """Return (num_edges of the full graph, columns) the edge data as numbers, None if there is none."""
        return None

    def null_features(self, features: Tensor, count: int) -> Tensor:
        """Return (count, columns) the features of the null nodes that stand for a removed target of `count` nodes."""
        return features.new_zeros(count, features.shape[1])

    def endpoint_ranges(self, num_nodes: int) -> list[range]:
        """Return the ids that can stand on either side of a pair."""
        return [range(num_nodes)] * 2

    def holds_ratings(self) -> bool:
        """Return whether pairs of nodes of two types have a rating."""
        return False

    def likes(self, graph: Graph, node: int) -> dict[int, bool]:
        """Return for each node with a rating of this one, or by it, whether the rating is above the average."""
        return {}

    def num_feature_columns(self, features: Tensor) -> int:
        """Return the largest number of features of a node."""
        return features.shape[1]

    def features_of(self, node: int, features: Tensor) -> Tensor:
        """Return (columns,) the features of one node."""
        return features[node]

    @contextmanager
    def differentiable(self, features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (inputs, features): inputs want gradients, and f is called with the features inside the block.

        The sum of gradient times input over a row of `inputs` is that over the features of its node.
        """
        features = features.requires_grad_()
        yield features, features


_PLAIN = InputAdapter(lambda *arguments: None)


def input_adapter(model: Callable) -> InputAdapter:
    """Return the model itself if it is an input adapter, otherwise a description of inputs without extra data."""
    return model if isinstance(model, InputAdapter) else _PLAIN


def gather_rows(rows: Tensor, ids: Tensor) -> Tensor:
    """Return rows[ids], with zeros for negative ids."""
    if not len(rows):
        return rows.new_zeros(len(ids), *rows.shape[1:])
    gathered, is_null = rows[ids.clamp(min=0)], ids < 0
    if is_null.any():
        gathered[is_null] = 0
    return gathered


def as_columns(name: str, rows: Tensor) -> Tensor:
    """Return (len(rows), columns) floats; integers are one-hot categories, modulo a fixed number of buckets.

    The number is fixed so that a graph that lacks some categories has the columns of all others.
    """
    if rows.is_complex():
        raise InputError("edge_data.complex", name=name, got=rows.dtype)
    flat = rows.unsqueeze(1).flatten(1)
    if rows.is_floating_point() or rows.dtype == torch.bool:
        if not bool(flat.float().isfinite().all()):
            raise InputError("edge_data.not_finite", name=name)
        return flat.float()
    return torch.nn.functional.one_hot(flat.long() % CATEGORY_BUCKETS, CATEGORY_BUCKETS).flatten(1).float()
