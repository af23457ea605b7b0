"""The service where there are several types of nodes, where links are explained, and where edges carry data."""

import dgl
import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from test_cli_typed import here, links, nodes, place, shop  # noqa: F401 (a small shop, and runs on it)

from dgl_lara.errors import InputError
from dgl_lara.lara import LARA
from dgl_lara.runs.open import open_run
from dgl_lara.serve.app import make_app
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.request_graph import on_brought
from dgl_lara.serve.schemas import Subgraph
from dgl_lara.training.config import TrainingConfig

pytestmark = [pytest.mark.usefixtures("hardly_judged"), pytest.mark.long]


def served(folder, state):
    model = ServedModel("shop", open_run(folder, trust=True), state)
    return TestClient(make_app([model])), model


@pytest.fixture(scope="module")
def users(nodes, tmp_path_factory):  # noqa: F811
    return served(nodes, tmp_path_factory.mktemp("users"))


@pytest.fixture(scope="module")
def sales(links, tmp_path_factory):  # noqa: F811
    return served(links, tmp_path_factory.mktemp("sales"))


def ask(client, *instances, verb="explain", status=200):
    response = client.post(f"/v1/models/shop:{verb}", json={"instances": list(instances)})
    assert response.status_code == status, response.text
    return response.json()["error"] if status != 200 else response.json()


def told(explanation):
    """Its players as the service tells them, from the library."""
    frame = explanation.top(20)
    return list(zip(frame.type, frame.player.tolist(), frame.hop.tolist(), strict=True)), frame.score.to_numpy()


def same_as(row, explanation):
    players, scores = told(explanation)
    assert len(players) > 3 and np.abs(scores).max() > 1e-4
    assert [(one["type"], one["id"], one["hop"]) for one in row["players"]] == players
    np.testing.assert_allclose([one["score"] for one in row["players"]], scores, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(row["value"], explanation.output, rtol=1e-4)


def test_a_node_among_several_types(users):
    """From the table and computed, with and without its type; players have types, numbers of their own, and names."""
    client, model = users
    library = model.lara.explain(torch.arange(30))
    for _ in range(2):
        for row, other in zip(*(ask(client, one, {"node": 9})["explanations"] for one in
                                ({"node": 3, "type": "user"}, {"node": 3})), strict=True):  # fmt: skip
            assert row == other
            same_as(row, library[row["target"]])
    item = next(one for one in row["players"] if one["type"] == "item")
    itself = next(one for one in row["players"] if (one["type"], one["id"]) == ("user", row["target"]))
    assert (item["name"], itself["name"]) == (f"thing {item['id']}", f"user {row['target']}")
    assert ask(client, {"node": 3, "class": 1, "top": 30})["explanations"][0]["class"] == 1
    said = ask(client, {"node": 3}, verb="predict")["predictions"][0]
    np.testing.assert_allclose(said["logits"], model.lara.game.full_logits[3], rtol=1e-4)


def test_links_that_the_run_knows_and_others(sales):
    client, model = sales
    known, new = [7, 7], [7, 5]
    rows = ask(client, {"pair": known, "relation": "buys"}, {"pair": new}, {"pair": known, "top": 2})
    for row, pair in zip(rows["explanations"], (known, new, known), strict=True):
        assert row["target"] == pair
        for one in row["players"]:
            assert (one["name"] == "both ends") == ((one["type"], one["id"]) == ("user", 7))
    assert [row["source"] for row in rows["explanations"]] == ["corrected", "amortised", "corrected"]
    assert rows["predictions"] == [row["value"] for row in rows["explanations"]]
    again = ask(client, {"pair": known})["explanations"]  # alone it comes from the table
    assert again == rows["explanations"][:1] and len(rows["explanations"][2]["players"]) == 2
    same_as(rows["explanations"][1], model.lara.explain([tuple(new)])[0])
    said = ask(client, {"pair": known}, {"pair": new}, verb="predict")["predictions"]
    np.testing.assert_allclose([one["logits"][0] for one in said], rows["predictions"][:2], rtol=1e-4)


def test_what_does_not_fit_is_told(users, sales):
    for (client, _), instance, sentence in (
        (users, {"node": 3, "type": "item"}, "explains nodes of the type 'user' (got 'item')"),
        (users, {"node": 30}, "user must be in 0..29 (got 30)"),
        (users, {"pair": [1, 2]}, 'name one with "node"'),
        (users, {"node": 3, "relation": "buys"}, 'a pair a "relation"'),
        (users, {"node": 0, "subgraph": {"features": [[1.0]]}}, "features are by type, user, item"),
        (users, {"node": 0, "subgraph": {"features": {"card": [[1.0]]}}}, "the type 'card'"),
        (users, {"node": 0, "subgraph": {"features": {"user": [[1.0]]}}}, "user.0 must be 3 numbers (got 1)"),
        (sales, {"node": 3}, 'name one with "pair"'),
        (sales, {"pair": [30, 1]}, "0..29"),
        (sales, {"pair": [1, 2], "relation": "sold"}, "not of the relation that is explained"),
        (sales, {"pair": [1, 2], "type": "user"}, 'a node has a "type"'),
        (sales, {"pair": [1]}, "instances.0.pair"),
    ):
        said = ask(client, instance, status=400)
        assert sentence in said and said.endswith("."), said
    for client, _ in (users, sales):
        refused = client.post("/v1/models/shop/graph", json={"remove_nodes": [3]})
        assert refused.status_code == 400 and "send what is new as a subgraph" in refused.json()["error"]


def test_a_typed_graph_that_comes_along(users, sales):
    """Of nodes, and of pairs; what edges carry comes with it."""
    later = shop(36, 22, seed=1)
    x = {kind: later.nodes[kind].data["x"] for kind in ("user", "item")}
    given = {
        "features": {kind: rows.tolist() for kind, rows in x.items()},
        "edges": {name: torch.stack(later.edges(etype=name), 1).tolist() for name in ("buys", "sold")},
        "edge_data": {"buys": {"price": later.edges["buys"].data["price"].tolist()}},
    }
    for (client, model), name in ((users, {"node": 35}), (sales, {"pair": [35, 21]})):
        row = ask(client, {**name, "subgraph": given})["explanations"][0]
        assert row["source"] == "amortised"
        same_as(row, model.lara.explain_on(later, x, [*name.values()])[0])
        said = ask(client, {**name, "subgraph": given}, verb="predict")["predictions"][0]
        np.testing.assert_allclose(said["logits"][said["class"]], row["value"], rtol=1e-4)
        poor = {**given, "edge_data": {}}
        assert "edge_data.buys must hold 'price'" in ask(client, {**name, "subgraph": poor}, status=400)


def test_the_explorer_knows_types_and_pairs(users, sales):
    """Names in the list; a click leads to nodes that can be asked about, and to other pairs."""
    client, _ = users
    listed = client.get("/v1/models/shop/targets?find=7").json()
    assert listed["about"]["noun"] == "user" and [row["target"] for row in listed["rows"]] == [7, 17, 27]
    view = client.get("/v1/models/shop/view?target=3").json()
    leads = {player["name"].split()[0]: key for player, key in zip(view["players"], view["walk"], strict=True)}
    assert leads["user"] is not None and leads["item"] is None and set(view["types"]) == {"user", "item"}
    client, _ = sales
    listed = client.get("/v1/models/shop/targets?find=thing 7").json()
    assert listed["rows"][0]["target"] == "7,7" and listed["rows"][0]["name"] == "user 7 → thing 7"
    assert not listed["about"]["labelled"]
    view = client.get("/v1/models/shop/view?target=7,5").json()
    assert view["title"].startswith("The link from user 7 to item 5 (thing 5)") and view["asked"] == {"pair": [7, 5]}
    leads = {player["name"]: key for player, key in zip(view["players"], view["walk"], strict=True)}
    assert leads["user 7"] is None and leads["item 5 (thing 5)"] is None
    ends = {name.split()[0]: key for name, key in leads.items() if key}
    assert ends["user"].endswith(",5") and ends["item"].startswith("7,")
    for wrong in ("7", "7,99", "x"):
        assert client.get(f"/v1/models/shop/view?target={wrong}").status_code == 400


class Weighed(torch.nn.Module):
    """Reads what edges weigh."""

    num_hops = 1

    def forward(self, graph, x):
        return torch.cat([x.sum(1, keepdim=True), dgl.ops.u_mul_e_sum(graph, x, graph.edata["w"].unsqueeze(1))], 1)


def test_edge_data_comes_along():
    drawn = torch.Generator().manual_seed(0)
    ends, x = torch.randint(30, (2, 120), generator=drawn), torch.randn(30, 2, generator=drawn)
    graph = dgl.graph(tuple(ends), num_nodes=30)
    graph.edata["w"] = torch.rand(120, generator=drawn)
    lara = LARA(Weighed(), graph, x, config=TrainingConfig(steps=6, hidden=8, dim=3, masks=2)).fit(range(30))
    given = {"features": x.tolist(), "edges": list(zip(*ends.tolist(), strict=True))}
    weights: dict = {"w": graph.edata["w"].tolist()}
    brought = on_brought(lara, Subgraph(**given, edge_data=weights), None)
    torch.testing.assert_close(brought.explain([4]).scores, lara.explain([4], corrected=False).scores)
    wrong: list[tuple[dict, str]] = [
        ({}, "must hold 'w', which the model reads"),
        ({"w": [1.0]}, "edge_data.w must be 120 numbers, one an edge"),
        ({"v": [1.0]}, "names the column 'v'; this model knows w"),
    ]
    for data, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            on_brought(lara, Subgraph(**given, edge_data=data), None)
