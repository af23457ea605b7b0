"""The meaning of removal: induced subgraphs, null prediction, separate graphs of a batch."""

import dgl
import torch
from games import PooledGCN, SmallGCN, random_graph

from dgl_lara.game.player_index import in_neighborhood
from dgl_lara.game.removal import copies, edgeless, ego_graphs, induced, null_prediction, remove_nodes
from dgl_lara.game.tasks import GRAPH as GRAPHS
from dgl_lara.game.tasks import NODE
from dgl_lara.graphs.subgraph import SharedSubgraph

GRAPH = random_graph(15, 20, 0)
FEATURES = torch.randn(15, 3, generator=torch.Generator().manual_seed(5))


def whole(graph, targets):
    return SharedSubgraph(graph, torch.arange(graph.num_nodes()), torch.arange(targets), torch.arange(targets))


def random_masks(count, nodes, seed=0):
    return torch.rand(count, nodes, generator=torch.Generator().manual_seed(seed)) < 0.5


def test_induced_is_dgls_node_subgraph():
    keep = random_masks(1, 15)[0]
    ours, theirs = induced(GRAPH, keep), dgl.node_subgraph(GRAPH, keep.nonzero().flatten())
    assert ours.num_edges() > 3
    assert sorted(zip(*map(torch.Tensor.tolist, ours.edges()), strict=True)) == sorted(
        zip(*map(torch.Tensor.tolist, theirs.edges()), strict=True)
    )


def test_copies_do_not_touch_each_other():
    model = SmallGCN()
    together = model(copies(GRAPH, 3), FEATURES.repeat(3, 1)).view(3, 15, -1)
    torch.testing.assert_close(together[1], model(GRAPH, FEATURES))


def test_many_masks_at_once_equal_one_at_a_time():
    model, keep = SmallGCN(), random_masks(6, 15)
    keep[2] = False
    null = null_prediction(model, GRAPH, torch.zeros_like(FEATURES[:1]))
    got = NODE.predict(model, whole(GRAPH, 15), remove_nodes(GRAPH, FEATURES, keep), null)
    for mask, prediction in zip(keep, got, strict=True):
        nodes = mask.nonzero().flatten()
        expected = null.repeat(15, 1)
        expected[nodes] = model(dgl.node_subgraph(GRAPH, nodes), FEATURES[nodes])
        torch.testing.assert_close(prediction, expected)


def test_graphs_of_a_batch_stay_apart_and_empty_ones_are_null():
    model = PooledGCN()
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 4)])
    features = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    keep = random_masks(4, 16)
    keep[1, 5:12] = False  # the second graph is gone
    keep[2] = False
    null = null_prediction(model, batch, torch.zeros_like(features[:1]))
    got = GRAPHS.predict(model, whole(batch, 3), remove_nodes(batch, features, keep), null)
    for mask, predictions in zip(keep, got, strict=True):
        for number, (start, stop) in enumerate(((0, 5), (5, 12), (12, 16))):
            nodes = torch.arange(start, stop)[mask[start:stop]]
            one = dgl.node_subgraph(batch, nodes)
            one = dgl.graph(one.edges(), num_nodes=len(nodes))
            expected = model(one, features[nodes])[0] if len(nodes) else null
            torch.testing.assert_close(predictions[number], expected)


def test_null_prediction_is_f_of_one_isolated_zero_node():
    model = SmallGCN()
    expected = model(dgl.graph(([], []), num_nodes=1), torch.zeros(1, 3))[0]
    torch.testing.assert_close(null_prediction(model, GRAPH, torch.zeros_like(FEATURES[:1])), expected)


def test_ego_graphs_with_one_hop_more_give_fs_own_predictions():
    """DESIGN 1.4: K hops are not enough for a model with symmetric normalisation, K + 1 are."""
    model, targets = SmallGCN(), torch.tensor([3, 0, 9])
    full = model(GRAPH, FEATURES)[targets]

    def on_ego(hops):
        context = in_neighborhood(GRAPH, targets, hops)
        return model(ego_graphs(GRAPH, context), FEATURES[context.player])[context.hop == 0]

    torch.testing.assert_close(on_ego(3), full)
    assert (on_ego(2) - full).abs().max() > 1e-3


def test_alone_is_f_without_edges():
    model = SmallGCN()
    everyone = torch.arange(15)
    lonely = dgl.graph(([], []), num_nodes=15)
    singles = NODE.mark_singles(edgeless(GRAPH, everyone))
    torch.testing.assert_close(model(singles, FEATURES), model(lonely, FEATURES))
    one_by_one = torch.cat([PooledGCN()(dgl.graph(([], []), num_nodes=1), x[None]) for x in FEATURES])
    torch.testing.assert_close(PooledGCN()(GRAPHS.mark_singles(edgeless(GRAPH, everyone)), FEATURES), one_by_one)


def test_batches_without_nodes_know_their_edges():
    """A readout may use the edges of each graph: their numbers must be those of the induced graphs."""

    def edges_of_each(batch, h):
        return batch.batch_num_edges().float().unsqueeze(1)

    graphs = [random_graph(size, 2 * size, size) for size in (5, 7, 4)]
    keep = random_masks(4, 16)
    keep[1, 5:12] = False
    batch = dgl.batch(graphs)
    left = remove_nodes(batch, torch.ones(16, 1), keep)
    got = GRAPHS.predict(edges_of_each, whole(batch, 3), left, torch.tensor([-1.0]))
    for mask, numbers in zip(keep, got[:, :, 0], strict=True):
        for graph, mine, number in zip(graphs, mask.split([5, 7, 4]), numbers, strict=True):
            expected = dgl.node_subgraph(graph, mine.nonzero().flatten()).num_edges() if mine.any() else -1
            assert int(number) == expected


def test_some_nodes_alone_keep_their_own_loops():
    graph = dgl.graph(([0, 1, 2, 3, 3], [1, 1, 3, 3, 0]), num_nodes=5)  # loops at 1 and 3
    features = torch.arange(5.0).unsqueeze(1)

    def neighbours(g, x):
        return dgl.ops.copy_u_sum(g, x + 1)

    everyone = neighbours(edgeless(graph, torch.arange(5)), features)
    assert everyone.flatten().tolist() == [0, 2, 0, 4, 0]
    some = torch.tensor([3, 0, 1])
    assert torch.equal(neighbours(edgeless(graph, some), features[some]), everyone[some])
