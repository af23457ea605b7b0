"""Passes over graphs that do not fit: f in batches of targets, g layer by layer in batches of nodes.

Inputs and results stay in main memory, only one batch at a time is where the model is. DGL's samplers cut the batches
out, in `workers` processes besides this one. The numbers are those of `scores.embed_all`, up to rounding.
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
    """What `scores.embed_all` holds at its peak, for the choice between the two."""
    config = explainer.config
    states = config.hidden * (config.layers + 1)
    numbers = 2 * config.in_dim + 2 * states + 2 * config.hidden + 2 * config.terms * config.dim
    return 4 * numbers * num_nodes


def predict_in_batches(f: Model, graph: dgl.DGLGraph, features: Tensor, hops: int, size: int = NODES_A_BATCH) -> Tensor:
    """(num_nodes, num_classes): f on all nodes of a node task, on the (K + 1)-hop subgraph of a batch at a time."""
    parts = []
    with eval_mode(f):
        for targets in Progress(torch.arange(graph.num_nodes()).split(size), "predicting", unit="batch"):
            part = khop_batch(graph, targets.to(graph.device), hops + 1)
            parts.append(call_model(f, part.graph, features[part.nodes], len(part.nodes), "node")[part.target_rows])
    return torch.cat(parts)


def embed_layerwise(
    explainer: Explainer, game: Game, kind: str, size: int = NODES_A_BATCH, workers: int = 0
) -> Embeddings:
    """p and t of all nodes. Beside them, only two layers' states of all nodes are held at a time."""
    game.task.check_layerwise()
    where, graph = explainer.unit.device, game.graph
    # cut into batches in main memory: DGL's loader wants graph and numbers in one place
    looped = add_self_loops(graph).to("cpu")
    scale = walk_scale(graph).unsqueeze(1).cpu()
    heads = StreamedHeads(explainer, graph.num_nodes())
    config, encoder = explainer.config, explainer.encoder
    with eval_mode(explainer):
        state = torch.empty(graph.num_nodes(), config.hidden)  # in main memory
        for nodes in torch.arange(graph.num_nodes()).split(size):
            x = explainer.normalised(explainer_inputs(game, kind, nodes.to(graph.device)).to(where))
            state[nodes] = F.relu(encoder.first(x)).to(state.device)
        for layer, (conv, norm) in enumerate(zip(encoder.convs, encoder.norms, strict=True)):
            if encoder.residual:
                heads.add(state, layer, size)
            after = torch.empty_like(state)
            for block, sources, own in layer_batches(looped, size, workers, f"layer {layer + 1}"):
                h = norm(rows_on(state, sources, where)) * scale[sources].to(where)
                message = F.relu(conv(block.to(where), h) * scale[own].to(where))
                if encoder.residual:
                    message = state[own].to(where) + message
                after[own] = message.to(after.device)
            state = after
        heads.add(state, config.layers if encoder.residual else 0, size)
        return Embeddings(*explainer.embeddings(heads.source, heads.target, scale))


def rows_on(state: Tensor, nodes: Tensor, device: torch.device) -> Tensor:
    """These rows where the model is; on their way to a GPU they are gathered in pinned memory."""
    if device.type != "cuda":
        return state[nodes]
    gathered = torch.empty(len(nodes), state.shape[1], dtype=state.dtype, pin_memory=True)
    return torch.index_select(state, 0, nodes, out=gathered).to(device, non_blocking=True)


def layer_batches(
    looped: dgl.DGLGraph, size: int, workers: int, label: str
) -> Iterator[tuple[dgl.DGLGraph, Tensor, Tensor]]:
    """(block, source nodes, own nodes) of one GraphConv layer, batch by batch."""
    everyone = torch.arange(looped.num_nodes())
    loader = DataLoader(
        looped, everyone, MultiLayerFullNeighborSampler(1), batch_size=size, shuffle=False, num_workers=workers
    )
    for sources, own, blocks in Progress(loader, label, total=len(loader), unit="batch"):
        yield blocks[0], sources, own


class StreamedHeads:
    """Linear heads on all layers' states, summed state by state, so that the states need not be kept."""

    def __init__(self, explainer: Explainer, num_nodes: int) -> None:
        self.width = explainer.config.hidden
        nothing = torch.empty(num_nodes, 0)  # said of a node where the source head is not asked
        self.heads = [head for head in (explainer.source_head, explainer.target_head) if isinstance(head, nn.Linear)]
        self.sums = [head.bias.detach().cpu().repeat(num_nodes, 1) for head in self.heads]
        self.source, self.target = self.sums if len(self.sums) == 2 else (nothing, self.sums[0])

    def add(self, state: Tensor, layer: int, size: int) -> None:
        columns = slice(layer * self.width, (layer + 1) * self.width)
        for head, total in zip(self.heads, self.sums, strict=True):
            weight = head.weight[:, columns]
            for part, sums in zip(state.split(size), total.split(size), strict=True):
                sums += (part.to(weight.device) @ weight.T).cpu()
