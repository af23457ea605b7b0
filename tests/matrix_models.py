"""Small models and graphs for the matrix of scores. Nothing here depends on the package."""

from typing import Any

import dgl
import torch

RELATIONS = [("user", "buys", "item"), ("item", "sold", "user"), ("item", "like", "item")]
SIZES, WIDTHS = {"user": 14, "item": 12}, {"user": 3, "item": 2}


def draw(seed):
    return torch.Generator().manual_seed(seed)


class Layers(torch.nn.Module):
    """A graph convolution of two layers, weighted by the edge column "w" if the graph has one."""

    num_hops = 2

    def __init__(self, in_dim=3, classes=3):
        super().__init__()
        drawn = draw(1)
        self.first = torch.nn.Parameter(torch.randn(in_dim, 8, generator=drawn) / 2)
        self.second = torch.nn.Parameter(torch.randn(8, classes, generator=drawn) / 2)

    def forward(self, graph, x):
        scale = (graph.in_degrees().float() + 1).rsqrt().unsqueeze(1)
        h = torch.relu(self.mix(graph, x @ self.first, scale))
        return self.mix(graph, h @ self.second, scale)

    @staticmethod
    def mix(graph, h, scale):
        weight = graph.edata.get("w")
        h = h * scale
        sent = dgl.ops.copy_u_sum(graph, h) if weight is None else dgl.ops.u_mul_e_sum(graph, h, weight.unsqueeze(1))
        return (sent + h) * scale


class Pooled(Layers):
    def forward(self, graph, x):
        return dgl.ops.segment_reduce(graph.batch_num_nodes(), super().forward(graph, x), "sum")


class Pairs(torch.nn.Module):
    num_hops = 2

    def __init__(self):
        super().__init__()
        self.inner = Layers()

    def forward(self, graph, x, u, v):
        h = self.inner(graph, x)
        return (h[u] * h[v]).sum(1) - 0.3


class Shop(torch.nn.Module):
    """Two layers with a weight matrix for each relation. Buying has the edge column "w"."""

    num_hops = 2

    def __init__(self, classes=3):
        super().__init__()
        drawn = draw(2)
        widths = [WIDTHS, dict.fromkeys(SIZES, 4), dict.fromkeys(SIZES, classes)]
        self.layers: Any = torch.nn.ModuleList()
        for before, after in zip(widths, widths[1:], strict=False):
            own = {kind: torch.randn(before[kind], after[kind], generator=drawn) for kind in SIZES}
            sent = {name: torch.randn(before[a], after[b], generator=drawn) / 2 for a, name, b in RELATIONS}
            self.layers.append(torch.nn.ParameterDict({**own, **sent}))

    def states(self, graph, x):
        for place, weights in enumerate(self.layers):
            after = {kind: rows @ weights[kind] for kind, rows in x.items()}
            for start, name, end in graph.canonical_etypes:
                sent = x[start] @ weights[name]
                if name == "buys":
                    sent = dgl.ops.u_mul_e_sum(graph[name], sent, graph.edges[name].data["w"].unsqueeze(1))
                else:
                    sent = dgl.ops.copy_u_sum(graph[name], sent)
                after[end] = after[end] + sent / 3
            x = after if place else {kind: rows.relu() for kind, rows in after.items()}
        return x


class ShopNodes(Shop):
    def forward(self, graph, x):
        return {"user": self.states(graph, x)["user"]}


class ShopPairs(torch.nn.Module):
    num_hops = 2

    def __init__(self):
        super().__init__()
        self.inner = Shop()

    def forward(self, graph, x, u, v):
        h = self.inner.states(graph, x)
        return (h["user"][u] * h["item"][v]).sum(1)


def random_graph(nodes, edges, seed, weighted=False):
    """Random edges in both directions, with features "feat" and labels "label", without loops or repeated edges."""
    u, v = torch.randint(nodes, (2, edges), generator=draw(seed))
    u, v = u[u != v], v[u != v]
    both = torch.cat([u, v]), torch.cat([v, u])
    graph = dgl.to_simple(dgl.graph(both, num_nodes=nodes), return_counts=None)
    graph.ndata["feat"] = torch.randn(nodes, 3, generator=draw(seed + 1))
    graph.ndata["label"] = torch.arange(nodes) % 3
    if weighted:
        graph.edata["w"] = 0.5 + torch.rand(graph.num_edges(), generator=draw(seed + 2))
    return graph


def molecules(weighted=False):
    return [random_graph(nodes, 2 * nodes, seed, weighted) for seed, nodes in enumerate((6, 9, 7, 8, 10, 5, 8, 9) * 2)]


def shop():
    ends = {}
    for seed, (start, name, end) in enumerate(RELATIONS):
        ends[start, name, end] = tuple(torch.randint(SIZES[kind], (24,), generator=draw(seed)) for kind in (start, end))
    graph = dgl.heterograph(ends, SIZES)
    graph.edges["buys"].data["w"] = 0.5 + torch.rand(24, generator=draw(7))
    for seed, kind in enumerate(graph.ntypes):
        graph.nodes[kind].data["feat"] = torch.randn(SIZES[kind], WIDTHS[kind], generator=draw(8 + seed))
    graph.nodes["user"].data["label"] = torch.arange(SIZES["user"]) % 3
    return graph


def node_model(in_dim, classes):
    return Layers()


def graph_model(in_dim, classes):
    return Pooled()


def link_model(in_dim, classes):
    return Pairs()


def shop_node_model(in_dim, classes):
    return ShopNodes()


def shop_link_model(in_dim, classes):
    return ShopPairs()
