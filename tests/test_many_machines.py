"""docs/many_machines.md is true: its manifest fits the command, and its commands run on four machines. Network
namespaces stand in for them: each has an address of its own, a wire joins them, and they see one file system."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pytest
import yaml

from dgl_lara.cli import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "many_machines.md").read_text()
MACHINES = 4
PATIENCE = 900  # seconds


def blocks(kind):
    return re.findall(rf"```{kind}\n(.+?)```", TEXT, re.DOTALL)


def marked(where):
    """The commands that are to be run there, in the order of the page."""
    return [block for block in blocks("bash") if block.startswith(f"# on {where}\n")]


def test_the_job_of_kubernetes_fits_the_command():
    (job,) = map(yaml.safe_load, blocks("yaml"))
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, name, *words = container["command"]
    last = [word.replace("$(JOB_COMPLETION_INDEX)", str(job["spec"]["completions"] - 1)) for word in words]
    context = main.commands[name].make_context(name, last)
    assert program == "dgl-lara" and context.params["shard"] == (39, 40)
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in pod["volumes"]}
    for path in (context.params["folder"], context.params["out"]):
        assert any(str(path).startswith(mount) for mount in mounts.values())


def test_the_script_for_slurm_fits_the_command():
    (script,) = [block for block in blocks("bash") if "SBATCH" in block]
    first, last = re.search(r"--array=(\d+)-(\d+)", script).groups()
    (command,) = re.findall(r"^srun dgl-lara (.+)$", script, re.MULTILINE)
    name, *words = shlex.split(command.replace("$SLURM_ARRAY_TASK_ID", last))
    assert main.commands[name].make_context(name, words).params["shard"] == (int(last), int(last) + 1) and first == "0"


@pytest.fixture
def machines():
    """Names of namespaces with the addresses 10.77.0.1 ... on one wire; nothing outside of them is touched."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2, for network namespaces")
    names = [f"lara{os.getpid()}-{number}" for number in range(MACHINES)]
    switch = f"lara{os.getpid()}-switch"
    with ExitStack() as stack:
        for name in (switch, *names):
            if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
                pytest.skip("network namespaces cannot be made here")
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=True)
        inside(switch, "ip link add wire type bridge", "ip link set wire up")
        for number, name in enumerate(names):
            subprocess.run(
                ["ip", "-n", switch, *f"link add to{number} type veth peer eth0 netns {name}".split()], check=True
            )
            inside(switch, f"ip link set to{number} master wire up")
            inside(name, f"ip addr add 10.77.0.{number + 1}/24 dev eth0", "ip link set eth0 up", "ip link set lo up")
        yield names


def inside(name, *commands):
    for command in commands:
        subprocess.run(["ip", "netns", "exec", name, *command.split()], check=True)


def run_on(names, commands, place, **settings):
    """Shell commands on all of these machines at once; what they said."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "FIRST": "10.77.0.1"}
    environment |= {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "HOME": str(place), **settings}
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, "bash", "-euc", commands],
            cwd=place, env={**environment, "MACHINE": str(number)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    said = [process.communicate(timeout=PATIENCE)[0] for process in started]
    assert not any(process.returncode for process in started), "\n".join(said)
    return said


@pytest.mark.slow
def test_its_commands_run_on_four_machines(machines, tmp_path, session_cache, quick_runs):
    together, alone = marked("every machine"), marked("one machine")
    assert len(together) == 2 and len(alone) == 3
    cache = {"DGL_LARA_CACHE": str(session_cache)}
    shutil.copytree(quick_runs["ba-shapes"], tmp_path / "runs" / "mine")
    for commands in together:
        if "torchrun" in commands:
            continue
        said = run_on(machines, commands, tmp_path, **cache)
    assert sum("all 4 are there" in one for one in said) >= 1
    for commands in alone:
        if "ray" not in commands:
            run_on(machines[:1], commands, tmp_path, **cache)
    whole = "dgl-lara explain --run runs/mine --all --out whole.parquet"
    run_on(machines[:1], whole, tmp_path, **cache)
    expected = pd.read_parquet(tmp_path / "whole.parquet")
    for name in ("explanations", "by_loop.parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / name), expected, atol=1e-5, rtol=1e-4)
