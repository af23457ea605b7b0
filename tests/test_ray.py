"""`explain --engine ray` with Ray on this machine: killed workers, an interrupted command."""

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
    """`dgl-lara explain --all` in a process, in the folder of the test. Its output goes into a file."""

    def __init__(self, run, place, cache):
        self.run, self.place = run, place
        self.settings = {"HOME": place, "DGL_LARA_CACHE": cache, "OMP_NUM_THREADS": 1}  # Ray writes to HOME

    def start(self, *options):
        words = ["explain", "--run", self.run, "--all", "--amortised", "--top", 5, *options]
        return subprocess.Popen(
            [sys.executable, "-m", "dgl_lara", *map(str, words)],
            cwd=self.place, env={**os.environ, **{name: str(value) for name, value in self.settings.items()}},
            stdout=(self.place / "output").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def end(self, process, code=0):
        """Wait for the end, check the exit code, and return the output in one line."""
        exit_code = process.wait(PATIENCE)
        output = (self.place / "output").read_text()
        assert exit_code == code and "Traceback" not in output, output
        return output.replace("\n", " ")


@pytest.fixture
def command(quick_runs, tmp_path, session_cache):
    return Command(quick_runs["ba-shapes"], tmp_path, session_cache)


def until(found):
    deadline = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result


def test_a_killed_worker_costs_its_shard_only(command, tmp_path):
    process = command.start("--engine", "ray", "--shards", 6, "--out", "shards")
    until(lambda: workers(process))[0].kill()
    command.end(process)
    command.end(command.start("--out", "whole.parquet"))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "shards"), pd.read_parquet(tmp_path / "whole.parquet"))
    manifest = ShardFolder(tmp_path / "shards").manifest()
    assert (len(manifest.shards), manifest.targets) == (6, 700)


def test_an_interrupted_command_keeps_complete_shards(command, tmp_path):
    process = command.start("--engine", "ray", "--shards", 40, "--out", "shards")
    folder = tmp_path / "shards"
    until(lambda: list(folder.glob("_shard-*")))
    process.send_signal(signal.SIGINT)
    command.end(process, 130)
    assert not (folder / "_manifest.json").exists()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("_shard-*")}
    assert 0 < len(done) < 40
    command.end(command.start("--engine", "ray", "--out", "shards"))  # with the number of shards of the folder
    assert len(ShardFolder(folder).manifest().shards) == 40
    assert {path: path.stat().st_mtime_ns for path in done} == done


@pytest.mark.parametrize(
    ("options", "exit_code", "error"),
    [(("--shards", 701), 2, "shards.too_many"), (("--address", "127.0.0.1:1"), 1, "ray.unreachable")],
)
def test_errors_of_workers_and_clusters(command, options, exit_code, error):
    output = command.end(command.start("--engine", "ray", *options, "--out", "shards"), exit_code)
    assert f"[{error}]" in output
