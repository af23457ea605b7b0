"""Players that stand nowhere in a graph, as bars: the columns of the features."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dgl_lara._util.tables import shortened
from dgl_lara.explanation.plot.figure import AGAINST, FOR, explained
from dgl_lara.explanation.plot.scene import Bars
from dgl_lara.explanation.sentence import NOT_ADDITIVE

WIDE = 5.2  # inches, of the bars and their names
LONG = 28  # letters of a name


def draw_bars(bars: Bars, words: str, explained_class: str, value: str) -> Figure:
    """The figure: a bar a player, to the right where it speaks for the class."""
    title, notes = textwrap.wrap(words, int((WIDE + 1) * 13)), textwrap.wrap(bars.rest, int((WIDE + 1) * 15))
    if words:
        notes += textwrap.wrap(NOT_ADDITIVE.format(value).capitalize() + ".", int((WIDE + 1) * 15))
    above, below, tall = 0.25 + 0.17 * len(title), 0.6 + 0.15 * len(notes), max(0.22 * len(bars.place), 0.6)
    width, height = WIDE + 1, tall + above + below
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    labels = [
        f"{shortened(name, LONG)}{f'  ({about})' if about else ''}"
        for name, about in zip(bars.names, bars.about, strict=True)
    ]
    left = 0.3 + 0.075 * max(map(len, labels), default=0)
    axis = figure.add_axes((left / width, below / height, (width - left - 0.25) / width, tall / height))
    rows = np.arange(len(bars.place))
    axis.barh(rows, bars.score, color=np.where(bars.score < 0, AGAINST, FOR).tolist(), height=0.72)
    for row, score in zip(rows, bars.score, strict=True):
        axis.annotate(
            f"{score:+.3g}", (score, row), (3 if score >= 0 else -3, 0), textcoords="offset points", fontsize=6.5,
            va="center", ha="left" if score >= 0 else "right", color="#444444",
        )  # fmt: skip
    axis.axvline(0, color="#808080", linewidth=0.8)
    axis.set_yticks(rows, labels, fontsize=7.5)
    low, high = min(float(bars.score.min(initial=0)), 0), max(float(bars.score.max(initial=0)), 0)
    room = 0.2 * (high - low or 1)
    axis.set(ylim=(len(rows) - 0.4, -0.6), xlim=(low - room * (low < 0), high + room))
    axis.tick_params(axis="x", labelsize=7)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.set_xlabel(f"against  ←  {explained(explained_class, value)}  →  for", fontsize=7.5)
    figure.text(0.12 / width, 1 - 0.12 / height, "\n".join(title), fontsize=9.5, va="top", linespacing=1.25)
    figure.text(0.12 / width, 0.08 / height, "\n".join(notes), fontsize=7.5, va="bottom", color="#444444")
    return figure
