"""Table 2: two embeddings per node (source and target) and a single one."""

import common
import pandas as pd
from paper_figures import TABLE_2

from dgl_lara.evaluation.benchmark import lara_with

NAMES = ("tree-cycles", "ogbn-arxiv", "ba-2motifs", "mutag")
PRINTED = {"paper-single": "single", "lara-paper": "dual"}


def run(settings):
    variants = {
        "paper-single": lara_with("paper's form, single", "paper", embedding="single"),
        "single": lara_with("our form, single", embedding="single"),
    }
    methods = ("paper-single", "lara-paper", "single", "lara")
    records = pd.concat([common.compared(name, methods, settings, variants) for name in settings.names(NAMES)])
    records["label"] = records["label"].replace({"lara, paper's form": "paper's form, dual", "lara": "our form, dual"})

    def beside(data, method):
        known = TABLE_2[PRINTED[method]].get(data) if method in PRINTED else None
        return [f"{value:.2f}" for value in known] if known else ["-", "-"]

    header = ["data", "method", *(name for name, _ in common.FIDELITY.values()), "F+, the paper", "F-, the paper"]
    rows = common.grouped(records, common.FIDELITY, beside)
    notes = [
        common.NOTE_FIDELITY,
        "Paper's form: <p, t> on node features, Eq. 8 and 10. Our form: the default of this package.",
        common.sources(records),
        *common.left_out(records),
    ]
    title = "Table 2: dual against single embedding"
    return common.write_table(settings, "table-2", title, [(header, rows)], records, notes)
