"""Several node types, links and graphs that were not there in training, on the command line; models of one's own."""

import json
import re

import dgl
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from dgl_lara.cli import main

QUICK = ["--hidden", "8", "--dim", "4", "--masks", "2", "--epochs", "4"]
pytestmark = pytest.mark.usefixtures("hardly_judged")
CODE = """
import dgl
import torch


class Shop(torch.nn.Module):
    def __init__(self, dims, classes):
        super().__init__()
        self.of = torch.nn.ModuleDict({kind: torch.nn.Linear(dim, classes) for kind, dim in dims.items()})

    def both(self, graph, x):
        h = {kind: self.of[kind](rows) for kind, rows in x.items()}
        bought = dgl.ops.u_mul_e_sum(graph["buys"], h["user"], graph.edges["buys"].data["price"].unsqueeze(1))
        sold = dgl.ops.copy_u_sum(graph["sold"], h["item"])
        return h["user"] + sold, h["item"] + bought


class Labels(Shop):
    def forward(self, graph, x):
        return {"user": self.both(graph, x)[0]}


class Pairs(Shop):
    def forward(self, graph, x, u, v):
        user, item = self.both(graph, x)
        return (user[u] * item[v]).sum(1)


def labels(dims, classes):
    torch.manual_seed(0)
    return Labels(dims, classes)


def pairs(dims, classes):
    torch.manual_seed(0)
    return Pairs(dims, 3)
"""


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def shop(users, items, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    u, v = (torch.randint(count, (4 * users,), generator=drawn) for count in (users, items))
    edges = {("user", "buys", "item"): (u, v), ("item", "sold", "user"): (v, u)}
    graph = dgl.heterograph(edges, {"user": users, "item": items})
    graph.edges["buys"].data["price"] = torch.rand(len(u), generator=drawn)
    graph.nodes["user"].data["x"] = torch.randn(users, 3, generator=drawn)
    graph.nodes["user"].data["y"] = torch.randint(2, (users,), generator=drawn)
    graph.nodes["item"].data["x"] = torch.randn(items, 2, generator=drawn)
    return graph


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, two graphs and some pairs, from which commands are given."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop_models.py").write_text(CODE)
    dgl.save_graphs(str(folder / "shop.bin"), [shop(30, 20)])
    dgl.save_graphs(str(folder / "later.bin"), [shop(36, 22, seed=1)])
    (folder / "shop.names.json").write_text(json.dumps({"nodes": {"item": [f"thing {n}" for n in range(20)]}}))
    (folder / "pairs.csv").write_text("user,item\n" + "\n".join(f"{n % 30},{n % 19}" for n in range(40)))
    return folder


@pytest.fixture(autouse=True)
def here(place, monkeypatch):
    monkeypatch.chdir(place)


@pytest.fixture(scope="module")
def nodes(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        result = run("train", "--graph", "shop.bin", "--model", "shop_models:labels", *QUICK, "--out", "nodes")
    assert result.exit_code == 0, result.output
    return place / "nodes"


@pytest.fixture(scope="module")
def links(place):
    requested = ["--pairs", "pairs.csv", "--relation", "buys", "--model", "shop_models:pairs", "--shared-pairs", 60]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        result = run("train", "--graph", "shop.bin", *requested, *QUICK, "--out", "links")
    assert result.exit_code == 0, result.output
    assert "for each of the 40 links" in result.output
    return place / "links"


def test_links_are_handed_back_with_the_settings(links, tmp_path):
    (tmp_path / "run.toml").write_text(run("runs", "config", links).stdout)
    again = run("train", "--config", tmp_path / "run.toml", "--out", tmp_path / "two")
    assert again.exit_code == 0, again.output
    one, two = (json.loads((folder / "config.json").read_text()) for folder in (links, tmp_path / "two"))
    assert one == two and one["options"]["relation"] == "buys"


def test_a_node_has_its_type_and_name(nodes):
    result = run("explain", "--run", nodes, "--trust", "--node", 3, "--picture", "three.png")
    assert result.exit_code == 0, result.output
    assert "User 3 " in result.output and "(thing " in result.output


def test_a_table_has_types_and_their_own_numbers(nodes, tmp_path):
    result = run("explain", "--run", nodes, "--trust", "--all", "--top", 5, "--out", tmp_path / "all.csv")
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(tmp_path / "all.csv")
    assert set(frame.target) == set(range(30)) and set(frame.type) == {"user", "item"}
    assert frame.player[frame.type == "item"].max() < 20


@pytest.mark.parametrize("metric", ["fidelity", "agreement"])
def test_it_is_judged(nodes, links, metric):
    for folder in (nodes, links):
        options = ["--targets", 3, "--pairs", 8, "--reference-pairs", 100]
        result = run("eval", "--run", folder, "--trust", "--metric", metric, *options)
        assert result.exit_code == 0, result.output
        assert "lara" in result.output


def test_a_link_is_named_by_its_ends(links):
    result = run("explain", "--run", links, "--trust", "--pair", 7, 5, "--pair", 0, 0, "--top", 3)
    assert result.exit_code == 0, result.output
    for user, item in (("user 7", "item 5 (thing 5)"), ("user 0", "item 0 (thing 0)")):
        assert re.search(f"{user} .*{re.escape(item)}", result.output)


def test_links_of_a_file_and_links_of_the_run(links, tmp_path):
    """Those of the run have samples, others have not."""
    (tmp_path / "more.txt").write_text("7 5\n29 19\n")
    for requested, sources in ((["--all"], {"corrected"}), (["--pairs", tmp_path / "more.txt"], {"amortised"})):
        out = tmp_path / "links.csv"
        result = run("explain", "--run", links, "--trust", *requested, "--top", 4, "--out", out)
        assert result.exit_code == 0, result.output
        frame = pd.read_csv(out)
        assert set(frame.source) == sources and set(frame.target_u_type) == {"user"}
    assert set(zip(frame.target_u, frame.target_v, strict=True)) == {(7, 5), (29, 19)}


def test_a_graph_that_was_not_there(nodes, links, tmp_path):
    result = run("explain", "--run", nodes, "--trust", "--graph", "later.bin", "--node", 35)
    assert result.exit_code == 0, result.output
    assert "User 35 " in result.output and "training data" in result.output
    result = run("explain", "--run", nodes, "--trust", "--graph", "later.bin", "--all", "--out", tmp_path / "later.csv")
    assert result.exit_code == 0, result.output
    assert set(pd.read_csv(tmp_path / "later.csv").target) == set(range(36))
    result = run("explain", "--run", links, "--trust", "--graph", "later.bin", "--pair", 35, 21)
    assert result.exit_code == 0, result.output
    assert re.search("user 35 .*item 21", result.output)


@pytest.mark.parametrize(
    "command, fragment",
    [
        (["train", "--graph", "shop.bin", "--target-type", "card"], "[bin.unknown_target_type]"),
        (["train", "--graph", "shop.bin", "--pairs", "pairs.csv", "--model", "m:f"], "--relation"),
        (["train", "--graph", "shop.bin", "--pairs", "pairs.csv", "--relation", "likes"], "--relation must be one of"),
        (["train", "--graph", "shop.bin", "--relation", "buys"], "[dataset.relation_option]"),
        (["train", "--dataset", "ba-shapes", "--pairs", "pairs.csv"], "a graph in a .bin file"),
        (["explain", "--run", "links", "--trust", "--node", "3"], "[explain.other_task]"),
        (["explain", "--run", "links", "--trust", "--pair", "30", "1"], "[pairs.range]"),
        (
            ["explain", "--run", "links", "--trust", "--graph", "later.bin", "--all", "--out", "x.csv"],
            "[request.links_missing]",
        ),
        (["explain", "--run", "nodes", "--trust", "--pair", "1", "2"], "[request.no_links]"),
        (["explain", "--run", "nodes", "--trust", "--graph", "no.bin", "--node", "2"], "[explain.no_graph_file]"),
        (
            ["explain", "--run", "nodes", "--trust", "--graph", "later.bin", "--split", "val", "--out", "x.csv"],
            "[explain.graph_file]",
        ),
    ],
)
def test_mistakes_get_a_sentence(nodes, links, command, fragment):
    result = run(*command)
    assert result.exit_code == 2 and fragment in result.output.replace("\n", " "), result.output
