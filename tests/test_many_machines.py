"""docs/many_machines.md: its manifest fits the command, and its commands run on four machines.

Network namespaces act as machines. Each has an address, a bridge joins them, and they share a file system."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import pandas as pd
import pytest
import yaml

from dgl_lara.cli import main
from dgl_lara.shards.shard_folder import ShardFolder

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "many_machines.md").read_text()
MACHINES = 4
PATIENCE = 900  # seconds


def blocks(kind):
    return re.findall(rf"```{kind}\n(.+?)```", TEXT, re.DOTALL)


def marked(where):
    """Return the commands that the page marks with a place, in its order."""
    return [block.split("\n", 1)[1] for block in blocks("bash") if block.startswith(f"# on {where}\n")]


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
    for path in (context.params["folder"], *context.params["outs"]):
        assert any(str(path).startswith(mount) for mount in mounts.values())


def test_the_script_for_slurm_fits_the_command():
    (script,) = [block for block in blocks("bash") if "SBATCH" in block]
    first, last = re.search(r"--array=(\d+)-(\d+)", script).groups()
    (command,) = re.findall(r"^srun dgl-lara (.+)$", script, re.MULTILINE)
    name, *words = shlex.split(command.replace("$SLURM_ARRAY_TASK_ID", last))
    assert main.commands[name].make_context(name, words).params["shard"] == (int(last), int(last) + 1) and first == "0"


@pytest.fixture
def machines():
    """Return the names of namespaces with the addresses 10.77.0.1 and so on. Nothing outside of them is changed."""
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
            inside(name, f"ip addr add 10.77.0.{number + 1}/24 dev eth0", "ip link set eth0 up", "ip link set lo up",
                   "ip route add default dev eth0")  # fmt: skip
        yield names


def inside(name, *commands):
    for command in commands:
        subprocess.run(["ip", "netns", "exec", name, *command.split()], check=True)


class Place:
    """The folder that all machines share."""

    def __init__(self, folder, cache, scratch):
        self.folder = folder
        self.settings = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": folder, "DGL_LARA_CACHE": cache,
            "FIRST": "10.77.0.1", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1, "RAY_TMPDIR": scratch,
        }  # fmt: skip

    def start(self, names, commands, first=0):
        """Start shell commands on all of these machines."""
        environment = {**os.environ, **{name: str(value) for name, value in self.settings.items()}}
        return [
            subprocess.Popen(
                ["ip", "netns", "exec", name, "bash", "-euc", commands],
                cwd=self.folder, env={**environment, "MACHINE": str(number)}, text=True, start_new_session=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            for number, name in enumerate(names, first)
        ]  # fmt: skip

    def run(self, names, commands):
        started = self.start(names, commands)
        try:
            outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]
            assert not any(process.returncode for process in started), "\n".join(outputs)
        finally:
            end(started)


def end(processes):
    """End processes with their children."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def place(tmp_path, session_cache):
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as scratch:  # a short name: for sockets
        yield Place(tmp_path, session_cache, scratch)


@pytest.mark.slow
def test_its_commands_run_on_four_machines(machines, place):
    """As on the page, with less training."""
    train, explain = marked("every machine")
    assert "--dataset ba-shapes" in train
    quick = "--target f.pt --epochs 2 --hidden 8 --dim 4 --masks 1"
    place.run(machines[:1], "dgl-lara target --dataset ba-shapes --epochs 2 --out f.pt")
    place.run(machines, train.replace("--dataset ba-shapes", f"--dataset ba-shapes {quick}"))
    place.run(machines, explain)
    assert len(ShardFolder(place.folder / "explanations").manifest().shards) == 4
    check, loop, _ = marked("one machine")
    place.run(machines[1:2], check)
    place.run(machines[2:3], loop)
    same_as_one_process(machines, place, "explanations", "by_loop.parquet")


@pytest.mark.slow
def test_its_commands_run_by_ray(machines, place, quick_runs):
    pytest.importorskip("ray", reason="needs Ray: pip install 'dgl-lara[ray]'")
    shutil.copytree(quick_runs["ba-shapes"], place.folder / "runs" / "mine")
    place.run(machines[:1], marked("one machine")[2])
    cluster = place.start(machines[:1], *marked("the first machine, as long as Ray is wanted"))
    try:
        cluster += place.start(machines[1:2], *marked("the others, as long as Ray is wanted"), first=1)
        place.run(machines[:1], until_two_are_there() + marked("the first machine")[0])
    finally:
        end(cluster)
    same_as_one_process(machines, place, "by_ray", "by_cluster")


def until_two_are_there():
    """Return a shell command that waits for the second machine of the cluster."""
    code = "import ray, time; ray.init('10.77.0.1:6379')\nwhile len(ray.nodes()) < 2: time.sleep(1)"
    return f'export RAY_AUTH_MODE=token\nuntil python -c "{code}"; do sleep 2; done\n'


def same_as_one_process(machines, place, *tables):
    place.run(machines[:1], "dgl-lara explain --run runs/mine --all --out whole.parquet")
    whole = pd.read_parquet(place.folder / "whole.parquet")
    assert whole.target.nunique() == 700
    for name in tables:
        pd.testing.assert_frame_equal(pd.read_parquet(place.folder / name), whole, atol=1e-5, rtol=1e-4)
