"""The service for graphs with several types, for links, and for edge data."""

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from starlette.testclient import TestClient
from test_cli_typed import here, links, nodes, place, shop  # noqa: F401 (a small shop, and runs on it)

from dgl_lara.lara import LARA
from dgl_lara.runs.open import open_run
from dgl_lara.serve.app import make_app
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.request_graph import lara_on_subgraph
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
    return response.json()


def same_as(row, explanation):
    frame = explanation.top(20)
    players, scores = list(zip(frame.type, frame.player.tolist(), frame.hop.tolist(), strict=True)), frame.score
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
    output = ask(client, {"node": 3}, verb="predict")["predictions"][0]
    np.testing.assert_allclose(output["logits"], model.lara.game.full_logits[3], rtol=1e-4)


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
    output = ask(client, {"pair": known}, {"pair": new}, verb="predict")["predictions"]
    np.testing.assert_allclose([one["logits"][0] for one in output], rows["predictions"][:2], rtol=1e-4)


@pytest.mark.parametrize(
    ("service", "instance", "code"),
    [
        ("users", {"node": 3, "type": "item"}, "instance.type"),
        ("users", {"node": 30}, "target.range"),
        ("users", {"pair": [1, 2]}, "instance.target"),
        ("users", {"node": 3, "relation": "buys"}, "instance.relation"),
        ("users", {"node": 0, "subgraph": {"features": [[1.0]]}}, "subgraph.several_types"),
        ("users", {"node": 0, "subgraph": {"features": {"card": [[1.0]]}}}, "subgraph.unknown_name"),
        ("users", {"node": 0, "subgraph": {"features": {"user": [[1.0]]}}}, "features.width"),
        ("sales", {"node": 3}, "instance.target"),
        ("sales", {"pair": [30, 1]}, "pairs.range"),
        ("sales", {"pair": [1, 2], "relation": "sold"}, "pairs.other_relation"),
        ("sales", {"pair": [1, 2], "type": "user"}, "instance.relation"),
        ("sales", {"pair": [1]}, "request.field_missing"),
    ],
)
def test_invalid_instances(request, service, instance, code):
    client, _ = request.getfixturevalue(service)
    answer = ask(client, instance, status=400)
    assert answer["code"] == code


def test_these_graphs_take_no_updates(users, sales):
    for client, _ in (users, sales):
        response = client.post("/v1/models/shop/graph", json={"remove_nodes": [3]})
        assert (response.status_code, response.json()["code"]) == (400, "update.unsupported")


def test_a_typed_graph_in_a_request(users, sales):
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
        output = ask(client, {**name, "subgraph": given}, verb="predict")["predictions"][0]
        np.testing.assert_allclose(output["logits"][output["class"]], row["value"], rtol=1e-4)
        without = {**given, "edge_data": {}}
        assert ask(client, {**name, "subgraph": without}, status=400)["code"] == "subgraph.edge_data_missing"


def test_the_explorer_knows_types_and_pairs(users, sales):
    """Names in the list; a click leads to nodes that can be asked about, and to other pairs."""
    client, _ = users
    listed = client.get("/v1/models/shop/targets?find=7").json()
    assert listed["model"]["noun"] == "user" and [row["target"] for row in listed["rows"]] == [7, 17, 27]
    view = client.get("/v1/models/shop/view?target=3").json()
    leads = {player["name"].split()[0]: key for player, key in zip(view["players"], view["links"], strict=True)}
    assert leads["user"] is not None and leads["item"] is None and set(view["types"]) == {"user", "item"}
    client, _ = sales
    listed = client.get("/v1/models/shop/targets?find=thing 7").json()
    assert listed["rows"][0]["target"] == "7,7" and listed["rows"][0]["name"] == "user 7 → thing 7"
    assert not listed["model"]["labelled"]
    view = client.get("/v1/models/shop/view?target=7,5").json()
    assert view["title"].startswith("The link from user 7 to item 5 (thing 5)") and view["instance"] == {"pair": [7, 5]}
    leads = {player["name"]: key for player, key in zip(view["players"], view["links"], strict=True)}
    assert leads["user 7"] is None and leads["item 5 (thing 5)"] is None
    ends = {name.split()[0]: key for name, key in leads.items() if key}
    assert ends["user"].endswith(",5") and ends["item"].startswith("7,")
    for wrong in ("7", "7,99", "x"):
        assert client.get(f"/v1/models/shop/view?target={wrong}").status_code == 400


class Weighted(torch.nn.Module):
    """A model that reads edge weights."""

    num_hops = 1

    def forward(self, graph, x):
        return torch.cat([x.sum(1, keepdim=True), dgl.ops.u_mul_e_sum(graph, x, graph.edata["w"].unsqueeze(1))], 1)


def test_edge_data_in_a_request():
    drawn = torch.Generator().manual_seed(0)
    ends, x = torch.randint(30, (2, 120), generator=drawn), torch.randn(30, 2, generator=drawn)
    graph = dgl.graph(tuple(ends), num_nodes=30)
    graph.edata["w"] = torch.rand(120, generator=drawn)
    lara = LARA(Weighted(), graph, x, config=TrainingConfig(steps=6, hidden=8, dim=3, masks=2)).fit(range(30))
    given = {"features": x.tolist(), "edges": list(zip(*ends.tolist(), strict=True))}
    weights: dict = {"w": graph.edata["w"].tolist()}
    brought = lara_on_subgraph(lara, Subgraph(**given, edge_data=weights), None)
    torch.testing.assert_close(brought.explain([4]).scores, lara.explain([4], corrected=False).scores)
    wrong: list[tuple[dict, str]] = [
        ({}, "subgraph.edge_data_missing"),
        ({"w": [1.0]}, "subgraph.edge_column"),
        ({"v": [1.0]}, "subgraph.unknown_name"),
    ]
    for data, code in wrong:
        with raises(code):
            lara_on_subgraph(lara, Subgraph(**given, edge_data=data), None)
