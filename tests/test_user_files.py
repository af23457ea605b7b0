"""A graph of the user's own, as .npz or DGL .bin: what loads, and the sentence for everything that does not."""

from pathlib import Path

import dgl
import numpy as np
import pytest
import scipy.sparse as sp
import torch

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
    """Writes arrays (None: left out) and gives the file's name."""

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


def refused(name, fragment, kind=InputError, options=Options()):  # noqa: B008 (frozen)
    with pytest.raises(kind) as caught:
        load(str(name), options)
    assert fragment in str(caught.value)
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
    assert dataset.source == "file mine.npz"


def test_npz_with_graph_labels(npz):
    arrays = graph_arrays()
    dataset = load(npz(arrays))
    assert (dataset.task, dataset.graph.batch_size, dataset.num_targets) == ("graph", GRAPHS, GRAPHS)
    assert dataset.graph.batch_num_nodes().tolist() == [4] * GRAPHS
    assert dataset.graph.batch_num_edges().tolist() == [3] * GRAPHS
    assert [len(dataset.train), len(dataset.val), len(dataset.test)] == [8, 1, 1]
    assert dataset.source == "file mine.npz, random split, seed 0"


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


def test_bin_keeps_edge_data_that_are_numbers(tmp_path):
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


def test_undirected_edges_have_the_data_of_their_own_direction_first(tmp_path):
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
def test_any_kind_of_number(npz, dtype):
    dataset = load(npz(node_arrays(), x=np.eye(NODES, DIM).astype(dtype)))
    torch.testing.assert_close(dataset.features, torch.eye(NODES, DIM))


@pytest.mark.parametrize("name", ["src", "x", "y", "train_mask"])
def test_key_tells_two_files_apart(npz, name):
    """Stored target models are found by the key: a file with other features or another split needs its own."""
    arrays = {**node_arrays(), **masks(NODES)}
    first = load(npz(arrays))
    assert load(npz(arrays)).key == first.key
    changed = arrays[name].copy()
    changed[9] = 0
    assert load(npz(arrays, **{name: changed})).key != first.key


def test_key_tells_random_splits_apart(npz):
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
def test_npz_of_the_amazon_and_coauthor_benchmarks(npz, adjacency, attributes, capsys):
    """Sparse adjacency and features, labels, and arrays of objects that only a pickle could hold."""
    ours = node_arrays()
    matrix = sp.coo_matrix((np.ones(NODES), (ours["src"], ours["dst"])), shape=(NODES, NODES))
    theirs = {**sparse_arrays(adjacency, matrix), **sparse_arrays(attributes, ours["x"]), "labels": ours["y"]}
    objects = np.array([{"an": "object"}, None], dtype=object)
    first, second = load(npz(ours)), load(npz(theirs, node_names=objects, class_names=np.array(["a", "b", "c", "d"])))
    assert edges_of(first) == edges_of(second) and first.labels.tolist() == second.labels.tolist()
    torch.testing.assert_close(first.features, second.features)
    assert second.display_names == {"classes": ("a", "b", "c", "d")}
    assert "is not symmetric" in capsys.readouterr().err
    both = load(npz({**theirs, **sparse_arrays(adjacency, matrix + matrix.T)}))
    assert both.graph.num_edges() == 2 * NODES and "symmetric" not in capsys.readouterr().err


def test_npz_of_pytorch_geometric(npz):
    ours = node_arrays()
    theirs = {"edge_index": np.stack([ours["src"], ours["dst"]]), "features": ours["x"], "label": ours["y"]}
    first, second = load(npz(ours)), load(npz(theirs))
    assert edges_of(first) == edges_of(second) and first.key == second.key
    refused(npz({**theirs, "edge_index": np.ones((3, 4), int)}), "edge_index must have two rows, sources and targets")


def test_what_a_file_says_twice_it_says_alike(npz):
    ours = node_arrays()
    edges = np.stack([ours["src"], ours["dst"]])
    assert edges_of(load(npz({**ours, "edge_index": edges, "label": ours["y"]}))) == edges_of(load(npz(ours)))
    adjacency = sparse_arrays("adj_", sp.eye(NODES))
    for more, what in (
        ({"edge_index": edges[::-1]}, "edges as src and as edge_index"),
        (adjacency, "edges as src and as a sparse adjacency"),
        ({"features": ours["x"] + 1}, "features as x and as features"),
        (sparse_arrays("attr_", ours["x"]), "features as x and as sparse attributes"),
        ({"labels": 1 - ours["y"] % 2}, "labels as y and as labels"),
    ):
        refused(npz({**ours, **more}), f"holds different {what}; leave all but one out.")


def test_what_is_missing_is_said(npz):
    ring = sp.eye(5, format="csr")
    refused(
        npz(sparse_arrays("", ring), format=np.array(b"csr")),
        "lacks the array(s) src, dst, x; it must hold src, dst and x, or edge_index, or a sparse adjacency (adj_data, "
        "adj_indices, adj_indptr, adj_shape), and y if there are labels (it has data, indices, indptr, shape, format, "
        "a scipy sparse matrix alone).",
    )
    refused(npz(sparse_arrays("adj_", ring)), "lacks the array(s) x;")
    broken = {**sparse_arrays("adj_", ring), "adj_indptr": np.array([0, 9, 9, 9, 9, 9])}
    refused(npz(broken), "adj_data, adj_indices, adj_indptr, adj_shape are no sparse matrix")
    outside = {**sparse_arrays("adj_", ring), "adj_indices": np.array([0, 1, 2, 3, 9])}
    refused(npz(outside), "adj_data, adj_indices, adj_indptr, adj_shape are no sparse matrix")
    refused(npz(sparse_arrays("adj_", np.ones((2, 3)))), "the adjacency matrix must be square (got (2, 3))")


# --- names --------------------------------------------------------------------------------------------------------


def test_names_of_ones_own_reach_the_explanation(npz, tmp_path):
    names = {"node_names": np.array([f"n{i}" for i in range(NODES)]), "class_names": np.array(["a", "b", "c", "d"])}
    path = npz(node_arrays(), **names)
    given = load(path).names
    assert given["labels"][3] == "n3" and given["classes"] == ("a", "b", "c", "d") and given["columns"] is None
    beside = tmp_path / "mine.names.json"
    beside.write_text('{"features": ["age", "size", "price"], "classes": ["w", "x", "y", "z"]}')
    given = load(path).names
    assert given["columns"] == ("age", "size", "price") and given["classes"][0] == "w" and given["labels"][3] == "n3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"classes": ["a"]}', "there must be a name for each of the 4 classes (got 1)"),
        (
            r'{"classes": ["a", "b\ud800", "c", "d"]}',
            r"names of classes must be plain text on one line (got 'b\ud800')",
        ),
        (r'{"classes": ["a", "b", "\u001b[2Jc", "d"]}', r"plain text on one line (got '\x1b[2Jc')"),
        (r'{"classes": ["a", "b", "c\nd", "d"]}', "names of classes must be plain text on one line"),
        ('{"class": ["a"]}', "must hold lists under nodes, classes, features, and nothing else"),
        ('{"classes": [1, 2, 3, 4]}', "'classes' must be a list of texts"),
        ("{", "must be a JSON file"),
    ],
)
def test_names_that_do_not_fit(npz, tmp_path, text, said):
    path = npz(node_arrays())
    (tmp_path / "mine.names.json").write_text(text)
    refused(path, said)


# --- what does not ----------------------------------------------------------------------------------------------


def test_missing_file(tmp_path):
    for name in ("nowhere.npz", "nowhere.bin"):
        refused(tmp_path / name, "does not exist")


def test_wrong_ending(tmp_path):
    (tmp_path / "mine.csv").write_text("0,1\n")
    refused(tmp_path / "mine.csv", "must be an .npz or a DGL .bin file (got '.csv')")
    (tmp_path / "data.pt").touch()
    refused(tmp_path / "data.pt", "of PyTorch Geometric's Data: np.savez(")
    (tmp_path / "mine").touch()
    refused(tmp_path / "mine", "(got 'no ending')")


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99])
def test_truncated_npz(npz, share):
    path = npz(node_arrays())
    with open(path, "r+b") as file:
        file.truncate(int(share * file.seek(0, 2)))
    refused(path, "is truncated or not an .npz file", LaraError)


def test_nobody_is_told_to_load_a_pickle(tmp_path):
    (tmp_path / "mine.npz").write_text("no archive")
    refused(tmp_path / "mine.npz", "mine.npz is truncated or not an .npz file.", LaraError)


def test_truncated_bin(tmp_path):
    """Somewhere in the features dgl's own reader ends in a segmentation fault; the sentence must come all the same."""
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(40, x=torch.rand(40, 3), y=torch.arange(40) % 3)])
    content = path.read_bytes()
    for share in (0, 0.1, 0.5, *np.linspace(0.7, 0.98, 15)):
        path.write_bytes(content[: int(share * len(content))])
        refused(path, "is truncated or not a DGL .bin file", LaraError)


@pytest.mark.parametrize("name", ["src", "dst", "x"])
def test_missing_array(npz, name):
    refused(npz(node_arrays(), **{name: None}), f"lacks the array(s) {name}; it must hold src, dst and x, or edge")


ONES = np.ones
BAD_NODES = {
    "other lengths": ({"dst": np.arange(7)}, "src and dst must be two lists of one length (got (40,) and (7,))"),
    "src of two dims": ({"src": ONES((40, 1), int)}, "src and dst must be two lists of one length"),
    "flat x": ({"x": ONES(40)}, "x must have one row a node and one column a feature (got shape (40,))"),
    "no columns": ({"x": ONES((40, 0))}, "features must have one row a node, (40, dim) (got (40, 0))"),
    "few labels": ({"y": np.arange(39) % 2}, "mine.npz: there must be one label for each of the 40 nodes (got 39)"),
    "labels in a table": ({"y": ONES((40, 2), int)}, "labels must have one entry a node (got shape (40, 2))"),
    "one label": ({"y": np.array(3)}, "labels must have one entry a node (got shape ())"),
    "negative label": (
        {"y": np.arange(40) % 3 - 1, **masks(40)},
        "mine.npz: nodes of train, val and test must have labels (got -1 for 14, first: 0); give masks",
    ),
    "huge label": (
        {"y": np.arange(40) + 10**9},
        "labels must be numbered 0, 1, 2, ... (got 1000000039 among 40 nodes)",
    ),
    "fractional label": ({"y": np.linspace(0, 1, 40)}, "labels must be whole numbers (got fractions)"),
    "NaN label": ({"y": np.full(40, np.nan)}, "labels must be whole numbers (got fractions)"),
    "NaN": (
        {"x": np.where(np.eye(40, 3) > 0, np.nan, 1)},
        "mine.npz: features must be finite (3 rows hold NaN or infinity, first: row 0)",
    ),
    "infinity": (
        {"x": np.where(np.arange(40)[:, None] == 7, np.inf, 1)},
        "(1 rows hold NaN or infinity, first: row 7)",
    ),
    "too large for float32": ({"x": np.full((40, 1), 1e300)}, "40 rows hold NaN or infinity"),
    "edge too far": (
        {"dst": np.arange(1, 41)},
        "edges must join nodes 0..39 (x has 40 rows); 1 do not, first: edge 39, 39 -> 40",
    ),
    "edge below zero": ({"src": np.arange(40) - 1}, "1 do not, first: edge 0, -1 -> 1"),
    "fractional edge": ({"src": np.arange(40) + 0.5}, "src must be whole numbers (got fractions)"),
    "words": ({"y": np.array(["a"] * 40)}, "the array y must hold numbers (got <U1)"),
    "no edges": ({"src": np.array([], int), "dst": np.array([], int)}, "the graph has no edges"),
    "nothing": (
        {"src": np.array([], int), "dst": np.array([], int), "x": ONES((0, 3)), "y": np.array([], int)},
        "the graph has no edges",
    ),
    "one mask": (
        {"train_mask": masks(40)["train_mask"]},
        "give train_mask, val_mask and test_mask, or none (got train only)",
    ),
    "two masks": (
        {**masks(40), "val_mask": None},
        "give train_mask, val_mask and test_mask, or none (got train, test only)",
    ),
    "short mask": ({**masks(40), "val_mask": ONES(39, bool)}, "val_mask must have the shape of y, (40,) (got (39,))"),
    "empty mask": ({**masks(40), "test_mask": np.zeros(40, bool)}, "the test split is empty; give masks"),
}


@pytest.mark.parametrize(("changes", "fragment"), BAD_NODES.values(), ids=BAD_NODES)
def test_bad_node_file(npz, changes, fragment):
    refused(npz(node_arrays(), **changes), fragment)


OWNER = np.arange(NODES) // 4
BAD_GRAPHS = {
    "few labels": ({"y": np.arange(9) % 2}, "there must be one label for each of the 10 graphs (got 9)"),
    "short": ({"graph": OWNER[:-1]}, "must name, in rising order, the graph of each of the 40 nodes"),
    "falling": ({"graph": OWNER[::-1].copy()}, "must name, in rising order"),
    "edge between two": ({"dst": graph_arrays()["src"] + 4}, "edges must join nodes 0..39"),
    "edge across": ({"src": np.array([3]), "dst": np.array([4])}, "an edge joins nodes of two different graphs"),
    "gap": ({"graph": np.where(OWNER > 4, OWNER + 1, OWNER)}, "must number the graphs 0, 1, 2, ..."),
    "from one": ({"graph": OWNER + 1}, "must number the graphs 0, 1, 2, ..."),
    "below zero": ({"graph": OWNER - 1}, "must number the graphs 0, 1, 2, ..."),
}


def test_labels_may_be_missing(npz):
    dataset = load(npz(node_arrays(), y=None, class_names=["a", "b", "c"]))
    assert not dataset.is_labelled and dataset.labels.tolist() == [-1] * 40 and dataset.num_targets == 40
    assert len(dataset.train) == 32 and dataset.names["classes"] == ("a", "b", "c")
    masked = load(npz(node_arrays(), y=None, **masks(40)))
    assert masked.train.tolist() == load(npz(node_arrays(), **masks(40))).train.tolist()
    of_graphs = load(npz(graph_arrays(), y=None))
    assert not of_graphs.is_labelled and of_graphs.num_targets == 10
    refused(npz(node_arrays(), y=np.full(40, -2)), "labels must be 0 or more, or -1 where nobody knows (got -2)")


def test_nodes_that_no_mask_names_need_no_label(npz):
    known = masks(40)
    y = np.where(sum(known.values()) > 0, np.arange(40) % 2, -1)
    y[:3] = -1
    for mask in known.values():
        mask[:3] = False
    dataset = load(npz(node_arrays(), y=y, **known))
    assert dataset.num_classes == 2 and dataset.labels[:3].tolist() == [-1] * 3
    assert bool((dataset.labels[torch.cat([dataset.train, dataset.val, dataset.test])] >= 0).all())


def test_a_graph_that_is_only_explained_needs_no_labels(npz):
    graph, x = load_graph(Path(npz(node_arrays(), y=None)))
    assert graph.num_nodes() == len(x) == 40
    with pytest.raises(InputError, match=r"lacks the array\(s\) x; it must hold src, dst and x, or edge_index"):
        load_graph(Path(npz(node_arrays(), x=None, y=None)))


@pytest.mark.parametrize(("changes", "fragment"), BAD_GRAPHS.values(), ids=BAD_GRAPHS)
def test_bad_graph_file(npz, changes, fragment):
    refused(npz(graph_arrays(), **changes), fragment)


def test_bin_without_features_or_labels(tmp_path):
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(y=torch.arange(6))])
    refused(path, "node features must be stored as x or feat (found: y)")
    dgl.save_graphs(str(path), [a_graph(x=torch.rand(6, 2))])
    assert load(str(path)).labels.tolist() == [-1] * 6
    dgl.save_graphs(str(path), [a_graph(x=torch.rand(6, 2))] * 10)
    assert load(str(path)).labels.tolist() == [-1] * 10


def test_bin_with_unlike_graphs(tmp_path):
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(x=torch.rand(6, 2)), a_graph()], {"y": torch.tensor([0, 1])})
    refused(path, "all graphs must have the same node and edge data")


def test_bin_is_checked_like_npz(tmp_path):
    path = tmp_path / "mine.bin"
    dgl.save_graphs(str(path), [a_graph(x=torch.full((6, 2), torch.nan), y=torch.arange(6) % 2)])
    refused(path, f"{path}: features must be finite (6 rows")


# --- what used to be taken without a word ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"val_mask": np.arange(NODES) % 2 == 0}, "must have no node in common"),
        ({"train_mask": np.where(np.arange(NODES) % 4 < 2, np.nan, 0)}, "train_mask must say yes or no"),
        ({"train_mask": np.arange(NODES)}, "is it a list of nodes?"),
        ({"src": np.full(NODES, 2**64 - 1, np.uint64)}, "numbers beyond 2^63"),
        ({"y": np.full(NODES, 1e300)}, "beyond 2^53"),
    ],
    ids=["overlap", "NaN", "index list", "uint64 that wraps", "huge float"],
)
def test_masks_and_numbers_that_mean_something_else(npz, changes, fragment):
    refused(npz({**node_arrays(), **masks(NODES)}, **changes), fragment)


@pytest.mark.parametrize("gaps", [False, True])
def test_a_sum_tells_of_finite_numbers_and_of_no_others(gaps):
    """A sum that is not finite is no verdict: large numbers overflow it, and infinities of both signs meet in NaN."""
    check = tensor(torch.float, 100, gaps=gaps)
    assert check(torch.full((100,), 3e38)) is None
    for *bad, fits in ((torch.inf, False), (-torch.inf, False), (torch.inf, -torch.inf, False), (torch.nan, gaps)):
        numbers = torch.ones(100)
        numbers[7 : 7 + len(bad)] = torch.tensor(bad)
        assert (check(numbers) is None) == fits


def test_features_that_no_machine_holds_are_refused(tmp_path):
    """A few bytes can claim any number of columns."""
    none, rows = np.zeros(0, int), np.zeros(61, int)
    parts: dict = {"attr_data": np.zeros(0), "attr_indices": none, "attr_indptr": rows, "attr_shape": [60, 10**10]}
    np.savez(tmp_path / "g.npz", src=np.arange(59), dst=np.arange(1, 60), y=np.arange(60) % 2, **parts)
    with pytest.raises(InputError, match="60 rows of 10,000,000,000 features would take 4,470 GB"):
        load(str(tmp_path / "g.npz"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(target_type="user"), "--target-type is for a .bin file with several node types"),
        (Options(source="original"), "--source and --data-dir are for data sets that go by a name"),
        (Options(data_dir=Path(".")), "--source and --data-dir are for data sets that go by a name"),
    ],
)
def test_options_that_a_file_has_no_use_for_are_refused(npz, options, said):
    with pytest.raises(InputError, match=said):
        load(npz(node_arrays()), options)


def test_without_masks_the_labelled_are_split(npz):
    arrays = node_arrays()
    arrays["y"][::2] = -1
    dataset = load(npz(arrays))
    assert bool((dataset.labels[torch.cat([dataset.train, dataset.val, dataset.test])] >= 0).all())
    assert len(dataset.train) + len(dataset.val) + len(dataset.test) == NODES // 2
