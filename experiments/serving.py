"""How fast and how steady the service is: latency, throughput, start, memory; and a soak with everything that can happen.

    python experiments/serving.py speed --run RUN [--workers 2] [--seconds 20]
    python experiments/serving.py soak --run RUN [--minutes 30]

RUN is a trained run folder of a node task; `speed` was made for ogbn-arxiv, whose embeddings and table are stored
first. Client and service share this machine, on the loopback. `wrk` is used for saturation where it is installed. `speed`
writes experiments/results/serving.md, `soak` experiments/results/serving_soak.md.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import psutil
from service import serving

from dgl_lara.runs import open_run
from dgl_lara.serve.messages import GraphUpdate
from dgl_lara.serve.served import ServedModel
from dgl_lara.utils.tables import markdown_table

RESULTS = Path(__file__).parent / "results"
TOP, BATCH, RATE = 20, 1000, 200
WATCHED = 40  # nodes whose answers are checked in the soak
CLOSE = 1e-4


class Line:
    """One kept-alive connection, by hand: the client shall cost as little as it can."""

    def __init__(self, address, path):
        host, port = address.removeprefix("http://").split(":")
        self.where, self.host, self.path = (host, int(port)), f"{host}:{port}", path
        self.reader = self.writer = None

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


def asked(nodes):
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
    """Requests a second for single nodes, by wrk; None where it is not installed."""
    if shutil.which("wrk") is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        listed = ",".join(map(str, nodes))
        script.write(
            f"local nodes = {{{listed}}}\nlocal at = 0\nwrk.method = 'POST'\n"
            "request = function()\n  at = at % #nodes + 1\n"
            f'  return wrk.format(nil, nil, nil, \'{{"instances": [{{"node": \' .. nodes[at] .. \', "top": {TOP}}}]}}\')\n'
            "end\n"
        )
        script.flush()
        command = ["wrk", "-t1", "-c32", f"-d{seconds}s", "-s", script.name, address + path]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in said, said
    return float(said.split("Requests/sec:")[1].split()[0])


def memory(service):
    """Bytes of all processes together, what they share counted once."""
    everybody = [psutil.Process(service.process.pid), *service.children]
    return sum(one.memory_full_info().pss for one in everybody)


def filled(service, name, patience=3600):
    """Waits until the keeper has explained everybody."""
    until = time.monotonic() + patience
    while True:
        about = service.ask(f"/v1/models/{name}/targets?limit=1")[1]["about"]
        if about["explained"] >= about["targets"]:
            return about["targets"]
        assert time.monotonic() < until, about
        time.sleep(1)


def to_ready(run, workers):
    """Seconds from the command to the first answer."""
    began = time.perf_counter()
    with serving("--run", run, "--workers", workers) as service:
        assert service.ask(f"/v1/models/{run.name}")[1]["ready"]
        return time.perf_counter() - began


@click.group()
def main():
    """See the top of the file."""


@main.command()
@click.option("--run", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--seconds", default=20, show_default=True, help="Of each measurement.")
@click.option("--prepare", is_flag=True, help="Only store embeddings and table, so that the rest measures no more.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "serving.md", show_default=True)
def speed(run, workers, seconds, prepare, out):
    """Latency, throughput, start and memory of a stored run."""
    run, rows = run.resolve(), []
    path = f"/v1/models/{run.name}:explain"
    with serving("--run", run, "--workers", 1) as service:
        count = filled(service, run.name)
    if prepare:
        return
    nodes = np.random.default_rng(0).integers(0, count, 20_000)
    rows.append(["start with a stored run, to the first answer", f"{to_ready(run, workers):.1f} s", "≤ 5 s"])
    singles, batches = [asked([node]) for node in nodes[:5000]], [asked(part) for part in nodes.reshape(-1, BATCH)]
    costs = []
    for number in (1, 2):
        with serving("--run", run, "--workers", number) as service:
            asyncio.run(as_fast_as_can(service.address, path, singles, 2, 8))
            costs.append(memory(service))
            if number == 2:
                own = [worker.memory_full_info().uss for worker in service.workers]
    share = (costs[1] - costs[0]) / costs[0]
    mb = [f"{cost / 2**20:,.0f}" for cost in (costs[0], costs[1] - costs[0], max(own))]
    rows.append(["memory: service with one worker, second worker", f"{mb[0]} MB, {mb[1]} MB ({share:.0%})", "≤ 20 %"])
    with serving("--run", run, "--workers", workers) as service:
        asyncio.run(as_fast_as_can(service.address, path, singles, 2, 8))
        spent = asyncio.run(at_rate(service.address, path, singles, RATE, seconds))
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
    said = (
        f"# The service\n\n{graph.name}, {graph.graph.num_nodes():,} nodes, {graph.graph.num_edges():,} edges; "
        f"{workers} workers, client on the same {os.cpu_count()} cores, loopback; {seconds} s each "
        "(`python experiments/serving.py speed`). Everything is in the table of answers.\n\n"
    )
    out.write_text(said + markdown_table(["what", "measured", "wanted"], rows) + "\n")
    click.echo(out.read_text())


# --- soak


class Soak:
    """Clients that ask, one that updates the graph in a circle, and somebody who breaks things. Every answer of a
    watched node is held against what this process computes by itself on the same graph."""

    def __init__(self, service, run, reference, states):
        self.service, self.run, self.reference, self.states = service, run, reference, states
        self.path = f"/v1/models/{run.name}"
        self.state, self.next = 0, 0  # what counts, and what may count already
        self.counts = dict.fromkeys(("answers", "updates", "reloads", "kills", "refused", "reconnects"), 0)
        self.wrong, self.sequence, self.memory = [], 0, []

    async def ask(self, seed):
        draw, line = np.random.default_rng(seed), Line(self.service.address, f"{self.path}:explain")
        while time.monotonic() < self.until:
            nodes = draw.choice(WATCHED, draw.choice([1, 1, 1, 20]), replace=False)
            allowed = {self.state, self.next}
            try:
                status, answer = await line.post(asked(self.reference.watched[nodes]))
            except (OSError, asyncio.IncompleteReadError):  # its worker was killed: what any client does
                line.close()
                self.counts["reconnects"] += 1
                continue
            allowed |= {self.state, self.next}
            self.counts["answers"] += 1
            found = json.loads(answer)["explanations"] if status == 200 else None
            if found is None or not any(self.reference.agrees(nodes, found, state) for state in allowed):
                self.wrong.append((status, nodes.tolist(), sorted(allowed), answer[:200]))
            await asyncio.sleep(draw.exponential(0.02))

    async def disturb(self):
        """Bad requests: each must be refused in a sentence."""
        line, turn = Line(self.service.address, f"{self.path}:explain"), 0
        bad = [b"", b"{", b'{"instances": [{"node": -1}]}', b'{"instances": [{"node": 1, "x": 2}]}', b"[1" * 999]
        while time.monotonic() < self.until:
            try:
                status, answer = await line.post(bad[turn % len(bad)])
            except (OSError, asyncio.IncompleteReadError):
                line.close()
                continue
            if status != 400 or not json.loads(answer)["error"].endswith("."):
                self.wrong.append((status, "bad request", turn, answer[:200]))
            self.counts["refused"], turn = self.counts["refused"] + 1, turn + 1
            await asyncio.sleep(0.2)

    async def update(self):
        line = Line(self.service.address, f"{self.path}/graph")
        while time.monotonic() < self.until:
            self.next = (self.state + 1) % len(self.states)
            try:
                status, answer = await line.post(self.states[self.next].model_dump_json().encode())
            except (OSError, asyncio.IncompleteReadError):  # not acknowledged: it may count or not, so ask the log
                line.close()
                await asyncio.sleep(0.5)
                if len(self.reference.log().entries()) == self.sequence:
                    continue
                status, answer = 200, json.dumps({"sequence": self.sequence + 1, "applied": True}).encode()
                await asyncio.sleep(3)
            told = json.loads(answer)
            if status != 200 or told["sequence"] != self.sequence + 1:
                self.wrong.append((status, "update", self.sequence, answer[:200]))
            self.sequence, self.state = told.get("sequence", self.sequence), self.next
            self.counts["updates"] += 1
            await asyncio.sleep(1.5)

    async def break_things(self, every):
        turn = 0
        while time.monotonic() < self.until - every:
            await asyncio.sleep(every)
            self.memory.append(memory_or_none(self.service))
            if turn % 3 == 2:
                self.service.children[0].send_signal(signal.SIGKILL)  # the keeper, or a worker after a reload
                self.counts["kills"] += 1
            elif turn % 3 == 1:
                self.service.workers[-1].kill()
                self.counts["kills"] += 1
            else:
                self.service.hang_up()
                self.counts["reloads"] += 1
            turn += 1

    async def run_all(self, seconds):
        self.until = time.monotonic() + seconds
        every = max(4.0, min(30.0, seconds / 12))
        await asyncio.gather(
            *(self.ask(seed) for seed in range(6)), self.disturb(), self.update(), self.break_things(every)
        )


def memory_or_none(service):
    try:
        return memory(service)
    except psutil.Error:  # somebody died while we looked
        return None


class Reference:
    """What the watched nodes' answers are in each state of the graph, computed here."""

    def __init__(self, run, folder, states):
        self.model = ServedModel(run.name, open_run(run), folder)
        count = self.model.snapshot.graph.num_nodes()
        self.watched = np.random.default_rng(1).choice(count, WATCHED, replace=False)
        self.served = run
        self.answers = []
        for update in [None, *states[1:], states[0]]:
            if update is not None:
                self.model.accept(update)
                self.model.catch_up()
            best = self.model.snapshot.first.best(self.watched)
            self.answers.append((best.player.copy(), best.score.copy(), best.kept.copy()))
        np.testing.assert_allclose(self.answers[-1][1], self.answers[0][1], rtol=1e-2, atol=1e-3)

    def log(self):
        from dgl_lara.serve.update_log import UpdateLog

        return UpdateLog(next((self.served / "serving").glob("updates-*.jsonl")))

    def agrees(self, nodes, found, state):
        """A state is a graph, whichever way it came about: scores are the same up to rounding."""
        for own, one in zip(nodes, found, strict=True):
            player, score, kept = (part[own] for part in self.answers[state])
            known = dict(zip(player[:kept].tolist(), score[:kept].tolist(), strict=True))
            size = max(map(abs, known.values()))
            if len(one["players"]) != kept:
                return False
            for told in one["players"]:
                if abs(known.get(told["id"], np.inf) - told["score"]) > 1e-2 * size:
                    return False
        return True


def circle(run):
    """Updates that lead from each state of the graph to the next, the first back to the beginning."""
    dataset = open_run(run).dataset
    watched = np.random.default_rng(1).choice(dataset.graph.num_nodes(), WATCHED, replace=False)
    a, b, c, d = (int(node) for node in watched[:4])
    return [
        GraphUpdate(remove_edges=[(c, d)], both_ways=True),
        GraphUpdate(add_edges=[(a, b)], both_ways=True),
        GraphUpdate(add_edges=[(c, d)], both_ways=True),
        GraphUpdate(remove_edges=[(a, b)], both_ways=True),
    ]


@main.command()
@click.option("--run", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "serving_soak.md", show_default=True)
def soak(run, workers, minutes, out):
    """Mixed load with updates, reloads, bad requests and killed processes."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(run, Path(folder) / run.resolve().name, ignore=shutil.ignore_patterns("serving")))
        states = circle(copy)
        reference = Reference(copy, Path(folder) / "reference", states)
        with serving("--run", copy, "--workers", workers) as service:
            one = Soak(service, copy, reference, states)
            asyncio.run(one.run_all(60 * minutes))
            for pid in [service.process.pid, *(child.pid for child in service.children)]:
                os.kill(pid, signal.SIGKILL)  # everybody at once, in the middle of it
            service.process.wait()
        with serving("--run", copy, "--workers", workers) as service:
            entries = len(reference.log().entries())
            everyone = np.arange(WATCHED)
            found = service.explain(copy.name, *({"node": int(node)} for node in reference.watched))
            kept = entries == one.sequence and reference.agrees(everyone, found, one.state)
    seen = [value for value in one.memory if value is not None]
    half = len(seen) // 2
    early, late = (np.median(part) / 2**20 for part in (seen[:half] or seen, seen[half:]))
    rows = [[name, f"{value:,}"] for name, value in one.counts.items()]
    rows += [
        ["wrong answers", len(one.wrong)],
        ["acknowledged updates after everything was killed", f"{entries} of {one.sequence}"],
    ]
    rows += [
        ["memory of all processes, median of the first and of the second half", f"{early:,.0f} MB, {late:,.0f} MB"]
    ]
    said = f"# The service, {minutes:g} minutes of everything at once\n\n`python experiments/serving.py soak --minutes {minutes:g}`, {workers} workers, {run.resolve().name}.\n\n"
    out.write_text(said + markdown_table(["what", "how many"], rows) + "\n")
    click.echo(out.read_text())
    for one_wrong in one.wrong[:5]:
        click.echo(one_wrong)
    if one.wrong or not kept:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
