"""`explain --engine ray`, with a Ray of its own on this machine: workers killed on the way, the command interrupted."""

import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from dgl_lara.cli.reproduce import script
from dgl_lara.shards.shard_folder import ShardFolder

pytest.importorskip("ray", reason="needs Ray: pip install 'dgl-lara[ray]'")
pytestmark = pytest.mark.slow
PATIENCE = 600  # seconds
workers = script("shards").workers


class Command:
    """`dgl-lara explain --all` in a process of its own, in the folder of the test; what it says goes into a file."""

    def __init__(self, run, place, cache):
        self.run, self.place = run, place
        self.settings = {"HOME": place, "DGL_LARA_CACHE": cache, "OMP_NUM_THREADS": 1}  # Ray writes to HOME

    def start(self, *words):
        asked = ["explain", "--run", self.run, "--all", "--amortised", "--top", 5, *words]
        return subprocess.Popen(
            [sys.executable, "-m", "dgl_lara", *map(str, asked)],
            cwd=self.place, env={**os.environ, **{name: str(value) for name, value in self.settings.items()}},
            stdout=(self.place / "said").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def end(self, process, code=0):
        ended = process.wait(PATIENCE)
        said = (self.place / "said").read_text()
        assert ended == code and "Traceback" not in said, said
        return said


@pytest.fixture
def command(quick_runs, tmp_path, session_cache):
    return Command(quick_runs["ba-shapes"], tmp_path, session_cache)


def until(found):
    deadline = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return result


def test_a_killed_worker_costs_its_shard_only(command, tmp_path):
    process = command.start("--engine", "ray", "--shards", 6, "--out", "shards")
    until(lambda: workers(process))[0].kill()
    assert "700 explanations" in command.end(process)
    command.end(command.start("--out", "whole.parquet"))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "shards"), pd.read_parquet(tmp_path / "whole.parquet"))
    assert len(ShardFolder(tmp_path / "shards").manifest().shards) == 6


def test_interrupted_it_keeps_what_is_done_and_goes_on(command, tmp_path):
    process = command.start("--engine", "ray", "--shards", 40, "--out", "shards")
    folder = tmp_path / "shards"
    until(lambda: list(folder.glob("_shard-*")))
    process.send_signal(signal.SIGINT)
    assert "nterrupted" in command.end(process, 130)
    assert not (folder / "_manifest.json").exists()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("_shard-*")}
    assert 0 < len(done) < 40
    command.end(command.start("--engine", "ray", "--out", "shards"))  # as many shards as it was begun with
    assert len(ShardFolder(folder).manifest().shards) == 40
    assert {path: path.stat().st_mtime_ns for path in done} == done


def test_what_is_wrong_in_a_worker_is_one_sentence(command):
    said = command.end(command.start("--engine", "ray", "--shards", 701, "--out", "shards"), 2)
    assert "Error: 700 targets cannot be cut into 701 shards" in said


def test_no_cluster_where_it_was_said_to_be(command):
    said = command.end(command.start("--engine", "ray", "--address", "127.0.0.1:1", "--out", "shards"), 1)
    assert "Ray cannot be reached at 127.0.0.1:1" in said
