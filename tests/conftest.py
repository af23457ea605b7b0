"""Every test has a cache of its own and sees no data folder, unless it asks for `real_data`."""

import os
import signal
import sys
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # more threads would only stand in each other's way
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

import dgl_lara  # noqa: F401 (first: it sets what dgl and OpenMP read when they load)

REAL_DATA = os.environ.get("DGL_LARA_DATA")


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory):
    """Shared by all tests, so that a data set is generated once."""
    return tmp_path_factory.mktemp("cache")


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
def quick_runs(session_cache, tmp_path_factory):
    """Small real runs, shared: 'ba-shapes' (nodes) and 'molecules' (graphs) -> run folder."""
    from click.testing import CliRunner

    from dgl_lara.cli import main

    folder = tmp_path_factory.mktemp("runs")
    runs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGL_LARA_CACHE", str(session_cache))
        patch.delenv("DGL_LARA_DATA", raising=False)
        for name, epochs in (("ba-shapes", "60"), ("molecules", "2")):
            target, runs[name] = folder / f"{name}.pt", folder / name
            quick = ["--hidden", "16", "--dim", "5", "--masks", "2", "--epochs", epochs]
            for words in (
                ["target", "--dataset", name, "--epochs", epochs, "--out", target],
                ["train", "--dataset", name, "--target", target, *quick, "--out", runs[name]],
            ):
                result = CliRunner().invoke(main, list(map(str, words)))
                assert result.exit_code == 0, result.output
    return runs


@pytest.fixture
def opened(own_folders, quick_runs):
    """opened(name): the run, with every target that is asked for explained."""
    import torch

    from dgl_lara.runs import open_run

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
