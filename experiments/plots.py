"""The paper's figures, drawn from the records of a benchmark (one row per data set, method and seed)."""

import textwrap

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dgl_lara.baselines import BASELINES
from dgl_lara.evaluation.lara_method import STYLES as LARA_STYLES
from dgl_lara.metrics.fidelity import SPARSITIES, fidelity_column

OTHERS = ("#0072B2", "#009E73", "#000000", "#CC79A7", "#E69F00")
MEASURES = (("F+", "Fidelity+ (higher is better)"), ("F-", "Fidelity- (lower is better)"))


def style(method, place):
    """Return the line style of a method, the same in every figure (colours of Okabe and Ito)."""
    chosen = LARA_STYLES.get(method) or (BASELINES[method].style if method in BASELINES else None)
    colour, line = chosen or (OTHERS[place % len(OTHERS)], "-.")
    strong = method.startswith("lara")
    return {"color": colour, "linestyle": line, "linewidth": 2.2 if strong else 1.3, "zorder": 3 if strong else 2}


def canvas(width, height):
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def fidelity_grid(records, definition, title, columns=3):
    """Draw Figure 4: fidelity against sparsity, a line per method, F+ above F- for each data set."""
    shown = [(name, group) for name, group in records.groupby("data", sort=False)]
    shown = [
        (name, group)
        for name, group in shown
        if fidelity_column("F+", definition, 0.5) in group.dropna(axis=1, how="all")
    ]
    columns = min(columns, len(shown))
    bands = -(-len(shown) // columns)
    figure = canvas(max(3.4 * columns, 7), 4.4 * bands + 1)
    axes = figure.subplots(2 * bands, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    for place, (name, group) in enumerate(shown):
        band, column = divmod(place, columns)
        for row, (short, words) in enumerate(MEASURES):
            axis = axes[2 * band + row][column]
            axis.set_visible(True)
            _fidelity_lines(axis, group, short, definition)
            axis.set_title(textwrap.fill(f"{name}: {words}", 46), fontsize=8.5)
            axis.set_xlabel("sparsity" if row else "", fontsize=8)
    _legend(figure, labels_of(records))
    figure.suptitle(textwrap.fill(title, int(13 * figure.get_figwidth())), fontsize=9.5)
    figure.tight_layout(rect=(0, 0.75 / figure.get_figheight(), 1, 1))
    return figure


def _fidelity_lines(axis, group, short, definition):
    columns = [fidelity_column(short, definition, sparsity) for sparsity in SPARSITIES]
    for place, (method, mine) in enumerate(group.groupby("method", sort=False)):
        if mine[columns].notna().to_numpy().all():
            axis.plot(SPARSITIES, mine[columns].mean(), marker="o", markersize=2.5, **style(str(method), place))
    axis.set_xticks(SPARSITIES)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7.5)


def labels_of(records):
    """Return {method: label} without the number of samples, which differs between data sets."""
    return records.groupby("method", sort=False)["label"].first().str.replace(r" \d+$", "", regex=True)


def _legend(figure, labels):
    handles = [
        Line2D([], [], label=label, **style(str(method), place)) for place, (method, label) in enumerate(labels.items())
    ]
    figure.legend(handles=handles, loc="lower center", ncols=_legend_columns(figure, labels), fontsize=8, frameon=False)


def _legend_columns(figure, labels):
    # a letter of this size takes about .065 inches, a line and the gaps about .7
    longest = max(len(label) for label in labels)
    return max(2, int(figure.get_figwidth() / (0.7 + 0.065 * longest)))


def radars(tables, labels, title):
    """Draw Figure 1: a radar per (title, table of methods x data sets, logarithmic). The rim is the best method."""
    figure = canvas(5.2 * len(tables), 5.6)
    for place, (name, table, logarithmic) in enumerate(tables):
        axis = figure.add_subplot(1, len(tables), place + 1, projection="polar")
        share = _log_share(table) if logarithmic else (table / table.max()).clip(lower=0)
        angles = np.linspace(0, 2 * np.pi, len(table.columns), endpoint=False)
        round_trip = np.append(angles, angles[:1])
        for row, (method, values) in enumerate(share.iterrows()):
            radii = values.fillna(0).to_numpy()
            axis.plot(round_trip, np.append(radii, radii[:1]), **style(str(method), row))
        axis.set_xticks(
            angles,
            [f"{textwrap.fill(str(column), 12)}\n{_number(table[column].max())}" for column in table.columns],
            fontsize=8,
        )
        axis.tick_params(axis="x", pad=12)
        axis.set_yticks([0.25, 0.5, 0.75, 1.0], [""] * 4)
        axis.set_ylim(0, 1.02)
        axis.set_title(name, fontsize=9, pad=22)
    _legend(figure, labels.loc[tables[0][1].index])
    figure.suptitle(title, fontsize=9.5)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    return figure


def _number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _log_share(table):
    """Return 1 for the best. Each factor of ten costs a fifth of the way to the centre."""
    return (1 + (table / table.max()).map(np.log10) / 5).clip(lower=0)


def scatters(panels, title):
    """Draw Figure 2: fidelity against a column, for each (title, column, pairs). Filled if J contains the target."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = canvas(3.5 * columns, 3.1 * rows + 0.7)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (name, column, pairs) in zip(axes.flat, panels, strict=False):
        for holds, colour in ((False, "white"), (True, "#D55E00")):
            some = pairs[pairs["holds target"] == holds]
            axis.scatter(some[column], some["fidelity+"], s=14, c=colour, edgecolors="#D55E00", linewidths=0.7)
        axis.set_title(name, fontsize=8.5)
        axis.set_xlabel(column, fontsize=8)
        axis.set_ylabel("Fidelity+", fontsize=8)
        axis.tick_params(labelsize=7.5)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=9.5)
    figure.tight_layout()
    return figure
