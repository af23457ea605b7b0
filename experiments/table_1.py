"""Table 1: throughput of all methods, beside the paper's; from the comparison of Figure 4."""

import common
import pandas as pd
from paper_figures import TABLE_1

from dgl_lara.choices import METHODS

NAMES = common.SIX


def run(settings):
    names = settings.names(NAMES)
    records = pd.concat([common.compared(name, METHODS, settings) for name in names])
    by_set = dict(list(records.groupby("data", sort=False)))
    rates = {name: common.measured(by_set[name], "targets/s", 1) for name in names}
    ratios = {name: common.measured(by_set[name], "LARA is x times faster") for name in names}
    labels = records.groupby("method", sort=False)["label"].last()

    def printed(method, name):
        return TABLE_1.get(method.replace("lara-paper", "lara"), {}).get(name)

    speed, times = [], []
    for method, label in labels.items():
        papers = {name: printed(method, name) for name in names}
        speed.append([label, *(f"{rates[name][method]} [{_short(papers[name])}]" for name in names)])
        if method != "lara":
            times.append([label, *(f"{ratios[name][method]} [{_times(papers[name], name)}]" for name in names)])
    notes = [
        "Targets a second, best of the column in bold; in brackets the paper's (one RTX 2080 Ti; ours: this machine's "
        f"{common.choose_device(settings.device).type}). The paper's LARA stands beside LARA in the paper's form too.",
        "Second table: how many times faster LARA is than each, both measured in turns in one process; in brackets the "
        "same ratio of the paper's figures. Rivals explain as many targets at once as fit, LARA everything.",
        common.sources(records),
        *common.left_out(records),
    ]
    tables = [(["targets/s", *names], speed), (["LARA is x times faster than", *names], times)]
    frame = records[["data", "source", "method", "label", "seed", "targets/s", "LARA is x times faster", "fit (s)"]]
    return common.write_table(settings, "table-1", "Table 1: throughput", tables, frame, notes)


def _short(printed):
    return common.number(printed[0]) if printed else "-"


def _times(printed, name):
    return common.number(TABLE_1["lara"][name][0] / printed[0], 1) if printed else "-"
