"""Graph files of users, .npz and DGL .bin: what loads, and the errors of what does not."""

from pathlib import Path

import dgl
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from codes import raises

from dgl_lara._util.schema import tensor
from dgl_lara.datasets import Options, load
from dgl_lara.datasets.user_files import load_graph
from dgl_lara.errors import InputError, LaraError

NODES, GRAPHS, DIM = 40, 10, 3


def node_arrays():
    rng = np.random.default_rng(0)
    src = np.arange(NODES)
    return {"src": src, "dst": (src + 1) % NODES, "x": rng.random((NODES, DIM)), "y": src % 4}


def graph_arrays():
    """Ten paths of four nodes, stored in one direction."""
    first = np.arange(0, NODES, 4)
    src = np.concatenate([first, first + 1, first + 2])
    features = np.random.default_rng(1).random((NODES, DIM))
    return {"src": src, "dst": src + 1, "x": features, "graph": np.arange(NODES) // 4, "y": np.arange(GRAPHS) % 2}


def masks(count):
    place = np.arange(count) % 4
    return {"train_mask": place < 2, "val_mask": place == 2, "test_mask": place == 3}


@pytest.fixture
def npz(tmp_path):
    """Return a function that writes arrays except None and returns the file's name."""

    def write(arrays, **changes):
        path = tmp_path / "mine.npz"
        np.savez(path, **{name: array for name, array in {**arrays, **changes}.items() if array is not None})
        return str(path)

    return write


def a_graph(size=6, **data):
    graph = dgl.graph((torch.arange(size - 1), torch.arange(1, size)), num_nodes=size)
    for name, value in data.items():
        graph.ndata[name] = value
    return graph


def refused(file, code, kind=InputError, **fields):
    with raises(code, kind, **fields) as caught:
        load(str(file))
    assert "\n" not in str(caught.value)


# --- what loads -------------------------------------------------------------------------------------------------


def test_npz_with_node_labels(npz):
    arrays = node_arrays()
    dataset = load(npz(arrays, **masks(NODES)))
    assert (dataset.name, dataset.task, dataset.num_classes) == ("mine", "node", 4)
    src, dst = dataset.graph.edges()
    np.testing.assert_array_equal(src, arrays["src"])
    np.testing.assert_array_equal(dst, arrays["dst"])
    torch.testing.assert_close(dataset.features, torch.as_tensor(arrays["x"], dtype=torch.float32))
    assert dataset.labels.tolist() == arrays["y"].tolist()
    assert dataset.val.tolist() == list(range(2, NODES, 4))
    assert "mine.npz" in dataset.source and "random" not in dataset.source


def test_npz_with_graph_labels(npz):
    arrays = graph_arrays()
    dataset = load(npz(arrays))
    assert (dataset.task, dataset.graph.batch_size, dataset.num_targets) == ("graph", GRAPHS, GRAPHS)
    assert dataset.graph.batch_num_nodes().tolist() == [4] * GRAPHS
    assert dataset.graph.batch_num_edges().tolist() == [3] * GRAPHS
    assert [len(dataset.train), len(dataset.val), len(dataset.test)] == [8, 1, 1]
    assert all(part in dataset.source for part in ("mine.npz", "random split", "seed 0"))


def test_random_split_follows_the_seed(npz):
    path = npz(node_arrays())
    first, again, other = (load(path, Options(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first.train, again.train)
    assert not torch.equal(first.train, other.train)


def test_bin_with_node_labels(tmp_path):
    path = tmp_path / "mine.bin"
    features, labels = torch.rand(20, 5), torch.arange(20) % 3
    graph = a_graph(20, feat=features, label=labels, **{k: torch.as_tensor(v) for k, v in masks(20).items()})
    dgl.save_graphs(str(path), [graph.int()])
    dataset = load(str(path))
    assert (dataset.task, dataset.num_classes, dataset.graph.num_edges()) == ("node", 3, 19)
    assert dataset.graph.idtype == torch.int64
    torch.testing.assert_close(dataset.features, features)
    assert torch.equal(dataset.labels, labels)
    assert dataset.test.tolist() == [3, 7, 11, 15, 19]
    assert list(dataset.graph.ndata) == []


def test_bin_with_graph_labels(tmp_path):
    path = tmp_path / "mine.bin"
    graphs = [a_graph(size, x=torch.rand(size, 2)) for size in range(3, 13)]
    dgl.save_graphs(str(path), graphs, {"labels": torch.arange(10).unsqueeze(1) % 2})
    dataset = load(str(path))
    assert (dataset.task, dataset.num_classes) == ("graph", 2)
    assert dataset.graph.batch_num_nodes().tolist() == list(range(3, 13))
    assert dataset.graph.batch_num_edges().tolist() == list(range(2, 12))
    torch.testing.assert_close(dataset.features, torch.cat([graph.ndata["x"] for graph in graphs]))


def test_bin_keeps_numeric_edge_data(tmp_path):
    path, graph = tmp_path / "mine.bin", a_graph(20, x=torch.rand(20, 5), y=torch.arange(20) % 3)
    dgl.save_graphs(str(path), [graph])
    without = load(str(path))
    graph.edata["weight"], graph.edata["kind"] = torch.rand(19, dtype=torch.float64), torch.arange(19)
    graph.edata["phase"], graph.edata[dgl.EID] = torch.rand(19, dtype=torch.complex64), torch.arange(19)
    dgl.save_graphs(str(path), [graph])
    dataset = load(str(path))
    assert set(dataset.graph.edata) == {"weight", "kind"}
    torch.testing.assert_close(dataset.graph.edata["weight"], graph.edata["weight"].float())
    assert torch.equal(dataset.graph.edata["kind"], torch.arange(19))
    assert without.key != dataset.key and without.fingerprint != dataset.fingerprint
    graph.edata["weight"][3] = 2
    dgl.save_graphs(str(path), [graph])
    assert load(str(path)).key != dataset.key and load(str(path)).fingerprint != dataset.fingerprint


def test_undirected_edges_keep_the_data_of_their_direction(tmp_path):
    path = tmp_path / "mine.bin"
    graph = dgl.graph(([0, 1, 1, 2], [1, 0, 2, 3]), num_nodes=10)
    graph.ndata["x"], graph.ndata["y"] = torch.rand(10, 2), torch.arange(10) % 2
    graph.edata["weight"] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    dgl.save_graphs(str(path), [graph])
    both = load(str(path), Options(undirected=True)).graph
    found = dict(
        zip(zip(*map(torch.Tensor.tolist, both.edges()), strict=True), both.edata["weight"].tolist(), strict=True)
    )
    assert found == {(0, 1): 1, (1, 0): 2, (1, 2): 3, (2, 1): 3, (2, 3): 4, (3, 2): 4}


@pytest.mark.parametrize("arrays", [node_arrays(), graph_arrays()], ids=["node", "graph"])
def test_undirected(npz, arrays):
    one_way, both = load(npz(arrays)), load(npz(arrays), Options(undirected=True))
    assert both.graph.num_edges() == 2 * one_way.graph.num_edges()
    assert both.graph.batch_num_nodes().tolist() == one_way.graph.batch_num_nodes().tolist()
    assert both.graph.batch_num_edges().tolist() == [2 * n for n in one_way.graph.batch_num_edges().tolist()]


@pytest.mark.parametrize("dtype", [">f8", "f2", np.longdouble, "i4", "u2"])
def test_any_numeric_type(npz, dtype):
    dataset = load(npz(node_arrays(), x=np.eye(NODES, DIM).astype(dtype)))
    torch.testing.assert_close(dataset.features, torch.eye(NODES, DIM))


@pytest.mark.parametrize("name", ["src", "x", "y", "train_mask"])
def test_key_depends_on_the_content(npz, name):
    arrays = {**node_arrays(), **masks(NODES)}
    first = load(npz(arrays))
    assert load(npz(arrays)).key == first.key
    changed = arrays[name].copy()
    changed[9] = 0
    assert load(npz(arrays, **{name: changed})).key != first.key


def test_key_depends_on_the_random_split(npz):
    path = npz(node_arrays())
    assert load(path, Options(seed=1)).key != load(path, Options(seed=2)).key


# --- layouts of others --------------------------------------------------------------------------------------------


def sparse_arrays(prefix, matrix):
    matrix = sp.csr_matrix(matrix)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    return {f"{prefix}{part}": np.asarray(value) for part, value in parts.items()}


def edges_of(dataset):
    return sorted(zip(*(end.tolist() for end in dataset.graph.edges()), strict=True))


@pytest.mark.parametrize(("adjacency", "attributes"), [("adj_", "attr_"), ("adj_matrix.", "attr_matrix.")])
def test_npz_of_the_amazon_and_coauthor_benchmarks(npz, adjacency, attributes, notices):
    """They hold sparse adjacency and features, labels, and arrays of objects that are never unpickled."""
    ours = node_arrays()
    matrix = sp.coo_matrix((np.ones(NODES), (ours["src"], ours["dst"])), shape=(NODES, NODES))
    theirs = {**sparse_arrays(adjacency, matrix), **sparse_arrays(attributes, ours["x"]), "labels": ours["y"]}
    objects = np.array([{"an": "object"}, None], dtype=object)
    first, second = load(npz(ours)), load(npz(theirs, node_names=objects, class_names=np.array(["a", "b", "c", "d"])))
    assert edges_of(first) == edges_of(second) and first.labels.tolist() == second.labels.tolist()
    torch.testing.assert_close(first.features, second.features)
    assert second.display_names == {"classes": ("a", "b", "c", "d")}
    assert notices.once("npz.not_symmetric") and len(notices.codes) == 1
    both = load(npz({**theirs, **sparse_arrays(adjacency, matrix + matrix.T)}))
    assert both.graph.num_edges() == 2 * NODES and len(notices.codes) == 1


def test_npz_of_pytorch_geometric(npz):
    ours = node_arrays()
    theirs = {"edge_index": np.stack([ours["src"], ours["dst"]]), "features": ours["x"], "label": ours["y"]}
    first, second = load(npz(ours)), load(npz(theirs))
    assert edges_of(first) == edges_of(second) and first.key == second.key
    refused(npz({**theirs, "edge_index": np.ones((3, 4), int)}), "npz.edge_index_shape", got=(3, 4))


def test_duplicates_must_be_equal(npz):
    ours = node_arrays()
    edges = np.stack([ours["src"], ours["dst"]])
    assert edges_of(load(npz({**ours, "edge_index": edges, "label": ours["y"]}))) == edges_of(load(npz(ours)))
    adjacency = sparse_arrays("adj_", sp.eye(NODES))
    for more, what, names in (
        ({"edge_index": edges[::-1]}, "edges", "src and as edge_index"),
        (adjacency, "edges", "src and as a sparse adjacency"),
        ({"features": ours["x"] + 1}, "features", "x and as features"),
        (sparse_arrays("attr_", ours["x"] + 1), "features", "x and as sparse attributes"),
        ({"labels": 1 - ours["y"] % 2}, "labels", "y and as labels"),
    ):
        refused(npz({**ours, **more}), "npz.ambiguous", what=what, names=names)


def test_invalid_sparse_matrices(npz):
    ring = sp.eye(5, format="csr")
    refused(npz(sparse_arrays("", ring)), "npz.missing", missing="edges and features")
    refused(npz(sparse_arrays("adj_", ring)), "npz.missing", missing="features")
    for broken in ({"adj_indptr": np.array([0, 9, 9, 9, 9, 9])}, {"adj_indices": np.array([0, 1, 2, 3, 9])}):
        refused(npz({**sparse_arrays("adj_", ring), **broken}), "npz.not_sparse")
    refused(npz(sparse_arrays("adj_", np.ones((2, 3)))), "npz.adjacency_shape", got=(2, 3))


# --- names --------------------------------------------------------------------------------------------------------


def test_user_names(npz, tmp_path):
    names = {"node_names": np.array([f"n{i}" for i in range(NODES)]), "class_names": np.array(["a", "b", "c", "d"])}
    path = npz(node_arrays(), **names)
    given = load(path).names
    assert given["labels"][3] == "n3" and given["classes"] == ("a", "b", "c", "d") and given["columns"] is None
    beside = tmp_path / "mine.names.json"
    beside.write_text('{"features": ["age", "size", "price"], "classes": ["w", "x", "y", "z"]}')
    given = load(path).names
    assert given["columns"] == ("age", "size", "price") and given["classes"][0] == "w" and given["labels"][3] == "n3"


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ('{"classes": ["a"]}', "names_file.count", {"of": "classes", "expected": 4, "got": 1}),
        (r'{"classes": ["a", "b\ud800", "c", "d"]}', "names_file.not_plain", {"got": r"'b\ud800'"}),
        (r'{"classes": ["a", "b", "\u001b[2Jc", "d"]}', "names_file.not_plain", {"got": r"'\x1b[2Jc'"}),
        (r'{"classes": ["a", "b", "c\nd", "d"]}', "names_file.not_plain", {"of": "classes"}),
        ('{"class": ["a"]}', "names_file.keys", {}),
        ('{"classes": [1, 2, 3, 4]}', "names_file.not_texts", {"of": "classes"}),
        ("{", "names_file.not_json", {}),
    ],
)
def test_invalid_names(npz, tmp_path, text, code, fields):
    path = npz(node_arrays())
    (tmp_path / "mine.names.json").write_text(text)
    refused(path, code, **fields)


# --- what does not ----------------------------------------------------------------------------------------------


def test_missing_file(tmp_path):
    for name in ("nowhere.npz", "nowhere.bin"):
        refused(tmp_path / name, "graph_file.missing")


def test_wrong_ending(tmp_path):
    (tmp_path / "mine.csv").write_text("0,1\n")
    refused(tmp_path / "mine.csv", "graph_file.suffix", got=".csv")
    (tmp_path / "data.pt").touch()
    refused(tmp_path / "data.pt", "graph_file.torch_file")
    (tmp_path / "mine").touch()
    refused(tmp_path / "mine", "graph_file.suffix", got="no ending")


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99])
def test_truncated_npz(npz, share):
    path = npz(node_arrays())
    with open(path, "r+b") as file:
        file.truncate(int(share * file.seek(0, 2)))
    refused(path, "npz.damaged", LaraError)


def test_no_error_advises_to_load_a_pickle(tmp_path):
    (tmp_path / "mine.npz").write_text("no archive")
    refused(tmp_path / "mine.npz", "npz.damaged", LaraError, cause="no archive")


def test_truncated_bin(tmp_path):
    """If the file ends within the features, dgl's own reader ends in a segmentation fault."""
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(40, x=torch.rand(40, 3), y=torch.arange(40) % 3)])
    content = path.read_bytes()
    for share in (0, 0.1, 0.5, *np.linspace(0.7, 0.98, 15)):
        path.write_bytes(content[: int(share * len(content))])
        refused(path, "bin.damaged", LaraError)


@pytest.mark.parametrize(("name", "missing"), [("src", "edges"), ("dst", "edges"), ("x", "features")])
def test_missing_array(npz, name, missing):
    refused(npz(node_arrays(), **{name: None}), "npz.missing", missing=missing)


ONES, EVERY = np.ones, np.arange(NODES)
BAD_NODES = {
    "other lengths": ({"dst": np.arange(7)}, "npz.edges_shape", {"src": (40,), "dst": (7,)}),
    "src of two dims": ({"src": ONES((40, 1), int)}, "npz.edges_shape", {}),
    "flat x": ({"x": ONES(40)}, "data.features_shape", {"got": (40,)}),
    "no columns": ({"x": ONES((40, 0))}, "data.features_shape", {"got": (40, 0)}),
    "few labels": ({"y": np.arange(39) % 2}, "data.labels_count", {"expected": 40, "got": (39,)}),
    "labels in a table": ({"y": ONES((40, 2), int)}, "data.labels_count", {"got": (40, 2)}),
    "one label": ({"y": np.array(3)}, "data.labels_count", {"got": ()}),
    "negative label": ({"y": EVERY % 3 - 1, **masks(40)}, "data.unlabelled_targets", {"count": 14, "first": 0}),
    "huge label": ({"y": EVERY + 10**9}, "graph_file.labels_range", {"got": 1000000039, "count": 40}),
    "fractional label": ({"y": np.linspace(0, 1, 40)}, "graph_file.fractions", {"name": "labels"}),
    "NaN label": ({"y": np.full(40, np.nan)}, "graph_file.fractions", {"name": "labels"}),
    "NaN": ({"x": np.where(np.eye(40, 3) > 0, np.nan, 1)}, "data.features_not_finite", {"count": 3, "first": 0}),
    "infinity": (
        {"x": np.where(EVERY[:, None] == 7, np.inf, 1)}, "data.features_not_finite", {"count": 1, "first": 7},
    ),
    "too large for float32": ({"x": np.full((40, 1), 1e300)}, "data.features_not_finite", {"count": 40}),
    "edge too far": ({"dst": np.arange(1, 41)}, "graph_file.edges", {"count": 1, "edge": 39, "got": "39 -> 40"}),
    "edge below zero": ({"src": EVERY - 1}, "graph_file.edges", {"count": 1, "edge": 0, "got": "-1 -> 1"}),
    "fractional edge": ({"src": EVERY + 0.5}, "graph_file.fractions", {"name": "src"}),
    "words": ({"y": np.array(["a"] * 40)}, "npz.not_numbers", {"name": "y"}),
    "no edges": ({"src": np.array([], int), "dst": np.array([], int)}, "data.no_edges", {}),
    "nothing": (
        {"src": np.array([], int), "dst": np.array([], int), "x": ONES((0, 3)), "y": np.array([], int)},
        "data.no_edges", {},
    ),
    "one mask": ({"train_mask": masks(40)["train_mask"]}, "graph_file.masks", {"got": "train"}),
    "two masks": ({**masks(40), "val_mask": None}, "graph_file.masks", {"got": "train, test"}),
    "short mask": ({**masks(40), "val_mask": ONES(39, bool)}, "graph_file.mask_shape", {"got": (39,)}),
    "empty mask": ({**masks(40), "test_mask": np.zeros(40, bool)}, "data.empty_split", {"split": "test"}),
    "overlap": ({**masks(40), "val_mask": EVERY % 2 == 0}, "data.overlapping_splits", {}),
    "NaN mask": ({**masks(40), "train_mask": np.where(EVERY % 4 < 2, np.nan, 0)}, "graph_file.mask_values", {}),
    "index list": ({**masks(40), "train_mask": EVERY}, "graph_file.mask_values", {"split": "train"}),
    "uint64 that wraps": ({"src": np.full(NODES, 2**64 - 1, np.uint64)}, "npz.too_large", {"name": "src"}),
    "huge float": ({"y": np.full(NODES, 1e300)}, "graph_file.large_floats", {"name": "labels"}),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "code", "fields"), BAD_NODES.values(), ids=BAD_NODES)
def test_bad_node_file(npz, changes, code, fields):
    refused(npz(node_arrays(), **changes), code, **fields)


OWNER = np.arange(NODES) // 4
BAD_GRAPHS = {
    "few labels": ({"y": np.arange(9) % 2}, "data.labels_count"),
    "short": ({"graph": OWNER[:-1]}, "npz.graph"),
    "falling": ({"graph": OWNER[::-1].copy()}, "npz.graph"),
    "edge between two": ({"dst": graph_arrays()["src"] + 4}, "graph_file.edges"),
    "edge across": ({"src": np.array([3]), "dst": np.array([4])}, "npz.edge_between_graphs"),
    "gap": ({"graph": np.where(OWNER > 4, OWNER + 1, OWNER)}, "npz.graph"),
    "from one": ({"graph": OWNER + 1}, "npz.graph"),
    "below zero": ({"graph": OWNER - 1}, "npz.graph"),
}


@pytest.mark.parametrize(("changes", "code"), BAD_GRAPHS.values(), ids=BAD_GRAPHS)
def test_bad_graph_file(npz, changes, code):
    refused(npz(graph_arrays(), **changes), code)


def test_labels_may_be_missing(npz):
    dataset = load(npz(node_arrays(), y=None, class_names=["a", "b", "c"]))
    assert not dataset.is_labelled and dataset.labels.tolist() == [-1] * 40 and dataset.num_targets == 40
    assert len(dataset.train) == 32 and dataset.names["classes"] == ("a", "b", "c")
    masked = load(npz(node_arrays(), y=None, **masks(40)))
    assert masked.train.tolist() == load(npz(node_arrays(), **masks(40))).train.tolist()
    of_graphs = load(npz(graph_arrays(), y=None))
    assert not of_graphs.is_labelled and of_graphs.num_targets == 10
    refused(npz(node_arrays(), y=np.full(40, -2)), "data.labels_range", got=-2)


def test_nodes_outside_the_masks_need_no_label(npz):
    known = masks(40)
    y = np.where(sum(known.values()) > 0, np.arange(40) % 2, -1)
    y[:3] = -1
    for mask in known.values():
        mask[:3] = False
    dataset = load(npz(node_arrays(), y=y, **known))
    assert dataset.num_classes == 2 and dataset.labels[:3].tolist() == [-1] * 3
    assert bool((dataset.labels[torch.cat([dataset.train, dataset.val, dataset.test])] >= 0).all())


def test_graph_without_labels(npz):
    graph, x = load_graph(Path(npz(node_arrays(), y=None)))
    assert graph.num_nodes() == len(x) == 40
    with raises("npz.missing", InputError, missing="features"):
        load_graph(Path(npz(node_arrays(), x=None, y=None)))


def test_bin_without_features_or_labels(tmp_path):
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(y=torch.arange(6))])
    refused(path, "bin.no_features", expected="x or feat", got="y")
    dgl.save_graphs(str(path), [a_graph(x=torch.rand(6, 2))])
    assert load(str(path)).labels.tolist() == [-1] * 6
    dgl.save_graphs(str(path), [a_graph(x=torch.rand(6, 2))] * 10)
    assert load(str(path)).labels.tolist() == [-1] * 10


def test_bin_with_unlike_graphs(tmp_path):
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(x=torch.rand(6, 2)), a_graph()], {"y": torch.tensor([0, 1])})
    refused(path, "bin.unlike_graphs")


def test_bin_with_invalid_features(tmp_path):
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(x=torch.full((6, 2), torch.nan), y=torch.arange(6) % 2)])
    refused(path, "data.features_not_finite", name=str(path), count=6)


@pytest.mark.parametrize("gaps", [False, True])
def test_finite_numbers_with_an_infinite_sum(gaps):
    """The sum is a fast check only: large numbers overflow it, and infinities of both signs give NaN."""
    check = tensor(torch.float, 100, gaps=gaps)
    assert check(torch.full((100,), 3e38)) is None
    for *bad, fits in ((torch.inf, False), (-torch.inf, False), (torch.inf, -torch.inf, False), (torch.nan, gaps)):
        numbers = torch.ones(100)
        numbers[7 : 7 + len(bad)] = torch.tensor(bad)
        assert (check(numbers) is None) == fits


def test_features_beyond_the_memory(tmp_path):
    """A few bytes can declare any number of columns."""
    none, rows = np.zeros(0, int), np.zeros(61, int)
    parts: dict = {"attr_data": np.zeros(0), "attr_indices": none, "attr_indptr": rows, "attr_shape": [60, 10**10]}
    np.savez(tmp_path / "g.npz", src=np.arange(59), dst=np.arange(1, 60), y=np.arange(60) % 2, **parts)
    refused(tmp_path / "g.npz", "npz.memory", rows=60, columns=10**10)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (Options(target_type="user"), "dataset.target_type_option"),
        (Options(source="original"), "dataset.file_options"),
        (Options(data_dir=Path(".")), "dataset.file_options"),
    ],
)
def test_options_that_do_not_fit_a_file(npz, options, code):
    with raises(code, InputError):
        load(npz(node_arrays()), options)


def test_random_splits_hold_labelled_nodes(npz):
    arrays = node_arrays()
    arrays["y"][::2] = -1
    dataset = load(npz(arrays))
    assert bool((dataset.labels[torch.cat([dataset.train, dataset.val, dataset.test])] >= 0).all())
    assert len(dataset.train) + len(dataset.val) + len(dataset.test) == NODES // 2
