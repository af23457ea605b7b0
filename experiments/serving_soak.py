"""A soak test of the service: mixed load with graph updates, reloads, bad requests and killed processes.

    python experiments/serving_soak.py --run RUN [--minutes 30]

No answer may be wrong, no acknowledged update lost, and memory may not grow. RUN is a trained run folder of a node
task, of which a copy is served. Writes experiments/results/serving_soak.md.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import psutil
from service import serving
from serving import RESULTS, Line, requested

from dgl_lara._util.tables import markdown_table
from dgl_lara.runs.open import open_run
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.schemas import GraphUpdate
from dgl_lara.serve.update_log import UpdateLog

WATCHED = 40  # nodes whose answers are checked
KINDS = ("answers", "updates", "late updates", "reloads", "kills", "refused", "reconnects")
CLOSE = 1e-2  # of the largest score of an answer: corrections stop at a thousandth, and states come about in two ways


class Soak:
    """Clients that send requests, one that updates the graph in a cycle, and one that injects faults.

    Every answer for a watched node is compared with the result of this process on the same graph.
    """

    def __init__(self, service, run, reference, states):
        self.service, self.run, self.reference, self.states = service, run, reference, states
        self.path = f"/v1/models/{run.name}"
        self.state, self.next = 0, 0  # what counts, and what may count already
        self.counts = dict.fromkeys(KINDS, 0)
        self.wrong, self.sequence, self.memory = [], 0, []

    async def ask(self, seed):
        draw, line = np.random.default_rng(seed), Line(self.service.address, f"{self.path}:explain")
        while time.monotonic() < self.until:
            nodes = draw.choice(WATCHED, draw.choice([1, 1, 1, 20]), replace=False)
            allowed = {self.state, self.next}
            try:
                status, answer = await line.post(requested(self.reference.watched[nodes]))
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
                status, answer = 202, json.dumps({"sequence": self.sequence + 1}).encode()
            result = json.loads(answer)
            if status not in (200, 202) or result["sequence"] != self.sequence + 1:
                self.wrong.append((status, "update", self.sequence, answer[:200]))
            elif status == 202:  # on disk, and will count soon
                self.counts["late updates"] += 1
                await self.until_applied(result["sequence"])
            self.sequence, self.state = result.get("sequence", self.sequence), self.next
            self.counts["updates"] += 1
            await asyncio.sleep(1.5)

    async def until_applied(self, sequence):
        while True:
            with contextlib.suppress(OSError, KeyError):
                _, output = await asyncio.to_thread(self.service.ask, f"{self.path}/targets?limit=1")
                if output["about"]["sequence"] >= sequence:
                    return
            await asyncio.sleep(0.5)

    async def break_things(self, every):
        turn = 0
        while time.monotonic() < self.until - every:
            await asyncio.sleep(every)
            self.memory.append(memory_or_none(self.service))
            if turn % 3 == 2:
                self.service.children[0].send_signal(signal.SIGKILL)  # the updater, or a worker after a reload
                self.counts["kills"] += 1
            elif turn % 3 == 1:
                self.service.workers[-1].kill()
                self.counts["kills"] += 1
            else:
                self.service.hang_up()
                self.counts["reloads"] += 1
            turn += 1

    def go_round(self):
        """Apply all updates once."""
        for update in [*self.states[1:], self.states[0]]:
            status, result = self.service.ask(f"{self.path}/graph", json.loads(update.model_dump_json()))
            assert status == 200, result
            self.sequence = result["sequence"]

    async def run_all(self, seconds):
        self.until = time.monotonic() + seconds
        every = max(4.0, min(30.0, seconds / 12))
        await asyncio.gather(
            *(self.ask(seed) for seed in range(6)), self.disturb(), self.update(), self.break_things(every)
        )


def memory_or_none(service):
    """Return (bytes of their own, bytes of mapped files), shared memory counted once."""
    try:
        everybody = [service.process.pid, *(child.pid for child in service.children)]
        found = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in everybody]
    except (OSError, psutil.Error):  # somebody died while we looked
        return None
    return tuple(
        sum(1024 * int(line.split()[1]) for text in found for line in text.splitlines() if line.startswith(f"{kind}:"))
        for kind in ("Pss_Anon", "Pss_File")
    )


class Reference:
    """The answers for the watched nodes in each state of the graph, computed here."""

    def __init__(self, run, folder, states):
        self.model = ServedModel(run.name, open_run(run), folder)
        count = self.model.snapshot.graph.num_nodes()
        self.watched = np.random.default_rng(1).choice(count, WATCHED, replace=False)
        self.served = run
        self.answers = []
        around = [*states[1:], states[0]]
        for update in around:  # once round beforehand: whoever was ever touched has amortised scores from then on
            self.model.accept(update)
        for update in [None, *around]:
            if update is not None:
                self.model.accept(update)
            self.model.apply_pending_updates()
            best = self.model.snapshot.first.cached(self.watched)
            self.answers.append((best.player.copy(), best.score.copy(), best.kept.copy()))
        np.testing.assert_allclose(self.answers[-1][1], self.answers[0][1], rtol=1e-2, atol=1e-3)

    def log(self):
        return UpdateLog(next((self.served / "serving").glob("updates-*.jsonl")))

    def agrees(self, nodes, found, state):
        """Return whether scores are equal up to rounding. A state is a graph, however it was reached."""
        for own, one in zip(nodes, found, strict=True):
            player, score, kept = (part[own] for part in self.answers[state])
            known = dict(zip(player[:kept].tolist(), score[:kept].tolist(), strict=True))
            size = max(map(abs, known.values()))
            if len(one["players"]) != kept:
                return False
            for result in one["players"]:
                if abs(known.get(result["id"], np.inf) - result["score"]) > CLOSE * size:
                    return False
        return True


def circle(run):
    """Return updates that lead from each state of the graph to the next, and from the last to the first."""
    dataset = open_run(run).dataset
    watched = np.random.default_rng(1).choice(dataset.graph.num_nodes(), WATCHED, replace=False)
    a, b, c, d = (int(node) for node in watched[:4])
    return [
        GraphUpdate(remove_edges=[(c, d)], both_ways=True),
        GraphUpdate(add_edges=[(a, b)], both_ways=True),
        GraphUpdate(add_edges=[(c, d)], both_ways=True),
        GraphUpdate(remove_edges=[(a, b)], both_ways=True),
    ]


@click.command()
@click.option("--run", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "serving_soak.md", show_default=True)
def main(run, workers, minutes, out):
    """Apply mixed load with updates, reloads, bad requests and killed processes."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(run, Path(folder) / run.resolve().name, ignore=shutil.ignore_patterns("serving")))
        states = circle(copy)
        reference = Reference(copy, Path(folder) / "reference", states)
        with serving("--run", copy, "--workers", workers) as service:
            one = Soak(service, copy, reference, states)
            one.go_round()
            asyncio.run(one.run_all(60 * minutes))
            for pid in [service.process.pid, *(child.pid for child in service.children)]:
                os.kill(pid, signal.SIGKILL)  # everybody at once, in the middle of it
            service.process.wait()
        with serving("--run", copy, "--workers", workers) as service:
            entries = len(reference.log().entries())
            every_target = np.arange(WATCHED)
            found = service.explain(copy.name, *({"node": int(node)} for node in reference.watched))
            kept = entries == one.sequence and reference.agrees(every_target, found, one.state)
    observed = np.array([values for values in one.memory if values is not None]) / 2**20
    rows = [[name, f"{value:,}"] for name, value in one.counts.items()]
    rows += [
        ["wrong answers", f"{len(one.wrong)}"],
        ["acknowledged updates after everything was killed", f"{entries} of {one.sequence}"],
    ]
    for kind, values in zip(("their own", "mapped files"), observed.T, strict=True):
        thirds = ", ".join(f"{np.median(part):,.0f}" for part in np.array_split(values, 3))
        rows.append([f"memory of all processes, {kind}: median of each third, MB", thirds])
    output = f"# The service, {minutes:g} minutes of everything at once\n\n"
    output += (
        f"`python experiments/serving_soak.py --minutes {minutes:g}`, {workers} workers, {run.resolve().name}.\n\n"
    )
    out.write_text(output + markdown_table(["what", "how many"], rows) + "\n")
    click.echo(out.read_text())
    for one_wrong in one.wrong[:5]:
        click.echo(one_wrong)
    if one.wrong or not kept:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
