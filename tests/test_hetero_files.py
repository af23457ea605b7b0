"""Heterogeneous graphs in .bin files and lists of pairs: what loads, and the errors of what does not."""

import json

import dgl
import pytest
import torch
from codes import raises

from dgl_lara.datasets import Options, load
from dgl_lara.datasets.text_files import read_pairs
from dgl_lara.errors import InputError

SIZES = {"user": 12, "film": 7, "actor": 3}


def a_hetero_graph():
    draw = torch.Generator().manual_seed(0)

    def ends(*kinds):
        return tuple(torch.randint(SIZES[kind], (30,), generator=draw) for kind in kinds)

    graph = dgl.heterograph(
        {("user", "rates", "film"): ends("user", "film"), ("actor", "plays in", "film"): ends("actor", "film")}, SIZES
    )
    for width, kind in enumerate(SIZES, start=2):
        graph.nodes[kind].data["x"] = torch.rand(SIZES[kind], width, generator=draw)
    graph.nodes["user"].data["y"] = torch.arange(12) % 3
    graph.edges["rates"].data["rating"] = torch.rand(30, generator=draw)
    return graph


def test_pairs_file(tmp_path):
    path = tmp_path / "pairs.csv"
    for text in ("user,item\n1,2\n\n3\t4\n1,2\n", "1 2\n3, 4", "\ufeffuser item\n01 2\n3 4\n"):
        path.write_text(text)
        assert read_pairs(path).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "line", ["1.5,2", "-1,2", "+1,2", "1_0,2", "\u0661,2", "\u00b2,3", "1,2,3", "1", "a,b", f"{2**63},1", "1,\0"]
)
@pytest.mark.parametrize("before", ["", "7,8\n"])
def test_invalid_line_of_pairs(tmp_path, line, before):
    if line == "a,b" and not before:
        return  # a heading
    path = tmp_path / "pairs.csv"
    path.write_text(f"{before}{line}\n3,4\n")
    with raises("pairs_file.line", InputError, number=1 + bool(before), got=line[:40]) as caught:
        read_pairs(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["\n", "user,item\n"])
def test_no_pairs(tmp_path, text):
    (tmp_path / "pairs.csv").write_text(text)
    with raises("text_file.empty", InputError):
        read_pairs(tmp_path / "pairs.csv")


@pytest.fixture
def stored(tmp_path):
    """Return a function that writes graphs and returns the file's name."""

    def write(*graphs):
        dgl.save_graphs(str(tmp_path / "mine.bin"), list(graphs))
        return str(tmp_path / "mine.bin")

    return write


def refused(file, code, target_type=None, **fields):
    with raises(code, InputError, **fields) as caught:
        load(file, Options(target_type=target_type))
    assert "\n" not in str(caught.value)


def test_features_labels_and_edge_data_are_read(stored):
    graph = a_hetero_graph()
    dataset = load(stored(graph.int()))
    assert (dataset.task, dataset.target_type, dataset.num_classes, dataset.num_targets) == ("node", "user", 3, 12)
    assert {kind: rows.shape[1] for kind, rows in dataset.features.items()} == {"user": 2, "film": 3, "actor": 4}
    for kind, rows in dataset.features.items():
        torch.testing.assert_close(rows, graph.nodes[kind].data["x"])
        assert not dataset.graph.nodes[kind].data
    torch.testing.assert_close(dataset.graph.edges["rates"].data["rating"], graph.edges["rates"].data["rating"])
    assert dataset.graph.idtype == torch.int64 and dataset.graph.canonical_etypes == graph.canonical_etypes
    assert torch.cat([dataset.train, dataset.val, dataset.test]).sort().values.tolist() == list(range(12))


def test_target_type(stored):
    graph = a_hetero_graph()
    graph.nodes["film"].data["label"] = torch.arange(7) % 2
    for part, expected in enumerate(("train", "val", "test")):
        for kind in ("film", "actor"):
            graph.nodes[kind].data[f"{expected}_mask"] = torch.arange(SIZES[kind]) % 3 == part
    name = stored(graph)
    refused(name, "bin.target_type", labelled="film and user")
    refused(name, "bin.unknown_target_type", target_type="director", types="actor, film, user", got="director")
    actors = load(name, Options(target_type="actor"))
    assert not actors.is_labelled and actors.num_targets == SIZES["actor"] and actors.val.tolist() == [1]
    films, users = load(name, Options(target_type="film")), load(name, Options(target_type="user"))
    assert films.val.tolist() == [1, 4] and films.num_targets == 7
    assert users.num_targets == 12
    assert films.key != users.key and films.fingerprint != users.fingerprint


def test_names_by_type(stored, tmp_path):
    name, names_file = stored(a_hetero_graph()), tmp_path / "mine.names.json"
    films = [f"film {number}" for number in range(7)]
    names_file.write_text(json.dumps({"nodes": {"film": films}, "classes": ["a", "b", "c"]}))
    assert load(name).display_names == {"nodes": {"film": tuple(films)}, "classes": ("a", "b", "c")}
    for content, code, kind in (
        ({"nodes": {"film": films[:5]}}, "names_file.count", "film"),
        ({"nodes": {"song": films}}, "names_file.unexpected", "song"),
        ({"nodes": films}, "names_file.by_type", "nodes"),
        ({"nodes": {"film": 3}}, "names_file.not_texts", "nodes of film"),
        ({"features": ["a"]}, "names_file.unexpected", "features"),
    ):
        names_file.write_text(json.dumps(content))
        refused(name, code, of=kind)


def test_invalid_files(stored):
    graph = a_hetero_graph()
    del graph.nodes["actor"].data["x"]
    refused(stored(graph), "bin.no_features", type="actor", got="no data")
    graph = a_hetero_graph()
    graph.nodes["film"].data["x"][2] = torch.nan
    refused(stored(graph), "data.features_not_finite", of=" of type 'film'", count=1, first=2)
    graph = a_hetero_graph()
    del graph.nodes["user"].data["y"]
    refused(stored(graph), "bin.target_type", labelled="no type")
    refused(stored(a_hetero_graph(), a_hetero_graph()), "bin.several_graphs", got=2)
    refused("ba-shapes", "dataset.target_type_option", target_type="node")


def test_undirected_adds_missing_reverse_relations(stored):
    graph = a_hetero_graph()
    both = load(stored(graph), Options(undirected=True)).graph
    assert set(both.canonical_etypes) - set(graph.canonical_etypes) == {
        ("film", "rev_rates", "user"),
        ("film", "rev_plays in", "actor"),
    }
    for end, other in zip(both.edges(etype="rates"), reversed(both.edges(etype="rev_rates")), strict=True):
        assert torch.equal(end, other)
    assert torch.equal(both.edges["rates"].data["rating"], both.edges["rev_rates"].data["rating"])
    for kind in ("user", "film", "actor"):
        both.nodes[kind].data["x"] = graph.nodes[kind].data["x"]
    both.nodes["user"].data["y"] = graph.nodes["user"].data["y"]
    again = load(stored(both), Options(undirected=True)).graph
    assert again.canonical_etypes == both.canonical_etypes


@pytest.mark.parametrize("change", ["edge", "rating", "feature", "label"])
def test_key_and_fingerprint_depend_on_the_content(stored, change):
    before = load(stored(a_hetero_graph()))
    graph = a_hetero_graph()
    if change == "edge":
        graph.add_edges(0, 0, {"rating": torch.zeros(1)}, etype="rates")
    if change == "rating":
        graph.edges["rates"].data["rating"][4] = 7
    if change == "feature":
        graph.nodes["actor"].data["x"][1, 1] = 7
    if change == "label":
        graph.nodes["user"].data["y"][:2] = torch.tensor([1, 0])
    after = load(stored(graph))
    assert before.key != after.key and before.fingerprint != after.fingerprint
    assert load(stored(a_hetero_graph())).fingerprint == before.fingerprint
