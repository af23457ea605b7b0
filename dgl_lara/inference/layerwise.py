"""Passes over graphs that do not fit into memory. f runs in batches of targets, g layer by layer in batches of nodes.

Inputs and results stay in main memory. Only one batch at a time is on the device of the model. DGL's samplers extract
the batches in `workers` processes. The numbers equal those of `scorer.embed_all` up to rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import dgl
import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, MultiLayerFullNeighborSampler
from torch import Tensor, nn

from dgl_lara._util.progress import Progress
from dgl_lara.blackbox.call import Model, call_model
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Embeddings, Explainer
from dgl_lara.game.game import Game
from dgl_lara.game.node_task import khop_batch
from dgl_lara.game.walks import walk_scale
from dgl_lara.graphs.graph import add_self_loops

NODES_A_BATCH = 16_384
warnings.filterwarnings("ignore", message="Dataloader CPU affinity")  # DGL's advice for servers with many cores


def full_pass_bytes(explainer: Explainer, num_nodes: int) -> int:
    """Return the bytes that `scorer.embed_all` needs at its peak."""
    config = explainer.config
    states = config.hidden * (config.layers + 1)
    numbers = 2 * config.in_dim + 2 * states + 2 * config.hidden + 2 * config.terms * config.dim
    return 4 * numbers * num_nodes


def predict_in_batches(f: Model, graph: dgl.DGLGraph, features: Tensor, hops: int, size: int = NODES_A_BATCH) -> Tensor:
    """Return the outputs of f for all nodes of a node task, computed on (K + 1)-hop subgraphs of batches."""
    parts = []
    with eval_mode(f):
        for targets in Progress(torch.arange(graph.num_nodes()).split(size), "predicting", unit="batch"):
            part = khop_batch(graph, targets.to(graph.device), hops + 1)
            parts.append(call_model(f, part.graph, features[part.nodes], len(part.nodes), "node")[part.target_rows])
    return torch.cat(parts)


def embed_layerwise(
    explainer: Explainer, game: Game, inputs: str, size: int = NODES_A_BATCH, workers: int = 0
) -> Embeddings:
    """Return p and t of all nodes. Only the states of two layers are held at a time.

    Args:
        explainer: The trained g.
        game: The game that is explained.
        inputs: Name of the input features of the explainer.
        size: Nodes of a batch.
        workers: Sampler processes.
    """
    game.task.check_layerwise()
    device, graph = explainer.unit.device, game.graph
    looped = add_self_loops(graph).to("cpu")  # DGL's loader needs graph and ids on one device
    scale = walk_scale(graph).unsqueeze(1).cpu()
    heads = _StreamedHeads(explainer, graph.num_nodes())
    config, encoder = explainer.config, explainer.encoder
    with eval_mode(explainer):
        state = torch.empty(graph.num_nodes(), config.hidden)  # in main memory
        for nodes in torch.arange(graph.num_nodes()).split(size):
            x = explainer.normalised(explainer_inputs(game, inputs, nodes.to(graph.device)).to(device))
            state[nodes] = F.relu(encoder.first(x)).to(state.device)
        for layer, (conv, norm) in enumerate(zip(encoder.convs, encoder.norms, strict=True)):
            if encoder.residual:
                heads.add(state, layer, size)
            after = torch.empty_like(state)
            for block, sources, own in _layer_batches(looped, size, workers, f"layer {layer + 1}"):
                h = norm(_rows_on(state, sources, device)) * scale[sources].to(device)
                message = F.relu(conv(block.to(device), h) * scale[own].to(device))
                if encoder.residual:
                    message = state[own].to(device) + message
                after[own] = message.to(after.device)
            state = after
        heads.add(state, config.layers if encoder.residual else 0, size)
        return Embeddings(*explainer.embeddings(heads.source, heads.target, scale))


def _rows_on(state: Tensor, nodes: Tensor, device: torch.device) -> Tensor:
    """Return rows of `state` on a device. For a GPU they are gathered in pinned memory."""
    if device.type != "cuda":
        return state[nodes]
    gathered = torch.empty(len(nodes), state.shape[1], dtype=state.dtype, pin_memory=True)
    return torch.index_select(state, 0, nodes, out=gathered).to(device, non_blocking=True)


def _layer_batches(
    looped: dgl.DGLGraph, size: int, workers: int, label: str
) -> Iterator[tuple[dgl.DGLGraph, Tensor, Tensor]]:
    """Yield the block, source nodes and own nodes of each batch of one GraphConv layer."""
    nodes = torch.arange(looped.num_nodes())
    loader = DataLoader(
        looped, nodes, MultiLayerFullNeighborSampler(1), batch_size=size, shuffle=False, num_workers=workers
    )
    for sources, own, blocks in Progress(loader, label, total=len(loader), unit="batch"):
        yield blocks[0], sources, own


class _StreamedHeads:
    """Linear heads on the states of all layers, added layer by layer, so that states need not be kept."""

    def __init__(self, explainer: Explainer, num_nodes: int) -> None:
        self.width = explainer.config.hidden
        no_source = torch.empty(num_nodes, 0)
        self.heads = [head for head in (explainer.source_head, explainer.target_head) if isinstance(head, nn.Linear)]
        self.sums = [head.bias.detach().cpu().repeat(num_nodes, 1) for head in self.heads]
        self.source, self.target = self.sums if len(self.sums) == 2 else (no_source, self.sums[0])

    def add(self, state: Tensor, layer: int, size: int) -> None:
        columns = slice(layer * self.width, (layer + 1) * self.width)
        for head, total in zip(self.heads, self.sums, strict=True):
            weight = head.weight[:, columns]
            for part, sums in zip(state.split(size), total.split(size), strict=True):
                sums += (part.to(weight.device) @ weight.T).cpu()
