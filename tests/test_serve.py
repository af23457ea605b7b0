"""The service within one process: what it answers, what it refuses, and that its numbers are the library's."""

import errno
import gc
import json
import os
import signal
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from dgl_lara.errors import InputError, LaraError
from dgl_lara.runs.open import open_run
from dgl_lara.serve import updater
from dgl_lara.serve.app import Service, guarded, make_app
from dgl_lara.serve.cache import ExplanationCache
from dgl_lara.serve.middleware import Limits
from dgl_lara.serve.model import ServedModel, open_models
from dgl_lara.serve.schemas import ExplainRequest, GraphUpdate, read, usual_nodes
from dgl_lara.serve.supervisor import WorkerGroup


@pytest.fixture
def model(quick_runs, tmp_path):
    return ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)


@pytest.fixture
def fresh_client(model):
    return TestClient(make_app([model]))


@pytest.fixture(scope="module")
def client(quick_runs, tmp_path_factory):
    """The same, for all tests that leave it as it is."""
    run = open_run(quick_runs["ba-shapes"])
    return TestClient(make_app([ServedModel("ba", run, tmp_path_factory.mktemp("served"))]))


@pytest.fixture(scope="module")
def library(quick_runs):
    lara = open_run(quick_runs["ba-shapes"]).trained()
    lara.embed()
    return lara


@pytest.fixture
def graphs(quick_runs, tmp_path):
    return TestClient(make_app([ServedModel("molecules", open_run(quick_runs["molecules"]), tmp_path)]))


def explain(client, *instances, name="ba"):
    response = client.post(f"/v1/models/{name}:explain", json={"instances": list(instances)})
    assert response.status_code == 200, response.text
    return response.json()


def same_as(answer, explanation, top=20):
    """The players, in order (but for ties up to rounding), with their scores, confidence and value. Corrections stop at
    a thousandth of what is left to correct, which rounding brings about a step earlier or later."""
    frame = explanation.top(top)
    assert len(frame) > 1
    assert np.abs(frame.score).max() > 1e-3
    ids, hops, scores = (np.array([player[name] for player in answer["players"]]) for name in ("id", "hop", "score"))
    assert len(set(ids)) == len(ids) == len(frame)
    order = np.argsort(explanation.players.numpy())
    places = order[np.searchsorted(explanation.players.numpy(), ids, sorter=order)]
    players = explanation.batch.players
    assert np.array_equal(players.player[places], ids) and np.array_equal(players.hop[places], hops)
    close = 5e-4 * float(explanation.scores.abs().max()) if explanation.batch.source[0] == "corrected" else 1e-6
    for expected in (frame.score, explanation.scores[places]):  # on the same rank, and of the same player
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=close)
    assert answer["target"] == explanation.target
    assert answer["class"] == explanation.explained_class
    np.testing.assert_allclose(answer["value"], explanation.output, rtol=1e-5)
    np.testing.assert_allclose(answer["confidence"], float(explanation.batch.confidence), rtol=1e-3)
    assert answer["source"] == explanation.batch.source[0]


def test_models_are_listed_as_kserve_lists_them(client):
    assert client.get("/v1/models").json() == {"models": ["ba"]}
    assert client.get("/v1/models/ba").json() == {"name": "ba", "ready": True}
    assert client.get("/").json() == {"status": "alive"}
    assert "<title>Explorer</title>" in client.get("/", headers={"Accept": "text/html"}).text
    missing = client.get("/v1/models/nobody")
    assert missing.status_code == 404
    assert missing.json() == {"error": "there is no model 'nobody'; there is ba."}


def test_numbers_are_those_of_the_library(fresh_client, library):
    """Corrected ones too, one by one and many at once, computed and from the table."""
    everyone = library.explain(torch.arange(700))
    assert bool(everyone.corrected.any())
    for _ in range(2):
        for node in (5, 312, 640):
            same_as(explain(fresh_client, {"node": node})["explanations"][0], everyone[node])
    answer = explain(fresh_client, *({"node": node} for node in range(700)))
    assert answer["predictions"] == everyone.explained_class.tolist()
    for node in range(700):
        same_as(answer["explanations"][node], everyone[node])


def test_numbers_are_those_that_the_library_gives_of_a_few(client, library):
    """Which it walks to in another order; corrections stop at a thousandth of what is left to correct."""
    few = library.explain([5, 312, 640])
    for place, one in enumerate(explain(client, *({"node": node} for node in (5, 312, 640)))["explanations"]):
        scores = dict(zip(few[place].players.tolist(), few[place].scores.tolist(), strict=True))
        found = [player["score"] for player in one["players"]]
        expected = [scores[player["id"]] for player in one["players"]]
        np.testing.assert_allclose(found, expected, atol=1e-3 * max(map(abs, expected)))


def test_other_classes_more_players_and_refining(client, library):
    answer = explain(
        client,
        {"node": 312, "class": 0, "top": 400},
        {"node": 312, "class": 1, "rather_than": 2, "top": 5},
        {"node": 312, "refine": 8},
    )["explanations"]
    many = [312] * 40  # by the route of many
    same_as(answer[0], library.explain(many, [0] * 40)[0], 400)
    same_as(answer[1], library.explain(many, (1, 2))[0], 5)
    assert answer[1]["rather_than"] == 2
    better = library.refine(library.explain([312]), 8).explanations
    refined = better[0]
    scores = [player["score"] for player in answer[2]["players"]]
    np.testing.assert_allclose(scores, refined.top(20).score, atol=2e-3 * refined.scores.abs().max())
    assert answer[2]["confidence"] == pytest.approx(better.confidence.item(), abs=2e-3)


def test_the_table_gives_what_was_computed(model):
    part = model.snapshot.first
    some = np.array([3, 640, 5, 640])
    first = part.best(some)
    assert (part.table.state[some] > 0).all()
    again = part.best(some)
    for name in ("player", "score", "hop", "confidence"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    alone = ServedModel("ba", model.run, model.folder.parent / "other").snapshot.first
    for place, node in enumerate(some.tolist()):  # one by one gives the same bits as many at once
        np.testing.assert_array_equal(alone.best(np.array([node])).score[0], first.score[place])


def test_texts_in_the_table_say_what_its_numbers_say(fresh_client, model):
    """All 20 players come as the text that is stored, fewer are made from the numbers."""
    whole = explain(fresh_client, *({"node": node} for node in range(60)))["explanations"]
    fewer = explain(fresh_client, *({"node": node, "top": 19} for node in range(60)))["explanations"]
    assert model.snapshot.first.table.texts(np.arange(60)) is not None
    assert any(len(one["players"]) == 20 for one in whole)
    for one, other in zip(whole, fewer, strict=True):
        assert one["players"][:19] == other["players"]
    model.snapshot.first.table.length[7] = 0  # as where names are longer than there is room for
    assert explain(fresh_client, *({"node": node} for node in range(60)))["explanations"] == whole


def test_predictions_are_the_models_own(client, library):
    answer = client.post("/v1/models/ba:predict", json={"instances": [{"node": 5}, {"node": 640}]}).json()
    for one in answer["predictions"]:
        logits = library.game.full_logits[one["target"]]
        np.testing.assert_allclose(one["logits"], logits, rtol=1e-5)
        assert one["class"] == int(logits.argmax())


def test_a_graph_that_comes_along_is_explained_by_the_same_g(client, library):
    """A piece of the graph, cut out so far around a node that neither f nor g can tell the difference."""
    import dgl

    part, places = dgl.khop_in_subgraph(library.game.graph, torch.tensor([640]), k=8)
    nodes = part.ndata[dgl.NID]
    src, dst = part.edges()
    given = {
        "features": library.features[nodes].tolist(),
        "edges": torch.stack([src, dst], dim=1).tolist(),
    }
    answer = explain(client, {"node": int(places), "subgraph": given})["explanations"][0]
    expected = library.explain([640], corrected=False)[0].top(20)
    assert [int(nodes[player["id"]]) for player in answer["players"]] == expected.player.tolist()
    np.testing.assert_allclose([player["score"] for player in answer["players"]], expected.score, rtol=1e-3, atol=1e-4)
    assert answer["source"] == "amortised"
    said = client.post("/v1/models/ba:predict", json={"instances": [{"node": int(places), "subgraph": given}]}).json()
    np.testing.assert_allclose(said["predictions"][0]["logits"], library.game.full_logits[640], rtol=1e-3, atol=1e-4)


def test_graphs_are_explained_too(graphs, quick_runs):
    lara = open_run(quick_runs["molecules"]).trained()
    answer = explain(graphs, {"graph": 3}, {"graph": 0, "top": 3}, name="molecules")["explanations"]
    expected = lara.explain([3, 0])
    assert [player["id"] for player in answer[0]["players"]] == expected[0].top(20).player.tolist()
    assert len(answer[1]["players"]) == 3
    named = expected.named(**open_run(quick_runs["molecules"]).dataset.names)[0]
    names = dict(zip(named.players.tolist(), named.player_names(), strict=True))
    assert [player["name"] for player in answer[0]["players"]] == [
        names[player["id"]] for player in answer[0]["players"]
    ]
    one = {"features": lara.features[:3].tolist(), "edges": [[0, 1], [1, 0], [1, 2], [2, 1]]}
    brought = explain(graphs, {"subgraph": one}, name="molecules")["explanations"][0]
    assert [player["id"] for player in brought["players"]] != []
    refused = graphs.post("/v1/models/molecules/graph", json={"remove_nodes": [3]})
    assert (refused.status_code, "explains graphs" in refused.json()["error"]) == (400, True)


BAD = [
    ({"instances": []}, "instances: list should have at least 1 item"),
    ({"instances": [{}]}, 'name one with "node"'),
    ({"instances": [{"node": 700}]}, "node must be in 0..699 (got 700)"),
    ({"instances": [{"node": -1}]}, "instances.0.node: input should be greater than or equal to 0 (got -1)"),
    ({"instances": [{"node": "512"}]}, "instances.0.node: input should be a valid integer (got '512')"),
    ({"instances": [{"node": True}]}, "instances.0.node: input should be a valid integer"),
    ({"instances": [{"node": 2.5}]}, "instances.0.node: input should be a valid integer"),
    ({"instances": [{"node": 10**30}]}, "instances.0.node"),
    ({"instances": [{"node": float("nan")}]}, "instances.0.node: input should be a valid integer (got nan)"),
    ({"instances": [{"node": 0, "subgraph": {"features": [[float("inf")]]}}]}, "instances.0.subgraph.features.0.0"),
    ({"instances": [{"node": 5, "clas": 1}]}, "instances.0.clas: extra inputs are not permitted"),
    ({"instances": [{"node": 5, "class": 4}]}, "class must be in 0..3 (got 4)"),
    ({"instances": [{"node": 5, "rather_than": 1}]}, "rather_than goes with class"),
    ({"instances": [{"node": 5, "class": 1, "rather_than": 1}]}, "must be two classes (got 1 twice)"),
    ({"instances": [{"node": 5, "players": "edges"}]}, "this model scores nodes, not edges"),
    ({"instances": [{"node": 5, "top": 0}]}, "instances.0.top"),
    ({"instances": [{"node": 5, "refine": 10**6}]}, "instances.0.refine"),
    ({"instances": [{"graph": 5}]}, "this model explains nodes"),
    ({"instances": [{"node": 0, "subgraph": {"features": [[1.0]]}}]}, "subgraph.features.0 must be 1"),
    ({"instances": [{"node": 9, "subgraph": {"features": [[1.0] * 10]}}]}, "of the subgraph (got 9)"),
    ([1, 2], "the request: "),
]


@pytest.mark.parametrize(("body", "said"), BAD)
def test_what_does_not_fit_is_told_in_a_sentence(client, library, body, said):
    text = json.dumps(body)
    if "1.0" in text:  # as wide as this graph's features
        width = library.features.shape[1]
        said = said.replace("must be 1", f"must be {width}")
        if "[[1.0]]" in text and width == 1:
            pytest.skip("one column is right here")
        text = text.replace(json.dumps([1.0] * 10), json.dumps([1.0] * width))
    response = client.post("/v1/models/ba:explain", content=text)
    assert response.status_code == 400
    sentence = response.json()["error"]
    assert said in sentence
    assert sentence.endswith(".") and "Traceback" not in sentence and "\n" not in sentence


@pytest.mark.parametrize(
    ("body", "nodes"),
    [
        ('{"instances": [{"node": 3}, {"top": 20, "node": 0}]}', [3, 0]),
        ('{"instances": [{"node": 3, "top": 19}]}', None),
        ('{"instances": [{"node": 3, "top": 20.0}]}', None),
        ('{"instances": [{"node": 3, "refine": 2}]}', None),
        ('{"instances": [{"node": 3}, {"top": 20}]}', None),
        ('{"instances": [{"node": true}]}', None),
        ('{"instances": [{"node": -1}]}', None),
        ('{"instances": []}', None),
        ('{"instances": {"node": 3}}', None),
        ('[{"node": 3}]', None),
        ('{"instances": [{"node": 3}], "x": 1}', None),
        ('{"instances": [{"node": 3}]', None),
    ],
)
def test_what_nearly_everybody_sends_is_known_at_once(body, nodes):
    """And nothing else is taken for it."""
    assert usual_nodes(body.encode()) == nodes
    if nodes is not None:
        assert [one.node for one in read(ExplainRequest, body.encode()).instances] == nodes


@pytest.mark.parametrize("body", [b"", b"{", b'{"instances": [{"node": 1}]', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_told_too(client, body):
    response = client.post("/v1/models/ba:explain", content=body)
    assert response.status_code == 400
    assert response.json()["error"].startswith("the request: invalid JSON")


def test_paths_and_methods(client):
    for method, path, status in (
        ("GET", "/nowhere", 404), ("POST", "/v1/models/nobody:explain", 404), ("GET", "/v1/models/ba:explain", 405),
        ("DELETE", "/v1/models/ba", 405), ("POST", "/healthz", 405),
    ):  # fmt: skip
        response = client.request(method, path)
        assert response.status_code == status, path
        assert set(response.json()) == {"error"}


@pytest.mark.parametrize("target", ["700", "8017043746", "3,4", "-1", "x", ""])
def test_views_of_what_is_not_there(client, target):
    response = client.get("/v1/models/ba/view", params={"target": target})
    assert response.status_code == 400
    assert response.json()["error"].startswith(("node must be in 0..699", "target"))


def test_pages_of_other_sites_change_nothing(model):
    """A browser sends its user's requests wherever a page wants; a text needs nobody's leave."""
    client, update = TestClient(make_app([model])), "/v1/models/ba/graph"
    change = json.dumps({"add_edges": [[5, 312]]})
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        refused = client.post(update, content=change, headers={"Content-Type": "text/plain", **headers})
        assert refused.status_code == 403 and "a page of another site" in refused.json()["error"]
    for headers in ({"Origin": "http://testserver"}, {"Origin": "https://proxy", "Sec-Fetch-Site": "same-origin"}, {}):
        assert client.post("/v1/models/ba:explain", content="{}", headers=headers).status_code == 400  # it was read
    secret = {"Authorization": "Bearer secret", "Origin": "http://evil.example"}
    told = TestClient(make_app([model], token="secret")).post(update, content="{}", headers=secret)
    assert told.status_code == 400


def test_a_service_on_this_machine_alone_goes_by_its_names(model):
    client = TestClient(guarded(Service([model], Limits()), only_here=True))
    for name in ("evil.example", "evil.example:8080", "[::2]:8080", "localhost.evil.example"):
        refused = client.get("/v1/models", headers={"Host": name})
        assert refused.status_code == 403 and "for its own machine" in refused.json()["error"]
    for name in ("localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:80"):
        assert client.get("/v1/models", headers={"Host": name}).status_code == 200


def test_a_token_where_one_is_asked_for(model):
    client = TestClient(make_app([model], token="secret"))
    assert client.get("/healthz").status_code == 200
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic secret"},
        {"Authorization": "Bearer"},
    ):
        refused = client.get("/v1/models", headers=headers)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
    assert client.get("/metrics").status_code == 401
    assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_requests_have_a_size(model):
    client = TestClient(make_app([model], Limits(body=2000)))
    refused = client.post("/v1/models/ba:explain", content=b" " * 2001)
    assert refused.status_code == 413
    assert "2,000 bytes" in refused.json()["error"]

    def parts():
        for _ in range(30):
            yield b" " * 100

    assert client.post("/v1/models/ba:explain", content=parts()).status_code == 413  # without saying so beforehand
    assert client.post("/v1/models/ba:explain", json={"instances": [{"node": 1}]}).status_code == 200


def test_requests_have_a_time(model):
    client = TestClient(make_app([model], Limits(seconds=1e-6)))
    many = [{"node": node, "refine": 8} for node in range(50)]
    refused = client.post("/v1/models/ba:explain", json={"instances": many})
    assert refused.status_code == 503
    assert "ask for less" in refused.json()["error"]


def test_failures_of_ours_are_not_told_to_clients(model, monkeypatch, capsys):
    from dgl_lara.serve.handlers import RequestHandler

    monkeypatch.setattr(RequestHandler, "predict", lambda *_: 1 / 0)
    client = TestClient(make_app([model]))
    response = client.post("/v1/models/ba:predict", json={"instances": [{"node": 1}]})
    assert response.status_code == 500
    assert response.json() == {"error": "something went wrong here; the service has noted what."}
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_metrics_count_what_happens(fresh_client):
    def value(name):
        lines = fresh_client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    names = 'dgl_lara_explanations_total{origin="table"}', 'dgl_lara_explanations_total{origin="computed"}'
    calls = "dgl_lara_model_calls_total"
    before = [value(name) for name in (*names, calls)]
    explain(fresh_client, {"node": 77})
    explain(fresh_client, {"node": 77})
    explain(fresh_client, {"node": 78, "refine": 4})
    after = [value(name) for name in (*names, calls)]
    assert after[0] - before[0] == 1
    assert after[1] - before[1] == 2
    assert after[2] > before[2]
    assert value('dgl_lara_requests_total{route="explain",status="200"}') >= 3
    assert value('dgl_lara_request_seconds_bucket{le="+Inf",route="explain"}') >= 3


def test_the_description_fits_the_service(client):
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.")
    routes = {
        "/v1/models/{name}:explain",
        "/v1/models/{name}:predict",
        "/v1/models/{name}/graph",
        "/healthz",
        "/metrics",
    }
    assert routes <= set(described["paths"])
    page = client.get("/docs")
    assert page.status_code == 200
    assert "http" not in page.text.replace("http-equiv", "")  # nothing from elsewhere


def test_two_runs_of_one_name(quick_runs, tmp_path):
    with pytest.raises(InputError, match="two runs are called 'ba-shapes'"):
        open_models([quick_runs["ba-shapes"]] * 2, tmp_path, None, False)


def test_a_first_target_that_is_not_there(model):
    model.check_target(699)
    with pytest.raises(InputError, match=r"node must be in 0..699 \(got 700\)"):
        model.check_target(700)


def test_a_table_has_its_room_on_disk_before_it_is_used(tmp_path):
    """A page of a mapped file that the disk has no room for kills whoever writes to it."""
    table = ExplanationCache(tmp_path / "table", 1000)
    assert table.path.stat().st_blocks * 512 >= table.path.stat().st_size > 10**6


def test_a_keeper_tells_once_why_it_cannot_write(model, monkeypatch, capsys):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if slept.count(1) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    monkeypatch.setattr(model, "apply_pending_updates", full)
    monkeypatch.setattr(updater, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    monkeypatch.setattr(os, "nice", lambda more: None)
    try:
        updater.keep([model])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = capsys.readouterr().err
    assert said.count("No space left on device") == 1 and f"{model.folder} cannot be written" in said


def test_a_keeper_ends_where_it_never_gets_through_its_log(model, monkeypatch, capsys):
    """Who starts the service is told, and does not wait for ever."""

    def fails():
        raise LaraError("the log makes no sense")

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    monkeypatch.setattr(model, "apply_pending_updates", fails)
    monkeypatch.setattr(os, "nice", lambda more: None)
    try:
        with pytest.raises(SystemExit):
            updater.keep([model])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert capsys.readouterr().err.count("the log makes no sense") == 1


def test_a_service_that_is_stopped_while_it_catches_up_stops(model, monkeypatch):
    model.accept(GraphUpdate(add_edges=[(5, 9)], both_ways=False))
    asked: Any = SimpleNamespace(fill=False, is_to_stop=True, workers=1, limits=SimpleNamespace(seconds=1))
    monkeypatch.setattr(updater, "keep", lambda *given: time.sleep(60))
    with pytest.raises(LaraError, match="stopped before the updates in the log were applied"):
        WorkerGroup(1, [model], asked)


def test_a_reload_lets_the_old_runs_go(quick_runs, tmp_path):
    """New workers are forked from the process that loaded them; the collector does not look at what it has frozen."""
    generation = WorkerGroup.__new__(WorkerGroup)
    generation.models = [ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)]
    model, lara = weakref.ref(generation.models[0]), weakref.ref(generation.models[0].lara)
    gc.collect()
    gc.freeze()
    try:
        generation.forget()
        assert model() is None and lara() is None
    finally:
        gc.unfreeze()
