"""Pictures, drawn without a screen."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

# Okabe-Ito: can be told apart with any colour vision
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
HIGHLIGHT = "#D55E00"


def fidelity_figure(table: pd.DataFrame, title: str) -> Figure:
    """Fidelity against sparsity, a line a method."""
    points = table[table["sparsity"] != "average"]
    definitions = list(dict.fromkeys(points["definition"]))
    figure, axes = plt.subplots(len(definitions), 2, figsize=(8, 3 * len(definitions)), squeeze=False)
    labels = {"paper": "paper's definition", "kept": "target kept"}
    for row, definition in enumerate(definitions):
        for column, (metric, better) in enumerate((("fidelity+", "higher"), ("fidelity-", "lower"))):
            axis = axes[row][column]
            for place, (method, mine) in enumerate(
                points[points["definition"] == definition].groupby("method", sort=False)
            ):
                colour = HIGHLIGHT if method == "lara" else COLOURS[place % len(COLOURS)]
                sparsity = mine["sparsity"].astype(float)
                axis.errorbar(
                    sparsity, mine[metric], mine[f"{metric} error"], label=method, color=colour, marker="o",
                    markersize=3, capsize=2,
                )  # fmt: skip
            axis.set_title(f"{metric.capitalize()}, {labels[definition]} ({better} is better)", fontsize=9)
            axis.set_xlabel("sparsity")
            axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    plt.close(figure)  # pyplot lets go of it; the figure itself stays
    return figure


def training_figure(history: pd.DataFrame) -> Figure:
    """Loss and validation agreement against the steps of training."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.6))
    for axis, column, label in zip(axes, ("loss", "agreement"), ("loss", "validation agreement (R²)"), strict=True):
        axis.plot(history["step"], history[column], color=HIGHLIGHT, marker="o", markersize=2)
        axis.set_title(label, fontsize=9)
        axis.set_xlabel("step")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yscale("log")
    figure.tight_layout()
    plt.close(figure)
    return figure
