"""A graph in parts on disk: it says what the whole graph says, cuts are DGL's, and damage gets one sentence."""

import json
import re
import shutil

import dgl
import numpy as np
import pytest
import torch
from codes import raises, refused, run, succeeds
from games import random_graph

from dgl_lara._util.atomic import checksum
from dgl_lara.datasets import Options, load
from dgl_lara.datasets.citation_stream import stream_citation
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.partitioning import partition
from dgl_lara.game.node_task import khop_batch
from dgl_lara.game.receptive_field import evenly_spaced
from dgl_lara.graphs import checksums
from dgl_lara.graphs.mapped import MappedGraph
from dgl_lara.graphs.partition_format import part_folder

METHODS = ("metis", "random", "order")
NODES = 60


def a_dataset(loops=False):
    graph = random_graph(NODES, 90, seed=4)
    graph = dgl.add_self_loop(graph) if loops else graph
    features = torch.randn(NODES, 3, generator=torch.Generator().manual_seed(0))
    everyone = torch.randperm(NODES, generator=torch.Generator().manual_seed(1))
    train, val, test = (part.sort().values for part in (everyone[:40], everyone[40:50], everyone[50:]))
    return Dataset("random", "node", graph, features, torch.arange(NODES) % 3, train, val, test, 3, "generated")


DATASET = a_dataset()


@pytest.fixture(params=METHODS)
def view(request, tmp_path):
    partition(DATASET, 4, tmp_path / "parts", request.param)
    return MappedGraph(tmp_path / "parts")


def test_parts_equal_the_full_graph(view):
    assert (view.num_nodes, view.num_edges) == (NODES, DATASET.graph.num_edges())
    nodes = torch.tensor([59, 3, 3, 17, 0, 40])
    assert torch.equal(view.features(nodes), DATASET.features[nodes])
    assert torch.equal(view.in_degrees(nodes), DATASET.graph.in_degrees(nodes))
    indptr, sources = view.in_edges(nodes)
    for place, node in enumerate(nodes.tolist()):
        found = sources[indptr[place] : indptr[place + 1]]
        assert sorted(found.tolist()) == sorted(DATASET.graph.in_edges(node)[0].tolist())
    for name in ("train", "val", "test"):
        assert torch.equal(view.split(name), DATASET.split(name))
    for part in view.parts.values():
        assert part.labels.tolist() == DATASET.labels[list(part.nodes)].tolist()


def test_every_node_is_in_one_part(view):
    everyone = [node for part in view.parts.values() for node in part.nodes]
    assert len(view.parts) == 4 and sorted(everyone) == list(range(NODES))
    assert max(len(part.nodes) for part in view.parts.values()) < NODES // 2
    part, row = view.part_of(np.arange(NODES))
    assert [view.parts[a].nodes[b] for a, b in zip(part, row, strict=True)] == list(range(NODES))


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_a_subgraph_equals_that_of_dgl(view, hops):
    targets = torch.tensor([31, 7, 55])
    mine, its = view.subgraph(targets, hops), khop_batch(DATASET.graph, targets, hops)
    assert len(its.nodes) < NODES
    assert torch.equal(mine.nodes, its.nodes) and torch.equal(mine.target_rows, its.target_rows)
    assert edges_of(mine.graph) == edges_of(its.graph)
    assert (view._marks == -1).all()


def test_a_subgraph_without_edges_into_the_outermost_nodes(view):
    targets = torch.tensor([31, 7])
    whole, inner = view.subgraph(targets, 2), view.subgraph(targets, 2, inner=True)
    near = set(view.subgraph(targets, 1).nodes.tolist())
    assert torch.equal(whole.nodes, inner.nodes)
    expected = [(u, v) for u, v in edges_of(whole.graph) if int(whole.nodes[v]) in near]
    assert edges_of(inner.graph) == expected != edges_of(whole.graph)


def edges_of(graph):
    return sorted(zip(*(end.tolist() for end in graph.edges()), strict=True))


def test_loops_are_noted(tmp_path):
    partition(a_dataset(loops=True), 2, tmp_path / "loops")
    partition(DATASET, 2, tmp_path / "none")
    assert [MappedGraph(tmp_path / name).meta.all_loops for name in ("loops", "none")] == [True, False]


def test_half_precision_takes_half_of_the_room(tmp_path):
    partition(DATASET, 2, tmp_path / "half", dtype="float16")
    view = MappedGraph(tmp_path / "half")
    assert view.parts[0].features.dtype == np.float16
    found = view.features(torch.arange(NODES))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, DATASET.features, atol=2e-3, rtol=1e-3)


def test_the_content_decides_the_fingerprint(tmp_path):
    changed = a_dataset()
    changed.features[7, 1] += 1
    for name, dataset, parts in (("a", DATASET, 2), ("b", a_dataset(), 2), ("c", changed, 2)):
        partition(dataset, parts, tmp_path / name)
    a, b, c = (MappedGraph(tmp_path / name).meta.fingerprint for name in "abc")
    assert a == b != c


def test_a_partitioned_graph_is_not_overwritten(tmp_path):
    partition(DATASET, 2, tmp_path / "parts")
    with raises("partition.exists"):
        partition(DATASET, 3, tmp_path / "parts")


def test_an_unfinished_folder_is_no_graph(tmp_path):
    partition(DATASET, 2, tmp_path / "parts")
    (tmp_path / "parts" / "meta.json").unlink()
    with raises("partition.missing"):
        MappedGraph(tmp_path / "parts")
    partition(DATASET, 3, tmp_path / "parts")
    assert len(MappedGraph(tmp_path / "parts").parts) == 3


@pytest.mark.parametrize("name", ["indptr", "sources", "features", "labels", "original"])
def test_a_truncated_part_is_damaged(tmp_path, name):
    partition(DATASET, 2, tmp_path / "parts")
    path = part_folder(tmp_path / "parts", 1) / f"{name}.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with raises("partition.damaged", path=path):
        MappedGraph(tmp_path / "parts")


@pytest.mark.parametrize(
    ("name", "value"),
    [("indptr", -3), ("indptr", 10**6), ("sources", -1), ("sources", NODES), ("features", 2), ("labels", 1)],
)
def test_changed_numbers_are_damage(tmp_path, name, value):
    """Also if the changed numbers are plausible."""
    partition(DATASET, 2, tmp_path / "parts")
    path = part_folder(tmp_path / "parts", 0) / f"{name}.npy"
    array = np.load(path)
    array[5] = value if (array[5] != value).all() else value + 1
    np.save(path, array)
    with raises("partition.damaged", path=path):
        MappedGraph(tmp_path / "parts")


@pytest.mark.parametrize("name", ["train", "place"])
def test_files_beside_the_parts_are_checked_too(tmp_path, name):
    partition(DATASET, 2, tmp_path / "parts")
    path = tmp_path / "parts" / f"{name}.npy"
    np.save(path, np.load(path)[::-1])
    with raises("partition.damaged", path=path):
        MappedGraph(tmp_path / "parts")


def test_files_are_read_once_on_every_machine(tmp_path, monkeypatch):
    """Not at all where they were written, once where they were copied to."""
    partition(DATASET, 2, tmp_path / "parts")
    shutil.copytree(tmp_path / "parts", tmp_path / "copy")
    read = []

    def noted(path):
        read.append(path)
        return checksum(path)

    monkeypatch.setattr(checksums, "checksum", noted)
    MappedGraph(tmp_path / "parts")
    assert read == []
    MappedGraph(tmp_path / "copy", only=1)
    assert sorted({path.parent.name for path in read}) == ["copy", "part-0001"]
    read.clear()
    MappedGraph(tmp_path / "copy", only=1)
    assert read == []


@pytest.mark.parametrize(("field", "value"), [("nodes", 61), ("method", "by hand"), ("parts", 7), ("edges", "many")])
def test_an_invalid_description_raises(tmp_path, field, value):
    partition(DATASET, 2, tmp_path / "parts")
    path = tmp_path / "parts" / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with raises("partition.meta"):
        MappedGraph(tmp_path / "parts")


@pytest.mark.parametrize(("field", "value"), [("columns", 5), ("classes", 9), ("loops", True), ("name", "other")])
def test_a_plausible_changed_description_raises(tmp_path, field, value):
    partition(DATASET, 2, tmp_path / "parts")
    path = tmp_path / "parts" / "meta.json"
    content = json.loads(path.read_text())
    assert content[field] != value
    path.write_text(json.dumps({**content, field: value}))
    with raises("partition.changed"):
        MappedGraph(tmp_path / "parts")


def test_a_description_with_more_fields_opens(tmp_path):
    partition(DATASET, 2, tmp_path / "parts")
    path = tmp_path / "parts" / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "surplus": 1}))
    assert MappedGraph(tmp_path / "parts").num_nodes == NODES


def test_more_parts_than_nodes(tmp_path):
    with raises("partition.parts", most=60):
        partition(DATASET, 61, tmp_path / "parts")


def streamed(folder, parts, chunk=300, seed=0):
    stream_citation(1_000, parts, folder, seed, chunk=chunk)
    return MappedGraph(folder)


def test_a_streamed_graph_does_not_depend_on_the_number_of_parts(tmp_path):
    one, three, other = (
        streamed(tmp_path / name, parts, seed=seed) for name, parts, seed in (("a", 1, 0), ("b", 3, 0), ("c", 3, 1))
    )
    everyone = torch.arange(1_000)
    assert len(three.parts) == 3 and all(len(part.nodes) > 300 for part in three.parts.values())
    for mine, its in zip(three.in_edges(everyone), one.in_edges(everyone), strict=True):
        assert torch.equal(mine, its)
    assert torch.equal(three.features(everyone), one.features(everyone))
    assert not torch.equal(other.features(everyone), one.features(everyone))
    assert not list(tmp_path.glob("*/.drawn-*"))


def test_a_streamed_graph_is_of_the_same_kind(tmp_path):
    """Each older paper once at the most, as many citations, classes and splits as `citation` has."""
    stream_citation(20_000, 2, tmp_path / "parts", chunk=7_000)
    view, whole = MappedGraph(tmp_path / "parts"), load("citation", Options(nodes=20_000))
    indptr, sources = view.in_edges(torch.arange(20_000))
    cited = torch.repeat_interleave(torch.arange(20_000), indptr.diff())
    assert (sources > cited).all() and len(torch.unique(cited * 20_000 + sources)) == len(sources)
    assert 0.9 < view.num_edges / whole.graph.num_edges() < 1.1
    labels = torch.from_numpy(np.concatenate([part.labels for part in view.parts.values()]))
    assert len(labels.unique()) == 40
    assert 0.58 < (labels[sources] == labels[cited]).float().mean() < 0.72  # as test_citation.py
    quantiles = torch.tensor([0.5, 0.9, 0.99, 0.999])
    mine, its = (degrees.float().quantile(quantiles) for degrees in (indptr.diff(), whole.graph.in_degrees()))
    assert ((mine - its).abs() <= 0.5 * its + 1).all(), (mine, its)
    assert [len(view.split(name)) for name in ("train", "val", "test")] == [10_800, 3_400, 5_800]
    centres = torch.stack([view.features(torch.arange(20_000))[labels == label].mean(0) for label in range(40)])
    assert 1.5 < centres.norm(dim=1).median() < 2.5


def test_partition_on_the_command_line(tmp_path):
    out = tmp_path / "parts"
    done = succeeds("partition", "--dataset", "ba-shapes", "--parts", "3", "--out", str(out))
    assert re.search("700 .* 4,110 .* 3 ", done.output)
    refused(run("partition", "--dataset", "ba-shapes", "--out", str(out)), "partition.exists")
    graphs = run("partition", "--dataset", "ba-2motifs", "--out", str(tmp_path / "no"))
    refused(graphs, "partition.dataset")


def test_no_node_beyond_the_last_where_float32_cannot_count():
    assert int(evenly_spaced(24_000_000, 16, torch.device("cpu"))[-1]) < 24_000_000
