"""The game of a `LARA`: outputs of f come from a store or from batches if they can."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model, OnDevice
from dgl_lara.blackbox.input_adapter import InputAdapter
from dgl_lara.game.game import Game, ModelOutputs
from dgl_lara.game.index import BANZHAF, Index
from dgl_lara.game.player_specs import PlayerSpec
from dgl_lara.game.receptive_field import choose_hops
from dgl_lara.game.task import Task
from dgl_lara.graphs.graph import Graph
from dgl_lara.inference.embedding_store import EmbeddingStore
from dgl_lara.inference.layerwise import predict_in_batches


def user_model(f: Callable) -> Callable:
    """Return the model as the user passed it, without input adapter."""
    return f.model if isinstance(f, InputAdapter) else f


def place_model(f: Model, device: torch.device | None) -> Model:
    """Return the model on a device of its own, or as it is if there is none."""
    if not device:
        return f
    placed = OnDevice(user_model(f), device)
    return f.rewrap(placed) if isinstance(f, InputAdapter) else placed


def create_game(
    f: Model,
    graph: Graph,
    features: Tensor,
    task: Task,
    hops: int | str,
    value: str,
    memory: int | None,
    players: PlayerSpec,
    compute_device: torch.device | None = None,
    store: EmbeddingStore | None = None,
    edge_data: bool | None = None,
    index: str | Index = BANZHAF,
) -> Game:
    """Return the game, without calling f for the full graph if its outputs are stored.

    Args:
        f: The model.
        graph: The homogeneous graph.
        features: (num_nodes, columns).
        task: The task.
        hops: K, "auto" or "measure".
        value: The explained value.
        memory: Bytes of working memory. None means most of what is free.
        players: The player set.
        compute_device: Device of the model, if it differs from that of the graph.
        store: File with outputs of f.
        edge_data: Whether f depends on edge data. None means it is tested.
        index: The law of coalitions.
    """
    f = place_model(f, compute_device)
    num_hops = choose_hops(f, graph, features, task, hops, memory)
    outputs = store.outputs() if store else None
    if outputs is not None:
        outputs = outputs.to(features.device)
    elif compute_device:
        outputs = predict_in_batches(f, graph, features, num_hops)
    data = (f, graph, features, task, num_hops, value)
    known = ModelOutputs(outputs)
    return Game.create(*data, players=players, memory=memory, uses_edge_data=edge_data, known=known, index=index)
