"""The service as processes: workers agree, may die, are replaced, and finish their requests."""

import gc
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest
from codes import raises

from dgl_lara.cli.reproduce import EXPERIMENTS, script
from dgl_lara.cli.serve import ServeOptions, read_token, start
from dgl_lara.errors import InputError, message
from dgl_lara.runs.open import open_run
from dgl_lara.serve.supervisor import listen

pytestmark = pytest.mark.long

serving = script("service").serving


def copied(quick_runs, folder):
    return shutil.copytree(quick_runs["ba-shapes"], folder / "ba", ignore=shutil.ignore_patterns("serving"))


@pytest.fixture
def run(quick_runs, tmp_path):
    """A copy that a test may change."""
    return copied(quick_runs, tmp_path)


@pytest.fixture(scope="module")
def service(quick_runs, tmp_path_factory, session_cache):
    """Two workers, for all tests that leave them as they are; `service.run` is the folder."""
    run = copied(quick_runs, tmp_path_factory.mktemp("served"))
    with serving("--run", run, "--workers", 2, environment={"DGL_LARA_CACHE": str(session_cache)}) as running:
        running.run = run
        yield running


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_updates_reach_all_workers_and_outlive_them(run):
    """An acknowledged update is on disk, and every later answer contains it."""
    instance = {"node": 5, "top": 701}
    with serving("--run", run, "--workers", 2) as service:
        before = service.explain("ba", instance)[0]
        assert all(service.explain("ba", instance)[0] == before for _ in range(10))
        width = open_run(run).dataset.features.shape[1]
        new = {"add_nodes": [{"features": [1.0] * width, "key": "new"}], "add_edges": [["new", 5], [5, "new"]]}
        status, answer = service.ask("/v1/models/ba/graph", new)
        assert (status, answer) == (200, {"sequence": 1, "nodes": [700], "applied": True})
        after = service.explain("ba", instance)[0]
        assert 700 in [player["id"] for player in after["players"]]
        assert all(service.explain("ba", instance)[0] == after for _ in range(20))

        # an update on which the model fails is rejected, and later ones apply
        for size, code in ((1e39, "features.not_finite"), (3e38, "update.rejected")):
            huge = {"add_nodes": [{"features": [size] * width, "key": "new"}], "add_edges": [["new", 5]]}
            status, answer = service.ask("/v1/models/ba/graph", huge)
            assert (status, answer["code"]) == (400, code)
        assert service.explain("ba", instance)[0]["players"] == after["players"]

        # a worker dies: requests are answered, and updates are kept
        victim = service.workers[0]
        victim.kill()
        until(lambda: len(service.workers) == 2 and victim.pid not in [one.pid for one in service.workers])
        assert all(service.explain("ba", instance)[0] == after for _ in range(20))

        # the updater dies, with an update that is not applied yet
        service.children[0].suspend()
        answers = []
        requested = threading.Thread(
            target=lambda: answers.append(service.ask("/v1/models/ba/graph", {"remove_nodes": [700]}))
        )
        requested.start()
        time.sleep(0.5)
        assert not answers
        psutil.Process(service.children[0].pid).kill()
        requested.join(60)
        assert answers == [(200, {"sequence": 3, "nodes": [], "applied": True})]
        assert service.ask("/v1/models/ba:explain", {"instances": [{"node": 700}]})[0] == 400

        left = service.explain("ba", instance)[0]
        assert left["source"] == "amortised"  # its surroundings are not those of training any more

        # everything dies
        for pid in [service.process.pid, *(child.pid for child in service.children)]:
            os.kill(pid, signal.SIGKILL)
        service.process.wait(30)
    with serving("--run", run, "--workers", 1) as service:
        assert service.explain("ba", instance)[0] == left
        assert service.ask("/v1/models/ba:explain", {"instances": [{"node": 700}]})[0] == 400
        status, text = service.ask("/metrics")
        assert 'dgl_lara_requests_total{route="explain",status="400"} 1.0' in text


def test_an_updater_that_dies_at_once_is_replaced_after_a_delay(run):
    with serving("--run", run, "--workers", 1) as service:
        updater = service.children[0]
        for _ in range(2):
            before = set(service.children)
            updater.kill()
            until(lambda before=before: len(set(service.children) - before) == 1 and len(service.children) == 2)
            (updater,) = set(service.children) - before
        assert service.explain("ba", {"node": 5})
        service.process.terminate()
        output = service.process.stdout.read()
    for seconds in (1, 3):
        assert message("updater.died", reason="Killed", seconds=seconds) in output


@pytest.mark.parametrize(("host", "is_open"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_service_without_a_token_warns_on_a_network(run, host, is_open):
    with serving("--run", run, "--workers", 1, "--host", host) as service:
        assert (message("service.open") in service.before) == is_open


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_no_room_for_the_tables(run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", disk], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        for command in (["serve", "--workers", "1"], ["explore", "--no-browser"]):
            words = [sys.executable, "-m", "dgl_lara", command[0], "--run", run, "--port", "0", *command[1:]]
            ended = subprocess.run([*words, "--state", disk], capture_output=True, text=True, timeout=120, check=False)
            assert ended.returncode == 1 and "Traceback" not in ended.stderr
            assert "[cache.no_space]" in ended.stderr.replace("\n", " ")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_workers_share_what_they_serve(service):
    """A second worker costs a fraction of the first."""
    for node in range(50):
        service.explain("ba", {"node": node})
    processes = [psutil.Process(service.process.pid), *service.children]
    shared = sum(process.memory_full_info().pss for process in processes)
    own = max(worker.memory_full_info().uss for worker in service.workers)
    assert own < 0.35 * shared  # a small run: most of it is Python's own; docs/serving.md has ogbn-arxiv


def with_kserve():
    """A Python that has KServe's client: this one, or the one that KSERVE_PYTHON names; None: there is none."""
    named = os.environ.get("KSERVE_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("kserve") else None)


@pytest.mark.skipif(with_kserve() is None, reason="needs KServe's client: pip install kserve, or name KSERVE_PYTHON")
def test_kserves_own_client(service):
    words = [with_kserve(), str(EXPERIMENTS / "kserve_client.py"), service.address, "ba"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    printed = subprocess.run([*words, '{"node": 5, "top": 3}'], capture_output=True, text=True, env=environment)
    assert printed.returncode == 0, printed.stderr
    reported = json.loads(printed.stdout)
    assert reported["live"] and reported["ready"] and reported["models"] == {"models": ["ba"]}
    assert reported["explained"]["explanations"] == service.explain("ba", {"node": 5, "top": 3})
    assert reported["predicted"]["predictions"][0]["class"] == reported["explained"]["predictions"][0]
    assert message("target.range", noun="node", most=699, got=1000000) in reported["refused"]


def test_a_retrained_run_is_loaded_without_a_lost_request(service):
    """While clients ask all the time; and a run that cannot be loaded leaves the old one at work. (The last test of the
    service that all share: it leaves another run behind.)"""
    old = service.explain("ba", {"node": 5})[0]
    failed, answered, stop = [], [], threading.Event()

    def ask():
        import http.client

        host, port = service.address.removeprefix("http://").split(":")
        line = http.client.HTTPConnection(host, int(port), timeout=60)
        while not stop.is_set():
            try:
                line.request("POST", "/v1/models/ba:explain", b'{"instances": [{"node": 5}]}')
                response = line.getresponse()
                answered.append(response.read())
                if response.status != 200:
                    failed.append(str(response.status))
            except Exception as error:  # whatever a lost request looks like
                failed.append(repr(error))
                line.close()

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    _train_otherwise(service.run)
    first = service.workers
    status, _ = service.ask("/v1/models/ba/reload", {})
    assert status == 202
    until(lambda: not any(worker.is_running() and worker.status() != "zombie" for worker in first), 120)
    (service.run / "explainer.pt").write_bytes(b"damaged")
    service.hang_up()
    time.sleep(1)
    until(lambda: len(service.workers) == 2)
    time.sleep(1)
    stop.set()
    for client in clients:
        client.join()
    assert not failed, failed[:3]
    assert len(answered) > 20
    new = service.explain("ba", {"node": 5})[0]
    assert new["players"] != old["players"]


def _train_otherwise(run):
    """Other weights, as a longer training would leave them."""
    from dgl_lara._util.atomic import load_tensors, save_tensors

    content = load_tensors(run / "explainer.pt")
    content["weights"]["unit"] = content["weights"]["unit"] * 2
    save_tensors(content, run / "explainer.pt")
    (run / "embeddings.pt").unlink(missing_ok=True)


def test_a_stop_waits_for_what_is_being_answered(run):
    """Of `explore`, which serves the page."""
    with serving("--run", run, "--node", 5, "--no-browser", command="explore") as service:
        assert f"{service.address}/?model=ba&target=5 " in service.said
        status, page = service.ask("/", headers={"Accept": "text/html,*/*"})
        assert (status, "<title>Explorer" in page) == (200, True)
        answers = []
        slow = [{"node": node, "refine": 64} for node in range(8)]
        requested = threading.Thread(
            target=lambda: answers.append(service.ask("/v1/models/ba:explain", {"instances": slow}))
        )
        requested.start()
        time.sleep(0.3)
        assert not answers
        service.process.terminate()
        requested.join(60)
        assert answers and answers[0][0] == 200
        assert len(answers[0][1]["explanations"]) == 8
        assert service.process.wait(30) == 0


def test_garbage_is_collected_again_where_loading_fails(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "PROMETHEUS_MULTIPROC_DIR"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(InputError):
        start((tmp_path,), ServeOptions(port=0), print)
    assert gc.isenabled()


def test_invalid_options_fail_before_anything_is_loaded(tmp_path):
    empty = tmp_path / "token"
    empty.write_text("")
    with raises("token.empty"):
        read_token(empty)
    with raises("token.unreadable"):
        read_token(tmp_path)
    with raises("port.host"):
        listen("", 0)  # an unset variable of a shell is not every network
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with raises("port.unavailable"):
            listen("127.0.0.1", taken.getsockname()[1])
