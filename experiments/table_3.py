"""Table 3: seconds to explain 10^2 ... 10^5 nodes of ogbn-arxiv."""

from functools import partial

import common
import pandas as pd
import torch
from paper_figures import TABLE_3

from dgl_lara._util.randomness import generator
from dgl_lara._util.timing import clock
from dgl_lara.evaluation.benchmark import briefly_trained
from dgl_lara.evaluation.run_evaluation import Evaluation, evaluate
from dgl_lara.metrics.common.metric import EvalCase

NAMES = ("ogbn-arxiv",)
COUNTS = (100, 1_000, 10_000, 100_000)
RIVALS = ("gnn-explainer", "pg-explainer", "graphsvx", "orphicx")
PATIENCE = {True: 60, False: 1800}  # seconds a rival may take; beyond that its time is extrapolated


def run(settings):
    frames, tables, notes = [], [], []
    for name in settings.names(NAMES):
        benchmark, lara = common.lara_on(name, settings)
        # of all nodes: those of the test split are the newest, which hardly anybody has cited
        every_target = torch.randperm(benchmark.game.num_targets, generator=generator(0))
        targets = every_target.to(benchmark.targets.device)
        counts = [count for count in COUNTS if count <= len(targets)] or [len(targets)]
        subject = Evaluation(lara.lara, EvalCase(benchmark.game, targets))
        rows = common.kept(settings, benchmark, "latency-lara", partial(_lara, subject, counts))
        for rival in RIVALS:
            make = partial(_rival, benchmark, rival, targets, counts, PATIENCE[settings.quick])
            rows += common.kept(settings, benchmark, f"latency-{rival}", make)
        found = pd.DataFrame(rows)
        source = common.source_of(name, benchmark.dataset)
        frames.append(found.assign(data=name, source=source))
        shown = [_row(method, mine, counts, name in NAMES) for method, mine in found.groupby("method", sort=False)]
        tables.append((["method", *(f"{count:,}" for count in counts), *(f"paper: {c:,}" for c in counts)], shown))
        notes.append(f"{name}: {source}, {benchmark.game.num_targets:,} nodes, K = {benchmark.game.hops}.")
    notes = [
        "Seconds. '≈': extrapolated from the largest number that was run, in proportion. LARA from scratch begins with "
        "the bare graph: f, the pass of g over everything, the scores; 'nearby': all of it on the targets' "
        "surroundings alone, for a few targets. The paper's figures are from a GPU.",
        *notes,
    ]
    title = "Table 3: latency against the number of nodes"
    return common.write_table(settings, "table-3", title, tables, pd.concat(frames), notes)


def _lara(subject, counts):
    found = evaluate(subject, "latency")
    found = found[found["targets"].isin(counts)].assign(extrapolated=False)
    return found[["method", "targets", "latency (s)", "extrapolated"]].to_dict("records")


def _rival(benchmark, rival, targets, counts, patience):
    """Time as many targets as patience allows, then extrapolate in proportion."""
    method = briefly_trained(benchmark, rival, 0)
    rows, most, spent = [], 1, 0.0
    for count in (min(20, len(targets)), *counts):  # the first warms up
        expected = spent / most * count
        if expected <= patience:
            start = clock(targets.device)
            method.explain(targets[:count])
            spent, most = clock(targets.device) - start, count
            expected = spent
        row = {"method": method.label, "targets": count, "latency (s)": expected, "extrapolated": most != count}
        rows.append(row)
    return [row for row in rows if row["targets"] in counts]


def _row(method, mine, counts, printed):
    mine = mine.drop_duplicates("targets", keep="last").set_index("targets")
    cells = [
        ("≈ " if mine.loc[count, "extrapolated"] else "") + common.number(mine.loc[count, "latency (s)"], 3)
        if count in mine.index
        else "-"
        for count in counts
    ]
    paper = next((row for key, row in TABLE_3.items() if method.startswith(key)), {}) if printed else {}
    return [method, *cells, *(common.number(paper[count]) if count in paper else "-" for count in counts)]
