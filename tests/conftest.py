"""Every test has a cache of its own and sees no data folder, unless it asks for `real_data`."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # more threads would only stand in each other's way
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

import dgl_lara  # noqa: F401 (first: it sets what dgl and OpenMP read when they load)

REAL_DATA = os.environ.get("DGL_LARA_DATA")


@pytest.fixture(scope="session")
def everybodys(tmp_path_factory):
    """A folder that all processes of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def session_cache(everybodys):
    """Shared by all tests, so that a data set is generated once."""
    folder = everybodys / "cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True, scope="session")
def hardly_timed():
    """Before an evaluation a part of it is timed; here that would take longer than all of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dgl_lara.evaluation.runtime_estimate.MIN_TIMED_SECONDS", 0.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def compiled_once(everybodys):
    """Processes of one test run would compile the same kernels at the same time; one does, the others load it."""
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    compiled = Dispatcher.compile
    inside: list[object] = []

    def alone(self, signature):
        with global_compiler_lock:  # of this process; a kernel that calls another comes here twice
            if inside:
                return compiled(self, signature)
            with (everybodys / "compiling.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                inside.append(self)
                try:
                    return compiled(self, signature)
                finally:
                    inside.pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "compile", alone)
        yield


@pytest.fixture
def hardly_judged(monkeypatch):
    """Trainings are judged by few coalitions and seldom: for tests that do not look at what the judge says."""
    judge_hardly(monkeypatch)


def judge_hardly(patch):
    patch.setattr("dgl_lara.training.validation.PAIRS", 32)
    patch.setattr("dgl_lara.training.validation.MIN_PAIRS", 32)
    patch.setattr("dgl_lara.training.loop.CHECKS", 3)


@pytest.fixture(autouse=True)
def own_folders(session_cache, monkeypatch):
    monkeypatch.setenv("DGL_LARA_CACHE", str(session_cache))
    monkeypatch.delenv("DGL_LARA_DATA", raising=False)


@pytest.fixture
def fresh_cache(own_folders, tmp_path, monkeypatch):
    """An empty cache for this test alone."""
    folder = tmp_path / "fresh-cache"
    monkeypatch.setenv("DGL_LARA_CACHE", str(folder))
    return folder


@pytest.fixture
def real_data(own_folders, monkeypatch):
    """The folder with the authors' files, named by DGL_LARA_DATA when pytest was started."""
    if not REAL_DATA:
        pytest.skip("needs the original data: set DGL_LARA_DATA to a folder laid out as data/README.md says")
    folder = Path(REAL_DATA).resolve()
    monkeypatch.setenv("DGL_LARA_DATA", str(folder))
    return folder


@pytest.fixture(scope="session")
def quick_runs(session_cache, everybodys, tmp_path_factory):
    """Small real runs: 'ba-shapes' (nodes) and 'molecules' (graphs) -> run folder. Whichever process needs them first
    makes them, and each has a copy."""
    shared, own = everybodys / "quick-runs", tmp_path_factory.mktemp("runs") / "quick"
    with (everybodys / "quick-runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "made").exists():
            shutil.rmtree(shared, ignore_errors=True)
            _make_runs(shared, session_cache)
            (shared / "made").touch()
    shutil.copytree(shared, own)
    return {name: own / name for name in ("ba-shapes", "molecules")}


def _make_runs(folder, cache):
    from click.testing import CliRunner

    from dgl_lara.cli import main

    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGL_LARA_CACHE", str(cache))
        patch.delenv("DGL_LARA_DATA", raising=False)
        for name, epochs in (("ba-shapes", "60"), ("molecules", "2")):
            quick = ["--hidden", "16", "--dim", "5", "--masks", "2", "--epochs", epochs]
            for words in (
                ["target", "--dataset", name, "--epochs", epochs, "--out", folder / f"{name}.pt"],
                ["train", "--dataset", name, "--target", folder / f"{name}.pt", *quick, "--out", folder / name],
            ):
                result = CliRunner().invoke(main, list(map(str, words)))
                assert result.exit_code == 0, result.output


@pytest.fixture(scope="session")
def together(everybodys):
    """The folder with what several processes came to that worked as one (`processes_at_work.py`)."""
    folder = everybodys / "together"
    with (everybodys / "together.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            script = Path(__file__).with_name("processes_at_work.py")
            given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            done = subprocess.run([sys.executable, script, folder], env=given, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            (folder / "made").touch()
    return folder


@pytest.fixture
def opened(own_folders, quick_runs):
    """opened(name): the run, with every target that is asked for explained."""
    import torch

    from dgl_lara.runs.open import open_run

    def explained(name, *targets):
        run = open_run(quick_runs[name], torch.device("cpu"))
        lara, dataset = run.trained(), run.dataset
        lara.embed()  # the store is shared: whoever comes first fills it
        found = lara.explain(torch.tensor(targets))
        return found.named(**dataset.names)

    return explained


@pytest.fixture(autouse=True)
def handlers_of_signals():
    """As they were: the command, called within a test, ends by ignoring interrupts."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before, hook = {number: signal.getsignal(number) for number in numbers}, sys.unraisablehook
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.unraisablehook = hook


@pytest.fixture
def notices():
    """Return the notices that are logged during the test."""
    from codes import Notices

    from dgl_lara._util.notices import LOGGER

    handler = Notices()
    LOGGER.addHandler(handler)
    yield handler
    LOGGER.removeHandler(handler)
