"""Table 1: throughput of all methods, with the paper's, from the benchmark of Figure 4."""

import common
import pandas as pd
from paper_figures import TABLE_1
from plots import labels_of

from dgl_lara.evaluation.benchmark import METHODS

NAMES = common.SIX


def run(settings):
    names = settings.names(NAMES)
    records = pd.concat([common.compared(name, tuple(METHODS), settings) for name in names])
    by_set = dict(list(records.groupby("data", sort=False)))
    rates = {name: common.measured(by_set[name], "targets/s", 1) for name in names}
    scratch = {name: common.measured(by_set[name], "LARA is x times faster") for name in names}
    stored = {name: common.measured(by_set[name], "LARA, stored, is x times faster") for name in names}
    labels = labels_of(records)

    def printed(method, name):
        return TABLE_1.get(method.replace("lara-paper", "lara"), {}).get(name)

    speed, times, again = [], [], []
    for method, label in labels.items():
        papers = {name: printed(method, name) for name in names}
        speed.append([label, *(f"{rates[name][method]} [{_short(papers[name])}]" for name in names)])
        if not str(method).startswith("lara"):
            times.append([label, *(f"{scratch[name][method]} [{_times(papers[name], name)}]" for name in names)])
            again.append([label, *(stored[name][method] for name in names)])
    rates_again = {name: common.measured(by_set[name], "targets/s, stored") for name in names}
    speed.append(["lara, embeddings stored", *(f"{rates_again[name]['lara']} [-]" for name in names)])
    notes = [
        "Targets a second, best of the column in bold; in brackets the paper's (one RTX 2080 Ti; ours: this machine's "
        f"{common.choose_device(settings.device).type}). The paper's LARA stands beside LARA in the paper's form too.",
        "Second table: how many times faster LARA is than each, both measured in turns in one process; in brackets the "
        "same ratio of the paper's figures. Rivals explain as many targets at once, drawn from all there are, as make "
        "them fastest, LARA all of them, its pass of g over all nodes included. Third table: the same without that "
        "pass, from embeddings that LARA has stored, as PGExplainer has stored f's and FastDnX its surrogate's terms.",
        common.sources(records),
        *common.left_out(records),
    ]
    tables = [
        (["targets/s", *names], speed),
        (["LARA is x times faster than", *names], times),
        (["LARA, embeddings stored, is x times faster than", *names], again),
    ]
    figures = ["targets/s", "targets/s, stored", "LARA is x times faster", "LARA, stored, is x times faster", "fit (s)"]
    frame = records[["data", "source", "method", "label", "seed", *figures]]
    return common.write_table(settings, "table-1", "Table 1: throughput", tables, frame, notes)


def _short(printed):
    return common.number(printed[0]) if printed else "-"


def _times(printed, name):
    return common.number(TABLE_1["lara"][name][0] / printed[0], 1) if printed else "-"
