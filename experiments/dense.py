"""A *generated* dense graph (mean degree 30, about 190 players a target), and its models for
`neighbours.py dense-gat dense-sage`: a GAT with four heads and a GraphSAGE, two layers each.
"""

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from dgl.nn.pytorch import GATConv, SAGEConv
from scipy.spatial import cKDTree
from torch import nn

from dgl_lara._util.randomness import seeded
from dgl_lara.game.game import Game

NODES, DEGREE, CLASSES, COLUMNS = 4000, 41, 8, 32  # the radius that would give so many neighbours


def dense_graph(seed=0):
    """Generate points in space, linked if they are near (the distance differs between points).

    The class is the region, with one wrong label in ten. Features correlate weakly with the class.

    Returns graph, features, labels and a random order of the nodes.
    """
    drawn = np.random.RandomState(seed)
    places = drawn.rand(NODES, 3)
    reach = (DEGREE / NODES / (4 / 3 * np.pi)) ** (1 / 3) * np.clip(drawn.lognormal(-0.1, 0.25, NODES), 0.4, 2)
    pairs = cKDTree(places).query_pairs(reach.max(), output_type="ndarray")
    away = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
    pairs = torch.from_numpy(pairs[away < np.sqrt(reach[pairs[:, 0]] * reach[pairs[:, 1]])])
    labels = cKDTree(drawn.rand(2 * CLASSES, 3)).query(places)[1] % CLASSES
    wrong = drawn.rand(NODES) < 0.1
    labels[wrong] = drawn.randint(0, CLASSES, wrong.sum())
    features = 0.5 * drawn.randn(CLASSES, COLUMNS)[labels] + drawn.randn(NODES, COLUMNS)
    graph = dgl.add_self_loop(dgl.to_bidirected(dgl.graph((pairs[:, 0], pairs[:, 1]), num_nodes=NODES)))
    order = torch.from_numpy(drawn.permutation(NODES))
    return graph, torch.from_numpy(features).float(), torch.from_numpy(labels).long(), order


class Net(nn.Module):
    """Two layers of GAT with four heads, or of GraphSAGE (mean)."""

    num_hops = 2

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        if kind == "gat":
            self.one = GATConv(COLUMNS, 8, num_heads=4, allow_zero_in_degree=True)
            self.two = GATConv(32, CLASSES, num_heads=4, allow_zero_in_degree=True)
        else:
            self.one, self.two = SAGEConv(COLUMNS, 32, "mean"), SAGEConv(32, CLASSES, "mean")

    def forward(self, graph, x):
        h = self.one(graph, F.dropout(x, 0.3, self.training))
        h = F.elu(h.flatten(1)) if self.kind == "gat" else F.relu(h)
        h = self.two(graph, F.dropout(h, 0.3, self.training))
        return h.mean(1) if self.kind == "gat" else h


def dense(kind):
    graph, x, y, order = dense_graph()
    train, val, test = order.split([NODES * 3 // 10, NODES // 10, NODES * 6 // 10])
    with seeded(0):
        model = Net(kind)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(150):
            loss = F.cross_entropy(model.train()(graph, x)[train], y[train])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    game = Game.create(model.eval(), graph, x, hops=2)
    right = (game.full_logits[test].argmax(1) == y[test]).float().mean()
    degree = graph.num_edges() / NODES - 1
    return game, train, val, test, f"generated, mean degree {degree:.0f}, test accuracy {right:.2f}"
