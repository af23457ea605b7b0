"""Curves of fidelity and of training, drawn without a screen."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

# Okabe-Ito: distinct for any colour vision
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
HIGHLIGHT = "#D55E00"


def fidelity_figure(table: pd.DataFrame, title: str) -> Figure:
    """Draw fidelity against sparsity, one line for each method."""
    points = table[table["sparsity"] != "average"]
    definitions = list(dict.fromkeys(points["definition"]))
    figure, axes = plt.subplots(len(definitions), 2, figsize=(8, 3 * len(definitions)), squeeze=False)
    labels = {"paper": "paper's definition", "kept": "target kept"}
    for band, definition in enumerate(definitions):
        for column, (metric, better) in enumerate((("fidelity+", "higher"), ("fidelity-", "lower"))):
            axis = axes[band][column]
            groups = points[points["definition"] == definition].groupby("method", sort=False)
            for number, (method, rows) in enumerate(groups):
                colour = HIGHLIGHT if method == "lara" else COLOURS[number % len(COLOURS)]
                sparsity = rows["sparsity"].astype(float)
                axis.errorbar(
                    sparsity, rows[metric], rows[f"{metric} error"], label=method, color=colour, marker="o",
                    markersize=3, capsize=2,
                )  # fmt: skip
            axis.set_title(f"{metric.capitalize()}, {labels[definition]} ({better} is better)", fontsize=9)
            axis.set_xlabel("sparsity")
            axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    plt.close(figure)  # pyplot forgets it, the figure remains
    return figure


def training_figure(history: pd.DataFrame) -> Figure:
    """Draw loss and validation agreement against the steps of training."""
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
