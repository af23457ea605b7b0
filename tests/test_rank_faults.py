"""Training in several processes when something goes wrong: real processes, real signals."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from codes import refused, run, succeeds
from games import random_graph
from training_together import start

from dgl_lara.runs.folder import resume_command

QUICK = ["--hidden", "8", "--dim", "3", "--masks", "2", "--memory", "1GB"]
STEPS = 150
LAUNCHERS = {
    "--processes": ["-m", "dgl_lara", "train", "--processes", "2"],
    "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "dgl_lara", "train"],
}
LOST, DIFFER = "train.process_lost", "processes.differ"
RESUME = resume_command(Path("b"), False)


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Options of a training that takes a moment; the folder is here."""
    monkeypatch.chdir(tmp_path)
    src, dst = random_graph(60, 80, 0).edges()
    features = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    np.savez("graph.npz", src=src, dst=dst, x=features, y=np.arange(60) % 2)
    succeeds("target", "--dataset", "graph.npz", "--epochs", 2, "--out", "f.pt")
    return ["--dataset", "graph.npz", "--target", "f.pt", "--epochs", str(STEPS), *QUICK, "--out"]


def launch(how, *words):
    """The launcher, and the processes that it has started, by rank, once the first checkpoint is there."""
    process = subprocess.Popen(
        [sys.executable, *LAUNCHERS[how], *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300  # a busy machine loads torch slowly
    while not Path(words[-1], "checkpoint.pt").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    return process, {int(child.environ()["RANK"]): child for child in children if "RANK" in child.environ()}


def equal_once_resumed(folder, words):
    """Whatever was left to do is done by one process; the result is that of a training that was never broken."""
    step = torch.load(f"{folder}/checkpoint.pt", weights_only=True)["step"]
    assert 0 < step < STEPS
    resumed, unbroken = run("train", "--resume", folder), run("train", *words, "unbroken")
    assert (resumed.exit_code, unbroken.exit_code) == (0, 0), resumed.output
    first, second = (torch.load(f"{name}/checkpoint.pt", weights_only=True) for name in (folder, "unbroken"))
    assert first["step"] == second["step"] == STEPS and len(first["history"]) == len(second["history"])
    torch.testing.assert_close(first["best_weights"], second["best_weights"], atol=2e-3, rtol=1e-2)
    torch.testing.assert_close(first["shared"]["rows"], second["shared"]["rows"], rtol=0, atol=0)
    assert first["shared"]["seen"] == 2 * STEPS
    kept = [torch.load(f"{name}/samples.pt", weights_only=True)["d"].float() for name in (folder, "unbroken")]
    torch.testing.assert_close(*kept, atol=1e-3, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("dies", [0, 1])
def test_one_that_dies_ends_all_and_nothing_is_lost(words, dies):
    process, children = launch("--processes", *words, "b")
    children[dies].kill()
    killed = time.monotonic()
    _, output = process.communicate(timeout=120)
    assert time.monotonic() - killed < 60 and not any(child.is_running() for child in children.values())
    assert process.returncode == 1
    assert output.count(f"[{LOST}]") == output.count("Error") == 1
    assert RESUME in output and "Traceback" not in output
    equal_once_resumed("b", words)


@pytest.mark.slow
def test_ctrl_c_ends_all_of_them(words):
    process, children = launch("--processes", *words, "b")
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=120)
    assert process.returncode == 130 and not any(child.is_running() for child in children.values())
    assert output.count("nterrupted") == 1 and RESUME in output and "Traceback" not in output
    equal_once_resumed("b", words)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_ctrl_c_before_anything_has_begun(words, seconds):
    """Within the loading of libraries, which each of them does for itself."""
    process = subprocess.Popen(
        [sys.executable, *LAUNCHERS["--processes"], *words, "b"], stderr=subprocess.PIPE, text=True
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    _, output = process.communicate(timeout=120)
    assert process.returncode == 130 and output.count("nterrupted") <= 1 and "Traceback" not in output, output


@pytest.mark.slow
def test_the_parent_process_dies(words):
    """They notice, keep what is done and end."""
    process, children = launch("--processes", *words, "b")
    process.kill()
    _, alive = psutil.wait_procs(children.values(), timeout=60)
    process.communicate()
    assert not alive
    equal_once_resumed("b", words)


@pytest.mark.slow
def test_under_torchrun(words):
    """One dies, and one error is printed. Then two go on where one was left."""
    process, children = launch("torchrun", *words, "b")
    children[1].kill()
    _, output = process.communicate(timeout=120)
    assert process.returncode != 0
    assert output.count(f"[{LOST}]") + len(re.findall("^Interrupted", output, re.M)) == 1
    again = subprocess.run([sys.executable, *LAUNCHERS["torchrun"], "--resume", "b"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("validation agreement") == 1
    succeeds("train", *words, "unbroken")
    first, second = (torch.load(f"{name}/checkpoint.pt", weights_only=True) for name in ("b", "unbroken"))
    torch.testing.assert_close(first["best_weights"], second["best_weights"], atol=2e-3, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (["--lr", "0.1"], "lr"),
        (["--dataset", "other.npz"], "data"),
    ],
)
def test_processes_with_other_settings_or_data_are_refused(words, tmp_path, changed, name):
    content = dict(np.load("graph.npz"))
    np.savez("other.npz", **{**content, "x": content["x"] + 1})
    processes = start(2, tmp_path, "-m", "dgl_lara", "train", *words, "b", changed=changed)
    output = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2], output
    assert "".join(output).count(f"Error: {name} ") == "".join(output).count(f"[{DIFFER}]") == 1
    assert not Path("b/checkpoint.pt").exists()


@pytest.mark.slow
def test_another_version_is_refused(words, tmp_path):
    Path("versions.py").write_text(
        "import os, dgl_lara\n"
        "dgl_lara.__version__ = '9.9.' + os.environ['RANK']\n"
        "from dgl_lara.__main__ import run\n"
        "run()\n"
    )
    processes = start(2, tmp_path, "versions.py", "train", *words, "b")
    output = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2], output
    sentence = "the version of dgl-lara is 9.9.0 in process 0 and 9.9.1 in process 1."
    assert "".join(output).count(sentence) == 1


def test_torchrun_sets_the_number_of_processes(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    refused(run("train", "--dataset", "ba-shapes", "--processes", 2), "processes.torchrun")
