"""A graph of several node types in a .bin file: what loads, and the sentence for everything that does not."""

import json

import dgl
import pytest
import torch

from dgl_lara.datasets import Options, load
from dgl_lara.datasets.link_files import read_pairs
from dgl_lara.errors import InputError

SIZES = {"user": 12, "film": 7, "actor": 3}


def a_typed_graph():
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


def test_pairs_one_a_line_after_a_line_of_words(tmp_path):
    path = tmp_path / "pairs.csv"
    for text in ("user,item\n1,2\n\n3\t4\n1,2\n", "1 2\n3, 4", "\ufeffuser item\n01 2\n3 4\n"):
        path.write_text(text)
        assert read_pairs(path).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "line", ["1.5,2", "-1,2", "+1,2", "1_0,2", "\u0661,2", "\u00b2,3", "1,2,3", "1", "a,b", f"{2**63},1", "1,\0"]
)
@pytest.mark.parametrize("before", ["", "7,8\n"])
def test_what_is_no_pair_is_refused_wherever_it_stands(tmp_path, line, before):
    if line == "a,b" and not before:
        return  # a line of words
    path = tmp_path / "pairs.csv"
    path.write_text(f"{before}{line}\n3,4\n")
    with pytest.raises(InputError, match="must hold a pair of node numbers a line, u,v") as caught:
        read_pairs(path)
    assert "\n" not in str(caught.value) and f"(line {1 + bool(before)} is '{line[:40]}')" in str(caught.value)


@pytest.mark.parametrize(("text", "said"), [("\n", "is empty"), ("user,item\n", "holds a heading and no pairs")])
def test_a_list_without_pairs(tmp_path, text, said):
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_pairs(tmp_path / "pairs.csv")


@pytest.fixture
def stored(tmp_path):
    """Writes graphs and gives the file's name."""

    def write(*graphs):
        dgl.save_graphs(str(tmp_path / "mine.bin"), list(graphs))
        return str(tmp_path / "mine.bin")

    return write


def refused(name, fragment, **options):
    with pytest.raises(InputError) as caught:
        load(name, Options(**options))
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_features_labels_and_edge_data_are_read(stored):
    graph = a_typed_graph()
    dataset = load(stored(graph.int()))
    assert (dataset.task, dataset.target_type, dataset.num_classes, dataset.num_targets) == ("node", "user", 3, 12)
    assert {kind: rows.shape[1] for kind, rows in dataset.features.items()} == {"user": 2, "film": 3, "actor": 4}
    for kind, rows in dataset.features.items():
        torch.testing.assert_close(rows, graph.nodes[kind].data["x"])
        assert not dataset.graph.nodes[kind].data
    torch.testing.assert_close(dataset.graph.edges["rates"].data["rating"], graph.edges["rates"].data["rating"])
    assert dataset.graph.idtype == torch.int64 and dataset.graph.canonical_etypes == graph.canonical_etypes
    assert torch.cat([dataset.train, dataset.val, dataset.test]).sort().values.tolist() == list(range(12))


def test_masks_and_the_asked_type_count(stored):
    graph = a_typed_graph()
    graph.nodes["film"].data["label"] = torch.arange(7) % 2
    for part, wanted in enumerate(("train", "val", "test")):
        for kind in ("film", "actor"):
            graph.nodes[kind].data[f"{wanted}_mask"] = torch.arange(SIZES[kind]) % 3 == part
    name = stored(graph)
    refused(name, "nodes of film and user have labels; say with --target-type which is meant")
    refused(name, "must name a type of nodes, one of actor, film, user (got 'director')", target_type="director")
    actors = load(name, Options(target_type="actor"))
    assert not actors.is_labelled and actors.num_targets == SIZES["actor"] and actors.val.tolist() == [1]
    films, users = load(name, Options(target_type="film")), load(name, Options(target_type="user"))
    assert films.val.tolist() == [1, 4] and films.num_targets == 7
    assert users.num_targets == 12
    assert films.key != users.key and films.fingerprint != users.fingerprint


def test_names_by_type(stored, tmp_path):
    name, beside = stored(a_typed_graph()), tmp_path / "mine.names.json"
    films = [f"film {number}" for number in range(7)]
    beside.write_text(json.dumps({"nodes": {"film": films}, "classes": ["a", "b", "c"]}))
    assert load(name).display_names == {"nodes": {"film": tuple(films)}, "classes": ("a", "b", "c")}
    for content, fragment in (
        ({"nodes": {"film": films[:5]}}, "a name for each of the 7 film (got 5)"),
        ({"nodes": {"song": films}}, "there are names of 'song' (the types are actor, film, user)"),
        ({"nodes": films}, "the names of nodes must be lists by node type"),
        ({"nodes": {"film": 3}}, "'nodes of film' must be a list of texts"),
        ({"features": ["a"]}, "the names of features have a name only where there is one type of nodes"),
    ):
        beside.write_text(json.dumps(content))
        refused(name, fragment)


def test_what_is_missing_is_named(stored):
    graph = a_typed_graph()
    del graph.nodes["actor"].data["x"]
    refused(stored(graph), "features of type 'actor' must be stored as x or feat (found: nothing)")
    graph = a_typed_graph()
    graph.nodes["film"].data["x"][2] = torch.nan
    refused(stored(graph), ".bin: features of type 'film' must be finite (1 rows hold NaN or infinity, first: row 2)")
    graph = a_typed_graph()
    del graph.nodes["user"].data["y"]
    refused(stored(graph), "none of the types actor, film, user has labels; say with --target-type which is meant")
    refused(stored(a_typed_graph(), a_typed_graph()), "one graph of several node types, or many of one type")


def test_target_type_is_for_such_files():
    refused("ba-shapes", "--target-type is for a .bin file with several node types", target_type="node")


def test_undirected_adds_the_reverse_relations_that_are_missing(stored):
    graph = a_typed_graph()
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
def test_every_change_of_the_content_shows(stored, change):
    before = load(stored(a_typed_graph()))
    graph = a_typed_graph()
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
    assert load(stored(a_typed_graph())).fingerprint == before.fingerprint
