"""The service within one process: its answers, its errors, and that its numbers are those of the library."""

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
from codes import raises
from starlette.testclient import TestClient

from dgl_lara.errors import LaraError
from dgl_lara.runs.open import open_run
from dgl_lara.serve import updater
from dgl_lara.serve.app import Service, asgi_app, make_app
from dgl_lara.serve.cache import ExplanationCache
from dgl_lara.serve.handlers import RequestHandler
from dgl_lara.serve.middleware import Limits
from dgl_lara.serve.model import ServedModel, open_models
from dgl_lara.serve.schemas import ExplainBody, GraphUpdate, parse_body, parse_plain_nodes
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


def refused(response, status, code):
    """Check an error: its status, its code, and a text of one line."""
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert set(response.json()) == {"error", "code"}
    text = response.json()["error"]
    assert text.endswith(".") and "Traceback" not in text and "\n" not in text
    return response


def same_as(answer, explanation, top=20):
    """Compare players, scores, confidence and value, with tolerance for rounding.

    Corrections stop at a thousandth of what is left to correct, which rounding reaches a step earlier or later.
    """
    frame = explanation.top(top)
    assert len(frame) > 1
    assert np.abs(frame.score).max() > 1e-3
    ids, hops, scores = (np.array([player[name] for player in answer["players"]]) for name in ("id", "hop", "score"))
    assert len(set(ids)) == len(ids) == len(frame)
    order = np.argsort(explanation.players.numpy())
    rows = order[np.searchsorted(explanation.players.numpy(), ids, sorter=order)]
    players = explanation.batch.players
    assert np.array_equal(players.player[rows], ids) and np.array_equal(players.hop[rows], hops)
    close = 5e-4 * float(explanation.scores.abs().max()) if explanation.batch.source[0] == "corrected" else 1e-6
    for expected in (frame.score, explanation.scores[rows]):  # of the same rank, and of the same player
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
    assert "<title>Explorer" in client.get("/", headers={"Accept": "text/html"}).text
    refused(client.get("/v1/models/other"), 404, "model.unknown")


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


def test_the_cache_returns_what_was_computed(model):
    explainer = model.snapshot.first
    targets = np.array([3, 640, 5, 640])
    first = explainer.cached(targets)
    assert (explainer.cache.state[targets] > 0).all()
    again = explainer.cached(targets)
    for name in ("player", "score", "hop", "confidence"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    alone = ServedModel("ba", model.run, model.folder.parent / "other").snapshot.first
    for row, node in enumerate(targets.tolist()):  # one by one and together: equal bits
        np.testing.assert_array_equal(alone.cached(np.array([node])).score[0], first.score[row])


def test_texts_in_the_cache_agree_with_its_numbers(fresh_client, model):
    """All 20 players come as the stored text, fewer are built from the numbers."""
    requests = [{"node": node} for node in range(60)]
    answers = explain(fresh_client, *requests)["explanations"]
    fewer = explain(fresh_client, *({**one, "top": 19} for one in requests))["explanations"]
    cache = model.snapshot.first.cache
    assert cache.texts(np.arange(60)) is not None
    assert any(len(one["players"]) == 20 for one in answers)
    for one, other in zip(answers, fewer, strict=True):
        assert one["players"][:19] == other["players"]
    cache.length[7] = 0  # a text that was too long
    assert explain(fresh_client, *requests)["explanations"] == answers


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
    output = client.post("/v1/models/ba:predict", json={"instances": [{"node": int(places), "subgraph": given}]}).json()
    np.testing.assert_allclose(output["predictions"][0]["logits"], library.game.full_logits[640], rtol=1e-3, atol=1e-4)


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
    refused(graphs.post("/v1/models/molecules/graph", json={"remove_nodes": [3]}), 400, "update.unsupported")


@pytest.mark.parametrize(
    ("instance", "code", "field"),
    [
        (None, "request.field", "instances:"),
        ({}, "instance.target", '"node"'),
        ({"node": 700}, "target.range", "0..699 (got 700)"),
        ({"node": -1}, "request.field", "instances.0.node:"),
        ({"node": "512"}, "request.field", "instances.0.node:"),
        ({"node": True}, "request.field", "instances.0.node:"),
        ({"node": 2.5}, "request.field", "instances.0.node:"),
        ({"node": 10**30}, "request.field", "instances.0.node:"),
        ({"node": float("nan")}, "request.field", "(got nan)"),
        (
            {"node": 0, "subgraph": {"features": [[float("inf")]]}},
            "request.field",
            "instances.0.subgraph.features",
        ),
        ({"node": 5, "clas": 1}, "request.field", "instances.0.clas:"),
        ({"node": 5, "class": 4}, "classes.unknown", "0..3"),
        ({"node": 5, "rather_than": 1}, "classes.rival_alone", ""),
        ({"node": 5, "class": 1, "rather_than": 1}, "classes.same", "got 1"),
        ({"node": 5, "players": "edges"}, "players.untrained", "edges"),
        ({"node": 5, "top": 0}, "request.field", "instances.0.top:"),
        ({"node": 5, "refine": 10**6}, "request.field", "instances.0.refine:"),
        ({"graph": 5}, "instance.target", '"node"'),
        ({"node": 0, "subgraph": {"features": [[1.0]]}}, "features.width", "subgraph.features.0"),
        ({"node": 9, "subgraph": {"features": [[1.0] * 10]}}, "subgraph.node_range", "got 9"),
        ({"subgraph": {"features": [[1.0] * 10]}}, "instance.subgraph_target", '"node"'),
    ],
)
def test_invalid_instances(client, library, instance, code, field):
    assert library.features.shape[1] == 10  # as wide as the subgraphs above
    body = json.dumps({"instances": [] if instance is None else [instance]})
    response = refused(client.post("/v1/models/ba:explain", content=body), 400, code)
    assert field in response.json()["error"]


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
def test_plain_requests_are_parsed_fast(body, nodes):
    assert parse_plain_nodes(body.encode()) == nodes
    if nodes is not None:
        assert [one.node for one in parse_body(ExplainBody, body.encode()).instances] == nodes


@pytest.mark.parametrize("body", [b"", b"{", b'{"instances": [{"node": 1}]', b"\xff\xfe", b"[" * 100_000, b"[1, 2]"])
def test_invalid_bodies(client, body):
    refused(client.post("/v1/models/ba:explain", content=body), 400, "request.field")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "http.path"),
        ("POST", "/v1/models/other:explain", 404, "model.unknown"),
        ("GET", "/v1/models/ba:explain", 405, "http.needs_post"),
        ("DELETE", "/v1/models/ba", 405, "http.method"),
        ("POST", "/healthz", 405, "http.route"),
    ],
)
def test_paths_and_methods(client, method, path, status, code):
    response = client.request(method, path)
    assert (response.status_code, response.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("700", "target.range"),
        ("8017043746", "request.field"),
        ("3,4", "explorer.key"),
        ("-1", "request.field"),
        ("x", "request.field"),
        ("", "request.field"),
    ],
)
def test_views_of_missing_targets(client, target, code):
    refused(client.get("/v1/models/ba/view", params={"target": target}), 400, code)


def test_cross_site_requests_are_rejected(model):
    """A browser sends its user's requests wherever a page wants. A text/plain body needs no permission."""
    client, path = TestClient(make_app([model])), "/v1/models/ba/graph"
    change = json.dumps({"add_edges": [[5, 312]]})
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        response = client.post(path, content=change, headers={"Content-Type": "text/plain", **headers})
        refused(response, 403, "http.cross_site")
    for headers in ({"Origin": "http://testserver"}, {"Origin": "https://proxy", "Sec-Fetch-Site": "same-origin"}, {}):
        assert client.post("/v1/models/ba:explain", content="{}", headers=headers).status_code == 400  # it was read
    headers = {"Authorization": "Bearer secret", "Origin": "http://evil.example"}
    with_token = TestClient(make_app([model], token="secret"))
    assert with_token.post(path, content="{}", headers=headers).status_code == 400


def test_a_service_on_the_loopback_accepts_its_own_names_only(model):
    client = TestClient(asgi_app(Service([model], Limits()), loopback_only=True))
    for name in ("evil.example", "evil.example:8080", "[::2]:8080", "localhost.evil.example"):
        refused(client.get("/v1/models", headers={"Host": name}), 403, "http.host")
    for name in ("localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:80"):
        assert client.get("/v1/models", headers={"Host": name}).status_code == 200


def test_a_token_is_required(model):
    client = TestClient(make_app([model], token="secret"))
    assert client.get("/healthz").status_code == 200
    for value in (None, "Bearer wrong", "Basic secret", "Bearer"):
        response = client.get("/v1/models", headers={} if value is None else {"Authorization": value})
        refused(response, 401, "http.token")
        assert response.headers["www-authenticate"] == "Bearer"
    assert client.get("/metrics").status_code == 401
    assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_requests_have_a_maximal_size(model):
    client = TestClient(make_app([model], Limits(body=2000)))
    path = "/v1/models/ba:explain"
    refused(client.post(path, content=b" " * 2001), 413, "http.too_large")
    chunks = (b" " * 100 for _ in range(30))  # without a Content-Length
    refused(client.post(path, content=chunks), 413, "http.too_large")
    assert client.post(path, json={"instances": [{"node": 1}]}).status_code == 200


def test_requests_have_a_deadline(model):
    client = TestClient(make_app([model], Limits(seconds=1e-6)))
    instances = [{"node": node, "refine": 8} for node in range(50)]
    refused(client.post("/v1/models/ba:explain", json={"instances": instances}), 503, "http.timeout")


def test_clients_do_not_see_internal_errors(model, monkeypatch, capsys):
    monkeypatch.setattr(RequestHandler, "predict", lambda *_: 1 / 0)
    client = TestClient(make_app([model]))
    refused(client.post("/v1/models/ba:predict", json={"instances": [{"node": 1}]}), 500, "http.internal")
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
    with raises("model.duplicate", name="ba-shapes"):
        open_models([quick_runs["ba-shapes"]] * 2, tmp_path, None, False)


def test_a_first_target_that_is_missing(model):
    model.check_target(699)
    with raises("target.range", got=700):
        model.check_target(700)


def test_a_cache_reserves_its_space_on_disk(tmp_path):
    """A process that writes to a mapped page without space on disk is killed."""
    cache = ExplanationCache(tmp_path / "cache", 1000)
    assert cache.path.stat().st_blocks * 512 >= cache.path.stat().st_size > 10**6


@pytest.fixture
def in_updater(monkeypatch):
    """Let this process act as the updater, and restore its signal handlers."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    monkeypatch.setattr(os, "nice", lambda increment: None)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_an_updater_reports_a_full_disk_once(model, monkeypatch, notices, in_updater):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if pauses.count(1) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(model, "apply_pending_updates", full)
    monkeypatch.setattr(updater, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    updater.run_updater([model])
    assert notices.codes == ["updater.disk"]
    assert notices.has("updater.disk", folder=model.folder)


def test_an_updater_ends_if_it_can_never_apply_its_log(model, monkeypatch, notices, in_updater):
    """The process that starts the service then fails, and does not wait for ever."""

    def fail():
        raise LaraError("update_log.damaged", path="log", entry=1, problem="")

    monkeypatch.setattr(model, "apply_pending_updates", fail)
    with pytest.raises(SystemExit):
        updater.run_updater([model])
    assert notices.codes == ["updater.failed"]


def test_a_service_that_is_stopped_while_it_applies_updates_stops(model, monkeypatch):
    model.accept(GraphUpdate(add_edges=[(5, 9)], both_ways=False))
    supervisor: Any = SimpleNamespace(fill=False, is_stopping=True, num_workers=1, limits=SimpleNamespace(seconds=1))
    monkeypatch.setattr(updater, "run_updater", lambda *arguments: time.sleep(60))
    with raises("updater.stopped"):
        WorkerGroup(1, [model], supervisor)


def test_a_reload_releases_the_old_runs(quick_runs, tmp_path):
    """New workers are forked from the process that loaded them, whose objects are frozen for the collector."""
    group = WorkerGroup.__new__(WorkerGroup)
    group.models = [ServedModel("ba", open_run(quick_runs["ba-shapes"]), tmp_path)]
    model, lara = weakref.ref(group.models[0]), weakref.ref(group.models[0].lara)
    gc.collect()
    gc.freeze()
    try:
        group.release_models()
        assert model() is None and lara() is None
    finally:
        gc.unfreeze()
