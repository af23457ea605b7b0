"""Pinned scores by task, players, data and route. They are bit-equal on the machine type that stored them.

`python tests/test_score_matrix.py` stores all of them again. Do that only if a score is meant to change.
"""

import os
import tempfile
from functools import cache
from pathlib import Path

import dgl
import matrix_models as models
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from starlette.testclient import TestClient

from dgl_lara import LARA, TrainingConfig
from dgl_lara._util.distributed import ALONE
from dgl_lara.cli import main
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.partitioning import partition
from dgl_lara.graphs.mapped import MappedGraph
from dgl_lara.graphs.remote import RemoteGraph
from dgl_lara.lara_distributed import DistributedLara
from dgl_lara.lara_partitioned import PartitionedLara
from dgl_lara.runs.open import open_run
from dgl_lara.serve.app import make_app
from dgl_lara.serve.model import ServedModel

STORED = Path(__file__).parent / "pinned" / "matrix.npz"
SHORT = TrainingConfig(hidden=8, dim=4, masks=2, steps=4, shared_pairs=40)
BATCHES = TrainingConfig(hidden=8, dim=4, masks=2, epochs=2, batch_size=16, shared_pairs=0)
QUICK = ["--hidden", "8", "--dim", "4", "--masks", "2", "--epochs", "2", "--shared-pairs", "40"]
FEW, NODES = [5, 1, 8], 50
SOME_PAIRS = [(n % 14, (5 * n + 3) % 12) for n in range(36)]
LINKS = {"task": "link", "pairs": SOME_PAIRS}

ALL_PLAYERS, NODES_AND_EDGES = ("nodes", "edges", "features"), ("nodes", "edges")
WORLDS = {
    "node, one type": ALL_PLAYERS,
    "node, edge data": ALL_PLAYERS,
    "node, several types": NODES_AND_EDGES,
    "graph, one type": ALL_PLAYERS,
    "graph, edge data": ALL_PLAYERS,
    "link, one type": NODES_AND_EDGES,
    "link, edge data": NODES_AND_EDGES,
    "link, several types": NODES_AND_EDGES,
}
# Links with features as players, and the layer-wise pass over links of several types, raise errors at present.
INVALID = {("link, several types", "layer-wise"), *((name, "versus") for name in WORLDS if name.startswith("link"))}
LIBRARY = ("one", "many", "amortised", "versus", "bulk", "nearby", "layer-wise", "refined", "elsewhere")
CORRECTED = ("one", "many", "nearby", "refined", "served")


def world(name):
    """Return a model, a graph, its features and the other arguments of LARA."""
    task, _, data = name.partition(", ")
    if data == "several types":
        graph = models.shop()
        features = {kind: graph.nodes[kind].data["feat"] for kind in graph.ntypes}
        if task == "link":
            return models.ShopPairs(), graph, features, {**LINKS, "relation": "buys"}
        return models.ShopNodes(), graph, features, {"target_type": "user"}
    weighted = data == "edge data"
    if task == "graph":
        graph = dgl.batch(models.molecules(weighted))
        return models.Pooled(), graph, graph.ndata["feat"], {"task": "graph"}
    graph = models.random_graph(NODES, 70, 3, weighted)
    if task == "link":
        return models.Pairs(), graph, graph.ndata["feat"], LINKS
    return models.Layers(), graph, graph.ndata["feat"], {}


@cache
def temporary():
    return tempfile.TemporaryDirectory()  # exists until the process ends


def new_folder():
    return Path(tempfile.mkdtemp(dir=temporary().name))


def everyone(name):
    """Return targets to learn from and to explain, so many (32) that compiled kernels score them."""
    if name.startswith("link"):
        return SOME_PAIRS
    if name == "node, several types":
        return [*range(models.SIZES["user"])] * 3
    return [*range(16)] * 3 if name.startswith("graph") else range(40)


def few(name):
    return [everyone(name)[place] for place in FEW]


@cache
def saved(name, players):
    """Fit once and return the file and what opens it again."""
    model, graph, features, more = world(name)
    lara = LARA(model, graph, features, hops=2, config=SHORT, players=players, **more)
    path = new_folder() / "lara.pt"
    lara.fit(everyone(name)).save(path)
    requested = {key: more[key] for key in ("target_type", "relation") if key in more}
    return path, model, graph, features, requested


def opened(name, players, embedded=True, **more):
    path, model, graph, features, requested = saved(name, players)
    lara = LARA.load(path, model, graph, features, **requested, **more)
    if embedded:
        lara.embed()
    return lara


def parts_of(explanations):
    """Return all numbers of explanations."""
    found = {"scores": explanations.scores, "player": explanations.players.player}
    if explanations.variance is not None:
        found |= {"variance": explanations.variance, "confidence": explanations.confidence}
    if explanations.corrected is not None:
        found["corrected"] = explanations.corrected
    if explanations.novelty is not None:
        found["novelty"] = explanations.novelty
    return {key: np.asarray(torch.as_tensor(value).detach()) for key, value in found.items()}


def best_of(best):
    return {"scores": best.score, "player": best.player, "hop": best.hop}


def by_library(name, players, route):
    targets = everyone(name)
    if route == "nearby":
        return parts_of(opened(name, players, embedded=False).explain(few(name)))
    if route == "layer-wise":
        return parts_of(opened(name, players, memory=10_000).explain(targets, corrected=False))
    lara = opened(name, players)
    if route == "one":
        return parts_of(lara.explain(few(name)[:1]))
    if route == "bulk":
        return best_of(lara.top(targets, 4))
    if route == "versus":
        return parts_of(lara.explain(targets, (1, 2)))
    if route == "refined":
        return parts_of(lara.refine(lara.explain(few(name)), 6, seed=0).explanations)
    if route == "elsewhere":
        return parts_of(lara.explain_on(*elsewhere(name)))
    return parts_of(lara.explain(targets, corrected=route == "many"))


def elsewhere(name):
    """Return the graph without its last edges, its features and targets."""
    _, graph, features, _ = world(name)
    if name.startswith("graph"):
        some = dgl.unbatch(graph)[2:6]
        return dgl.batch(some), torch.cat([one.ndata["feat"] for one in some]), [0, 2]
    more = {"etype": "like"} if name.endswith("several types") else {}
    count = graph.num_edges(**more)
    return dgl.remove_edges(graph, torch.arange(count - 6, count), **more), features, few(name)


def in_parts(name, players, route):
    """Train and explain a graph that is cut into parts."""
    model, graph, features, _ = world(name)
    nodes = torch.arange(NODES)
    dataset = Dataset(
        "random", "node", graph, features, nodes % 3, nodes[:32], nodes[32:42], nodes[42:], 3, "generated"
    )
    folder = new_folder()
    together = route == "across parts"
    partition(dataset, 1 if together else 3, folder / "parts", "order")
    view = MappedGraph(folder / "parts")
    lara = PartitionedLara(model, view, folder / "rows", hops=2, config=BATCHES)
    if together:
        own = RemoteGraph(folder / "parts", ALONE)
        learned = DistributedLara(model, own, folder / "rows", hops=2, config=BATCHES).fit(dataset.train, dataset.val)
        lara.with_fitted(learned.fitted)
    else:
        lara.fit(dataset.train, dataset.val)
    bulk = best_of(lara.top(nodes, 4))
    found = {f"bulk {key}": value for key, value in bulk.items()}
    found |= {f"many {key}": value for key, value in parts_of(lara.explain(range(40))).items()}
    return found | parts_of(lara.explain(FEW))


@cache
def served(name):
    """Train a run on the command line and serve it."""
    task, _, data = name.partition(", ")
    folder = new_folder()
    graph = models.molecules(data == "edge data") if task == "graph" else [world(name)[1]]
    if task == "link":
        for kind in graph[0].ntypes:
            graph[0].nodes[kind].data.pop("label", None)
    labels = {"labels": torch.arange(len(graph)) % 3} if task == "graph" else {}
    dgl.save_graphs(str(folder / "graph.bin"), graph, labels)
    shop = "shop_" if data == "several types" else ""
    words = ["train", "--graph", folder / "graph.bin", "--model", f"matrix_models:{shop}{task}_model", *QUICK]
    for players in WORLDS[name]:
        words += ["--players", players]
    if task == "link":
        ends = "user,item" if shop else "u,v"
        (folder / "pairs.csv").write_text(f"{ends}\n" + "\n".join(f"{u},{v}" for u, v in SOME_PAIRS))
        words += ["--pairs", folder / "pairs.csv"] + (["--relation", "buys"] if shop else [])
    done = CliRunner().invoke(main, [str(word) for word in [*words, "--out", folder / "run"]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    model = ServedModel("m", open_run(folder / "run", trust=True), folder / "state")
    return TestClient(make_app([model]))


def by_service(name, players, route):
    task = name.partition(",")[0]
    key = {"node": "node", "graph": "graph", "link": "pair"}[task]
    requested = [{key: list(one) if task == "link" else one, "players": players, "top": 6} for one in few(name)]
    numbers: dict[str, list] = {"scores": [], "confidence": [], "value": []}
    for instances in (requested, requested[:1], [{**one, "refine": 4} for one in requested[:1]]):
        response = served(name).post("/v1/models/m:explain", json={"instances": instances})
        assert response.status_code == 200, response.text
        for row in response.json()["explanations"]:
            numbers["scores"] += [player["score"] for player in row["players"]]
            numbers["confidence"].append(row["confidence"])
            numbers["value"].append(row["value"])
    return {name: np.array(values, float) for name, values in numbers.items()}


CELLS = {
    f"{name}, {players}, {route}": (by_library, name, players, route)
    for name, every in WORLDS.items()
    for players in every
    for route in LIBRARY
    if (name, route) not in INVALID
}
for name, every in WORLDS.items():
    CELLS |= {f"{name}, {players}, served": (by_service, name, players, "served") for players in every}
for route in ("out of core", "across parts"):
    CELLS[f"node, one type, nodes, {route}"] = (in_parts, "node, one type", "nodes", route)


@pytest.fixture(autouse=True)
def one_thread():
    """Fix the order of floating-point sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def machine():
    """Return what bits may depend on."""
    return f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def compute(cell):
    route, *where = CELLS[cell]
    return route(*where)


@pytest.fixture(scope="module")
def stored():
    with np.load(STORED) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("cell", CELLS)
def test_scores_do_not_change(cell, stored):
    expected = {key.partition(" / ")[2]: values for key, values in stored.items() if key.startswith(f"{cell} / ")}
    found = compute(cell)
    assert found.keys() == expected.keys()
    assert np.ptp(expected["scores"]) > 1e-3
    assert len(np.unique(expected["scores"])) > 2
    exact = str(stored["machine"]) == machine() and not cell.endswith("layer-wise")  # DGL orders sums there as it likes
    for key, values in expected.items():
        if exact:
            np.testing.assert_array_equal(found[key], values, err_msg=key, strict=True)
        elif values.dtype.kind == "f":  # the order of equal scores may differ
            near = 1e-5 if key.endswith("scores") else 1e-4
            near = 2e-2 if cell.endswith(CORRECTED) else near  # a correction may stop one iteration earlier or later
            atol = near * max(1, np.nanmax(np.abs(values)))
            np.testing.assert_allclose(found[key], values, rtol=1e-5, atol=atol, err_msg=key)


def test_every_stored_score_is_compared(stored):
    assert {key.partition(" / ")[0] for key in stored} == {*CELLS, "machine"}


if __name__ == "__main__":
    os.environ["DGL_LARA_CACHE"] = temporary().name
    torch.set_num_threads(1)
    content = {f"{cell} / {key}": values for cell in CELLS for key, values in compute(cell).items()}
    np.savez_compressed(STORED, machine=machine(), **content)
    print(f"{len(CELLS)} cells and {len(content)} arrays in {STORED}")
