"""One setting of LARA varied, in our form and the paper's, for Table 4 and the table of dimensions."""

import common
import pandas as pd

from dgl_lara.evaluation.benchmark import lara_with

COLUMNS = {**common.FIDELITY, "targets/s": ("targets/s", 1)}
FORMS = {"paper": "paper's form", "default": "our form"}


def vary(settings, names, what, values, usual, stem, title, header, printed):
    """Vary a setting. `usual(game)` is the default value, `printed` the paper's cells for each value."""
    tables, rows = [], []
    for name in settings.names(names):
        anyway = usual(common.benchmark_on(name, settings).game)
        for form, words in FORMS.items():
            called = {_method(form, what, value, anyway): f"{words}, {what} {value}" for value in values}
            variants = {
                method: lara_with(called[method], form, **{what: value})
                for method, value in zip(called, values, strict=True)
                if value != anyway
            }
            records = common.compared(name, tuple(called), settings, variants)
            tables.append(records.assign(label=records["method"].map(called)))
            beside = printed if name in names and form == "paper" else {}
            ours = common.grouped(tables[-1], COLUMNS)
            rows += [row + beside.get(value, ["-"] * len(header)) for row, value in zip(ours, values, strict=True)]
    titles = ["data", "method", *(word for word, _ in COLUMNS.values()), *header]
    everything = pd.concat(tables)
    notes = [common.NOTE_FIDELITY, common.sources(everything), *common.left_out(everything)]
    return common.write_table(settings, stem, title, [(titles, rows)], everything, notes)


def _method(form, what, value, anyway):
    """Return the name of LARA in the benchmark for the default value, so that it is not trained twice."""
    if value == anyway:
        return "lara" if form == "default" else "lara-paper"
    return f"{form}-{what}-{value}"
