"""A summary as a picture, with bars for groups and points for targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure, SubFigure

from dgl_lara._util.tables import shortened
from dgl_lara.explanation.plot.figure import AGAINST, FOR

if TYPE_CHECKING:
    from dgl_lara.explanation.summary import Summary, Swarm

MAX_BARS = 12  # of a panel
MAX_NAME_LETTERS = 20
VALUE_COLOURS = LinearSegmentedColormap.from_list("low-high", ["#3b6fb6", "#8a63a8", "#d1495b"])
SWARM_HEIGHT = 0.38  # largest distance of a point from its row
SWARM_BINS = 60  # points of one bin are spread vertically


def draw_summaries(summaries: Sequence[Summary]) -> Figure:
    """Draw one row for each player set, with one panel for each way to group players."""
    num_rows = [max(2, *(min(len(table), MAX_BARS) for table in one.groups)) for one in summaries]
    heights = [0.75 + 0.24 * rows for rows in num_rows]
    figure = Figure(figsize=(9, sum(heights) + 0.35), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(summaries[0].title, fontsize=9.5, x=0.01, ha="left")
    strips = figure.subfigures(len(summaries), 1, height_ratios=heights, squeeze=False).flat
    for one, strip, rows in zip(summaries, strips, num_rows, strict=True):
        panels = len(one.groups) + bool(one.swarm)
        axes = np.atleast_1d(strip.subplots(1, panels))
        for axis, table in zip(axes, one.groups, strict=False):
            _bars(axis, table, one.heading(table))
            axis.set(ylim=(rows - 0.4, -0.6))  # equal heights in all panels
        if one.swarm:
            _points(strip, axes[-1], one.swarm)
    handles = axes[0].get_legend_handles_labels()  # above all panels, since within one it would cover a bar
    figure.legend(*handles, fontsize=6.5, frameon=False, loc="outside upper right", ncols=2)
    return figure


def _bars(axis: Axes, table: pd.DataFrame, heading: str) -> None:
    shown = table.head(MAX_BARS)
    rows = np.arange(len(shown))
    axis.barh(rows, shown["for"], color=FOR, height=0.7, label="for")
    axis.barh(rows, shown["against"], left=shown["for"], color=AGAINST, height=0.7, label="against")
    for row, (ends, share) in enumerate(zip(shown["for"] + shown["against"], shown["share"], strict=True)):
        axis.annotate(f"{share:.0%}", (ends, row), (3, 0), textcoords="offset points", fontsize=6.5, va="center")
    axis.set_yticks(rows, [shortened(str(item), MAX_NAME_LETTERS) for item in shown["item"]], fontsize=7.5)
    axis.margins(x=0.16)
    _plain(axis, heading, "mean of Σ |score|, and its share")


def _points(strip: SubFigure, axis: Axes, swarm: Sequence[Swarm]) -> None:
    """Draw one point for each target, coloured by its own value of the feature (a beeswarm)."""
    axis.axvline(0, color="#b0b0b0", linewidth=0.8, zorder=0)
    span = max((float(np.abs(row.score).max(initial=0)) for row in swarm), default=0) or 1.0
    for position, row in enumerate(swarm):
        colours = "#808080" if row.value is None or len(np.unique(row.value)) < 2 else VALUE_COLOURS(_scaled(row.value))
        axis.scatter(row.score, position + spread(row.score / span), s=5, c=colours, linewidths=0, alpha=0.85)
    axis.set_yticks(range(len(swarm)), [shortened(row.name, MAX_NAME_LETTERS) for row in swarm], fontsize=7.5)
    axis.set(ylim=(len(swarm) - 0.4, -0.6))
    _plain(axis, "one point for each target", "score")
    bar = strip.colorbar(ScalarMappable(Normalize(0, 1), VALUE_COLOURS), ax=axis, fraction=0.03, pad=0.02, ticks=[0, 1])
    bar.ax.set_yticklabels(["low", "high"], fontsize=6.5)
    bar.set_label("its own value", fontsize=6.5, labelpad=-10)
    bar.outline.set_visible(False)


def spread(score: np.ndarray) -> np.ndarray:
    """Return the vertical offsets that separate points with similar scores."""
    bins = np.floor((score + 1) / 2 * SWARM_BINS).astype(int)
    order, offset = np.argsort(bins, kind="stable"), np.zeros(len(score))
    start = np.searchsorted(bins[order], bins[order])
    index = np.arange(len(score)) - start
    crowd = np.bincount(bins, minlength=1)[bins[order]]
    offset[order] = (index - (crowd - 1) / 2) / max(int(crowd.max(initial=1)), 12)
    return 2 * SWARM_HEIGHT * offset


def _scaled(value: np.ndarray) -> np.ndarray:
    """Return values from 0 (low) to 1 (high)."""
    low, high = np.percentile(value, [5, 95])
    if high <= low:  # nearly all are equal
        low, high = value.min(), value.max()
    return np.clip((value - low) / (high - low), 0, 1)


def _plain(axis: Axes, title: str, label: str) -> None:
    axis.set_title(title, fontsize=8.5, loc="left")
    axis.set_xlabel(label, fontsize=7.5)
    axis.tick_params(axis="x", labelsize=7)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
