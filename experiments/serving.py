"""The performance of the service: latency, throughput, start and memory.

    python experiments/serving.py --run RUN [--workers 2] [--seconds 20]

RUN is a trained run folder of a node task. It was made for ogbn-arxiv. Embeddings and cached answers are stored first.
Client and service share this machine and use the loopback. `wrk` is used for saturation if it is installed. Writes
experiments/results/serving.md.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import psutil
from service import serving

from dgl_lara._util.progress import log_info
from dgl_lara._util.tables import markdown_table
from dgl_lara.runs.open import open_run

STARTS = 5
RESULTS = Path(__file__).parent / "results"
TOP, BATCH, RATE = 20, 1000, 200


class Line:
    """A kept-alive connection by hand, so that the client costs little."""

    def __init__(self, address, path):
        host, port = address.removeprefix("http://").split(":")
        self.where, self.host, self.path = (host, int(port)), f"{host}:{port}", path
        self.reader: Any = None
        self.writer: Any = None

    async def post(self, body):
        """(status, bytes of the answer); a connection that the service closed between two requests is opened anew."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(*self.where, limit=2**24)
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = await self.reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), answer

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None


def requested(nodes):
    return json.dumps({"instances": [{"node": int(node), "top": TOP} for node in nodes]}).encode()


# --- speed


async def at_rate(address, path, bodies, rate, seconds):
    """Milliseconds of each answer, asked at fixed moments whether or not the last one has come; from the moment at
    which it was due."""
    free = [Line(address, path) for _ in range(32)]
    spent, began = [], time.perf_counter()

    async def one(due, body):
        line = free.pop() if free else Line(address, path)
        status, _ = await line.post(body)
        assert status == 200
        spent.append(1e3 * (time.perf_counter() - due))
        free.append(line)

    tasks = []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due, bodies[number % len(bodies)])))
    await asyncio.gather(*tasks)
    for line in free:
        line.close()
    return np.array(spent)


async def as_fast_as_can(address, path, bodies, seconds, connections):
    """Answers a second."""
    done, until = 0, time.perf_counter() + seconds

    async def ask(first):
        nonlocal done
        line, number = Line(address, path), first
        while time.perf_counter() < until:
            status, _ = await line.post(bodies[number % len(bodies)])
            assert status == 200
            done, number = done + 1, number + connections
        line.close()

    began = time.perf_counter()
    await asyncio.gather(*(ask(first) for first in range(connections)))
    return done / (time.perf_counter() - began)


def by_wrk(address, path, nodes, seconds):
    """Return requests per second for single nodes by wrk, or None if it is not installed."""
    if shutil.which("wrk") is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        listed = ",".join(map(str, nodes))
        body = '{"instances": [{"node": %d, "top": ' + str(TOP) + "}]}"
        script.write(f"local nodes, at = {{{listed}}}, 0\nwrk.method = 'POST'\n")
        script.write("request = function()\n  at = at % #nodes + 1\n")
        script.write(f"  return wrk.format(nil, nil, nil, string.format('{body}', nodes[at]))\nend\n")
        script.flush()
        command = ["wrk", "-t1", "-c32", f"-d{seconds}s", "-s", script.name, address + path]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in output, output
    return float(output.split("Requests/sec:")[1].split()[0])


def memory(service):
    """Return the bytes of all processes, shared memory counted once."""
    everybody = [psutil.Process(service.process.pid), *service.children]
    return sum(one.memory_full_info().pss for one in everybody)


def filled(service, name, patience=3600):
    """Wait until the updater has explained all targets."""
    until = time.monotonic() + patience
    while True:
        about = service.ask(f"/v1/models/{name}/targets?limit=1")[1]["about"]
        if about["explained"] >= about["targets"]:
            return about["targets"]
        assert time.monotonic() < until, about
        time.sleep(1)


def to_ready(run, workers):
    """Return the seconds from the command to the first answer."""
    began = time.perf_counter()
    with serving("--run", run, "--workers", workers) as service:
        assert service.ask(f"/v1/models/{run.name}")[1]["ready"]
        return time.perf_counter() - began


@click.command()
@click.option("--run", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--seconds", default=20, show_default=True, help="Of each measurement.")
@click.option("--prepare", is_flag=True, help="Only store embeddings and table, so that the rest measures no more.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "serving.md", show_default=True)
def main(run, workers, seconds, prepare, out):
    """Measure latency, throughput, start and memory of a stored run."""
    run, rows = run.resolve(), []
    path = f"/v1/models/{run.name}:explain"
    with serving("--run", run, "--workers", 1) as service:
        count = filled(service, run.name)
    if prepare:
        return
    nodes = np.random.default_rng(0).integers(0, count, 20_000)
    log_info(f"{count:,} nodes are explained and stored")
    started = sorted(to_ready(run, workers) for _ in range(STARTS))
    result = f"{median(started):.1f} s (median of {STARTS}; {started[0]:.1f} to {started[-1]:.1f})"
    rows.append(["start with a stored run, to the first answer", result, "≤ 5 s"])
    singles, batches = (
        [requested([node]) for node in nodes[:5000]],
        [requested(part) for part in nodes.reshape(-1, BATCH)],
    )
    costs = []
    for number in (1, 2):
        with serving("--run", run, "--workers", number) as service:
            asyncio.run(as_fast_as_can(service.address, path, singles, 2, 8))
            costs.append(memory(service))
            log_info(f"memory with {number} workers: {costs[-1] / 2**20:,.0f} MB")
            if number == 2:
                own = [worker.memory_full_info().uss for worker in service.workers]
    share = (costs[1] - costs[0]) / costs[0]
    mb = [f"{cost / 2**20:,.0f}" for cost in (costs[0], costs[1] - costs[0], max(own))]
    rows.append(["memory: service with one worker, second worker", f"{mb[0]} MB, {mb[1]} MB ({share:.0%})", "≤ 20 %"])
    with serving("--run", run, "--workers", workers) as service:
        asyncio.run(as_fast_as_can(service.address, path, singles, 2, 8))
        spent = asyncio.run(at_rate(service.address, path, singles, RATE, seconds))
        log_info("latency is measured")
        p50, p99 = np.percentile(spent, [50, 99])
        rows.append(
            [f"one node, top {TOP}, {RATE} requests a second: p50, p99", f"{p50:.2f} ms, {p99:.2f} ms", "≤ 3, ≤ 20 ms"]
        )
        for name, found in (
            ("wrk", by_wrk(service.address, path, nodes[:5000], seconds)),
            ("asyncio", asyncio.run(as_fast_as_can(service.address, path, singles, seconds, 32))),
        ):
            if found is not None:
                rows.append([f"one node, saturated by {name}, requests a second", f"{found:,.0f}", "≥ 1,500"])
        found = BATCH * asyncio.run(as_fast_as_can(service.address, path, batches, seconds, 2 * workers))
        rows.append([f"batches of {BATCH:,} nodes, explanations a second", f"{found:,.0f}", "≥ 100,000"])
    graph = open_run(run).dataset
    output = (
        f"# The service\n\n{graph.source}, {graph.graph.num_nodes():,} nodes, {graph.graph.num_edges():,} edges; "
        f"{workers} workers, client on the same {os.cpu_count()} cores, loopback; {seconds} s each "
        "(`python experiments/serving.py`). Everything is in the cache of answers.\n\n"
    )
    out.write_text(output + markdown_table(["what", "measured", "wanted"], rows) + "\n")
    click.echo(out.read_text())


if __name__ == "__main__":
    main()
