"""The four synthetic sets: sizes of the paper's table, motifs that are what they are called, seeds, originals."""

import networkx as nx
import numpy as np
import pytest
import torch
from codes import raises

from dgl_lara.datasets import Options, load
from dgl_lara.errors import LaraError

NAMES = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs")
HOUSE_SET = [300, 160, 160, 80]  # ground; under the roof; at the bottom; the roof
LABELS = {
    "ba-shapes": HOUSE_SET,
    "ba-community": HOUSE_SET * 2,
    "tree-cycles": [511, 360],
    "ba-2motifs": [500, 500],
}


def motifs_of(dataset):
    """(members, the subgraph between them) of every motif."""
    src, dst = dataset.graph.edges()
    graph = nx.Graph(list(zip(src.tolist(), dst.tolist(), strict=True)))
    for number in range(int(dataset.motif.max()) + 1):
        members = (dataset.motif == number).nonzero().flatten().tolist()
        if members:
            yield members, graph.subgraph(members)


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "edges", "classes"),
    [
        ("ba-shapes", 1, 700, 4110, 4),
        ("ba-community", 1, 1400, 8920, 8),
        ("tree-cycles", 1, 871, 1950, 2),
        ("ba-2motifs", 1000, 25_000, 51_000, 2),
    ],
)
def test_has_the_size_of_the_papers_table(name, graphs, nodes, edges, classes):
    dataset = load(name)
    found = (dataset.graph.batch_size, dataset.graph.num_nodes(), dataset.graph.num_edges(), dataset.num_classes)
    assert found == (graphs, nodes, edges, classes)
    assert dataset.features.shape == (nodes, 10)
    assert dataset.labels.bincount().tolist() == LABELS[name]


@pytest.mark.parametrize("name", NAMES)
def test_stores_each_edge_once_in_each_direction(name):
    src, dst = (end.tolist() for end in load(name).graph.edges())
    pairs = set(zip(src, dst, strict=True))
    assert len(pairs) == len(src)
    assert pairs == {(v, u) for u, v in pairs}
    assert all(u != v for u, v in pairs)


def test_features_are_those_of_the_authors():
    assert (load("ba-shapes").features == 1).all()
    assert (load("tree-cycles").features == 1).all()
    torch.testing.assert_close(load("ba-2motifs").features, torch.full((25_000, 10), 0.1))
    features = load("ba-community").features
    first, second = features[:700].mean(dim=0), features[700:].mean(dim=0)
    torch.testing.assert_close(second - first, torch.tensor([2.0] * 2 + [0.0] * 8), atol=0.25, rtol=0)


@pytest.mark.parametrize(
    ("name", "seed", "count"),
    # with the last seed of each pair a random edge was once added inside a motif
    [("ba-shapes", 0, 80), ("ba-shapes", 48, 80), ("ba-community", 0, 160)],
)
def test_every_house_is_a_house_with_its_labels(name, seed, count):
    dataset = load(name, Options(seed=seed))
    houses = list(motifs_of(dataset))
    assert len(houses) == count
    for members, house in houses:
        assert nx.is_isomorphic(house, nx.house_graph())
        place = {node: int(dataset.labels[node]) % 4 for node in members}
        (roof,) = [node for node in members if place[node] == 3]
        assert {place[node] for node in house[roof]} == {1}
        assert all(house.degree(node) == 3 for node in members if place[node] == 1)
        assert sorted(place.values()) == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("seed", [0, 4])
def test_every_cycle_of_tree_cycles_has_six_nodes(seed):
    dataset = load("tree-cycles", Options(seed=seed))
    cycles = list(motifs_of(dataset))
    assert len(cycles) == 60
    assert all(nx.is_isomorphic(cycle, nx.cycle_graph(6)) for _, cycle in cycles)
    assert torch.equal(dataset.labels == 1, dataset.motif >= 0)


def test_ba_2motifs_hangs_one_cycle_or_house_on_each_tree():
    dataset = load("ba-2motifs")
    expected = (nx.cycle_graph(5), nx.house_graph())
    found = list(motifs_of(dataset))
    assert len(found) == 1000
    for number, (members, motif) in enumerate(found):
        assert nx.is_isomorphic(motif, expected[int(dataset.labels[number])])
        assert set(dataset.graph_of_node[members].tolist()) == {number}


@pytest.mark.parametrize(
    ("name", "marked"), [("ba-shapes", 960), ("ba-community", 1920), ("tree-cycles", 720), ("ba-2motifs", 11_000)]
)
def test_edge_truth_joins_nodes_of_one_motif(name, marked):
    dataset = load(name)
    src, dst = dataset.graph.edges()
    assert int(dataset.edge_truth.sum()) == marked
    same = (dataset.motif[src] == dataset.motif[dst]) & (dataset.motif[src] >= 0)
    assert torch.equal(dataset.edge_truth, same)
    ends = torch.unique(torch.cat([src[dataset.edge_truth], dst[dataset.edge_truth]]))
    assert torch.equal(ends, (dataset.motif >= 0).nonzero().flatten())


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_the_data(name, fresh_cache, monkeypatch):
    def arrays(dataset):
        return torch.stack(dataset.graph.edges()), dataset.features, dataset.train

    first = arrays(load(name, Options(seed=1)))
    monkeypatch.setenv("DGL_LARA_CACHE", str(fresh_cache / "again"))
    again, other = arrays(load(name, Options(seed=1))), arrays(load(name, Options(seed=2)))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[2], other[2])


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_disjoint_and_80_10_10(name):
    dataset = load(name)
    count = len(dataset.labels)
    together = torch.cat([dataset.train, dataset.val, dataset.test])
    assert torch.equal(together.sort().values, torch.arange(count))
    sizes = np.array([len(dataset.train), len(dataset.val), len(dataset.test)])
    assert np.abs(sizes - count * np.array([0.8, 0.1, 0.1])).max() <= 1


@pytest.mark.parametrize(
    ("name", "edges", "marked", "count"),
    [("ba-shapes", 4110, 960, 80), ("ba-community", 8920, 1920, 160), ("tree-cycles", 1942, 720, 60)],
)
def test_original_truth_is_symmetrised(name, edges, marked, count, real_data):
    dataset = load(name, Options(source="original"))
    assert dataset.graph.num_edges() == edges
    assert int(dataset.edge_truth.sum()) == marked
    assert int(dataset.motif.max()) + 1 == count
    src, dst = dataset.graph.edges()
    true = set(zip(src[dataset.edge_truth].tolist(), dst[dataset.edge_truth].tolist(), strict=True))
    assert true == {(v, u) for u, v in true}
    assert dataset.labels.bincount().tolist() == LABELS[name]
    assert len(dataset.train) + len(dataset.val) + len(dataset.test) == len(dataset.labels)


def test_original_ba_2motifs(real_data):
    dataset = load("ba-2motifs", Options(source="original"))
    assert (dataset.graph.batch_size, dataset.graph.num_nodes(), dataset.graph.num_edges()) == (1000, 25_000, 50_960)
    assert [len(dataset.train), len(dataset.val), len(dataset.test)] == [800, 100, 100]
    kinds = (nx.cycle_graph(5), nx.house_graph())
    labels = dataset.labels.tolist()
    right = [
        nx.is_isomorphic(motif, kinds[label]) for label, (_, motif) in zip(labels, motifs_of(dataset), strict=True)
    ]
    # the authors' random edges fall inside the motif of 20 graphs of each class
    assert np.bincount(labels, weights=right).tolist() == [480, 480]


def test_generated_is_the_default_even_where_originals_are(real_data):
    assert load("tree-cycles").graph.num_edges() == 1950
    assert load("tree-cycles").source == "generated, seed 0"


def test_missing_original_raises():
    with raises("dataset.not_found", LaraError, name="ba-shapes"):
        load("ba-shapes", Options(source="original"))


def test_original_without_an_array_raises(tmp_path):
    (tmp_path / "synthetic").mkdir()
    np.savez(tmp_path / "synthetic" / "ba_shapes.npz", src=np.zeros(3), dst=np.ones(3), x=np.ones((2, 10)))
    with raises("dataset.missing_array", LaraError, name="edge_label"):
        load("ba-shapes", Options(source="original", data_dir=tmp_path))
