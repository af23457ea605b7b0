"""Small games with known answers, shared by the tests."""

import dgl
import torch

from dgl_lara.game.game import Game


def star_model(graph, features):
    """relu(sum of the neighbours' features - 2) at every node; two equal columns make it a 'two-class' model."""
    total = dgl.ops.copy_u_sum(graph, features[:, :1])
    value = torch.relu(total - 2)
    return torch.cat([value, value - 1], dim=1)


def star_game():
    """Target 0 with neighbours 1, 2, 3 whose features are 1, 2, 3."""
    graph = dgl.graph(([1, 2, 3], [0, 0, 0]), num_nodes=4)
    return Game.create(star_model, graph, torch.tensor([[0.0], [1.0], [2.0], [3.0]]), hops=1)


def random_graph(nodes, edges, seed):
    """Both directions of some random edges, no loops, no doubles."""
    generator = torch.Generator().manual_seed(seed)
    u, v = torch.randint(nodes, (2, edges), generator=generator)
    u, v = u[u != v], v[u != v]
    return dgl.to_simple(dgl.graph((torch.cat([u, v]), torch.cat([v, u])), num_nodes=nodes), return_counts=None)


class SmallGCN(torch.nn.Module):
    """Two layers with symmetric normalisation, so that boundary degrees matter; nothing trained."""

    def __init__(self, in_dim=3, classes=3, seed=0, layers=2):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        widths = [in_dim] + [8] * (layers - 1) + [classes]
        self.weights = torch.nn.ParameterList(
            torch.randn(pair, generator=generator) for pair in zip(widths, widths[1:], strict=False)
        )

    def forward(self, graph, h):
        scale = (graph.in_degrees().float() + 1).rsqrt().unsqueeze(1)
        for place, weight in enumerate(self.weights):
            h = (h @ weight) * scale
            h = (dgl.ops.copy_u_sum(graph, h) + h) * scale
            h = torch.relu(h) if place + 1 < len(self.weights) else h
        return h


class PooledGCN(SmallGCN):
    """The same with a sum over each graph of the batch."""

    def forward(self, graph, h):
        return dgl.ops.segment_reduce(graph.batch_num_nodes(), super().forward(graph, h), "sum")


def gcn_game(nodes=12, edges=14, seed=0, value="logit"):
    graph = random_graph(nodes, edges, seed)
    features = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(seed + 1))
    return Game.create(SmallGCN(), graph, features, hops=2, value=value)
