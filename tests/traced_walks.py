"""Count the files and functions of the package that run for one explanation."""

import os
import sys
import tempfile
import threading
from pathlib import Path

import dgl
import matrix_models as models
from click.testing import CliRunner

from dgl_lara import LARA, TrainingConfig
from dgl_lara.cli import main

PACKAGE = Path(__file__).parents[1] / "dgl_lara"


def trace(work):
    """Return how many files and functions of the package run."""
    seen = set()

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    named = {(file, name) for file, name in seen if not name.endswith(">")}
    return len({file for file, _ in seen}), len(named)


def walks():
    """Explain one node of a graph with 60 nodes, in Python and on the command line."""
    graph = models.random_graph(60, 90, 3)
    config = TrainingConfig(steps=4, masks=2, hidden=8, dim=4)
    lara = LARA(models.Layers(), graph, graph.ndata["feat"], hops=2, config=config).fit(range(60))
    python = trace(lambda: lara.explain([5]))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DGL_LARA_CACHE"] = folder
        file, run = f"{folder}/graph.bin", f"{folder}/run"
        dgl.save_graphs(file, [graph])
        small = ["--hidden", "8", "--dim", "4", "--masks", "2", "--epochs", "4"]
        command("train", "--graph", file, "--model", "matrix_models:node_model", *small, "--out", run)
        line = trace(lambda: command("explain", "--run", run, "--trust", "--node", "12"))
    return {
        "files of LARA.explain([5])": python[0],
        "functions of LARA.explain([5])": python[1],
        "files of explain --node": line[0],
        "functions of explain --node": line[1],
    }


def command(*words):
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
