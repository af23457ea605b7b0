"""Players without a place in the graph, the columns of the features, as bars."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dgl_lara._util.tables import shortened
from dgl_lara.explanation.plot.figure import AGAINST, FOR, scale_label, wrapped, write_texts
from dgl_lara.explanation.plot.scene import Bars

WIDTH_INCHES = 6.2
MAX_NAME_LETTERS = 28


def draw_bars(bars: Bars, title: str, explained_class: str, value: str, meaning: str) -> Figure:
    """Draw one bar for each player, to the right if it counts for the class."""
    heading, notes = wrapped(title, [bars.rest], meaning, WIDTH_INCHES)
    above, below, tall = 0.25 + 0.17 * len(heading), 0.6 + 0.15 * len(notes), max(0.22 * len(bars.index), 0.6)
    width, height = WIDTH_INCHES, tall + above + below
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    labels = [
        f"{shortened(name, MAX_NAME_LETTERS)}{f'  ({detail})' if detail else ''}"
        for name, detail in zip(bars.names, bars.details, strict=True)
    ]
    left = 0.3 + 0.075 * max(map(len, labels), default=0)
    axis = figure.add_axes((left / width, below / height, (width - left - 0.25) / width, tall / height))
    rows = np.arange(len(bars.index))
    axis.barh(rows, bars.score, color=np.where(bars.score < 0, AGAINST, FOR).tolist(), height=0.72)
    for row, score in zip(rows, bars.score, strict=True):
        axis.annotate(
            f"{score:+.3g}", (score, row), (3 if score >= 0 else -3, 0), textcoords="offset points", fontsize=6.5,
            va="center", ha="left" if score >= 0 else "right", color="#444444",
        )  # fmt: skip
    axis.axvline(0, color="#808080", linewidth=0.8)
    axis.set_yticks(rows, labels, fontsize=7.5)
    low, high = min(float(bars.score.min(initial=0)), 0), max(float(bars.score.max(initial=0)), 0)
    margin = 0.2 * (high - low or 1)
    axis.set(ylim=(len(rows) - 0.4, -0.6), xlim=(low - margin * (low < 0), high + margin))
    axis.tick_params(axis="x", labelsize=7)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.set_xlabel(scale_label(explained_class, value), fontsize=7.5)
    write_texts(figure, heading, notes)
    return figure
