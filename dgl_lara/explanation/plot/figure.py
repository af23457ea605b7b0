"""A still picture of one explanation. Colour is the score, a ring marks the target, a green rim the ground truth."""

from __future__ import annotations

import html
import io
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, RegularPolygon

from dgl_lara._util.tables import shortened
from dgl_lara.explanation.plot.scene import CROWDED_EDGES, Scene, shapes_of

# Blue (against) and vermilion (for) differ for any colour vision. White is zero.
AGAINST, ZERO, FOR = "#2166ac", "#f7f7f7", "#c8501e"
EDGE_INCHES = 0.62
TRUTH = "#009E73"
INK = "#1a1a1a"
MAX_LETTERS_INSIDE = 6  # of a node
LETTER_WIDTH = 0.6 * 6 / 72 / EDGE_INCHES  # of a label next to a node, in edges
MAX_STEEP_SINE = 0.4  # from the vertical, up to which a label is above or below its node
DASHES = (2.2, 1.6)
MAX_MARK_LETTERS = 14
RING_GAP = 0.09  # between the target and the ring around it
COLOURS = LinearSegmentedColormap.from_list("against-for", [AGAINST, "#92c5de", ZERO, "#f4a582", FOR])
EDGE_COLOURS = LinearSegmentedColormap.from_list("lines", [AGAINST, "#8fb4d4", "#d2d2d2", "#e0a48b", FOR])  # no white
ARROW_BEND = 0.12  # of an arrow whose opposite is drawn too


def draw(scene: Scene, title: str, explained_class: str, value: str, meaning: str, removed: str = "") -> Figure:
    """Draw a scene. Everything is measured in inches, so nodes and letters keep their size."""
    outer_labels = _outer_labels(scene)
    low, high = (corner + margin for corner, margin in zip(_corners(scene, outer_labels), (-0.05, 0.05), strict=True))
    unit = float(min(EDGE_INCHES, 8.5 / (high[0] - low[0]), 7.5 / (high[1] - low[1])))  # of one edge
    legend = _legend_handles(scene)
    inner = np.maximum(unit * (high - low), (max(4.2, _length(legend) - 1), 1.8))
    heading, notes = wrapped(title, [scene.rest, removed], meaning, inner[0] + 1)
    above, below = 0.25 + 0.17 * len(heading), 0.35 + 0.15 * len(notes)
    width, height = inner[0] + 1.1, inner[1] + above + below
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axis = figure.add_axes((0.1 / width, below / height, inner[0] / width, inner[1] / height))
    axis.set(xlim=_around(low[0], high[0], inner[0] / unit), ylim=_around(low[1], high[1], inner[1] / unit))
    axis.set_axis_off()
    norm = Normalize(-scene.max_score, scene.max_score, clip=True)
    _draw_rings(axis, scene, unit)
    _draw_edges(axis, scene, norm, unit)
    _draw_nodes(axis, scene, norm, unit)
    for label in outer_labels:
        label.write(axis, 6 * unit / EDGE_INCHES)
    tall = min(inner[1] * 0.85, 3.2)
    side = figure.add_axes(
        ((inner[0] + 0.25) / width, (below + (inner[1] - tall) / 2) / height, 0.12 / width, tall / height)
    )
    _draw_scale(figure, side, scene, norm, scale_label(explained_class, value))
    write_texts(figure, heading, notes)
    if legend:
        figure.legend(
            handles=legend, loc="lower left", bbox_to_anchor=(0.06 / width, (below - 0.3) / height), ncols=len(legend),
            fontsize=7.5, frameon=False, handletextpad=0.2, columnspacing=1.2, borderaxespad=0, borderpad=0.2,
        )  # fmt: skip
    return figure


def _draw_scale(figure: Figure, axis: Axes, scene: Scene, norm: Normalize, label: str) -> None:
    clipped = {(True, False): "max", (False, True): "min", (False, False): "neither"}
    own = np.zeros(0) if scene.score is None else scene.score
    over, under = bool((own > scene.max_score).any()), bool((own < -scene.max_score).any())
    colours = COLOURS if scene.edge_score is None else EDGE_COLOURS
    bar = figure.colorbar(ScalarMappable(norm, colours), cax=axis, extend=clipped.get((over, under), "both"))
    bar.set_label(label, fontsize=7.5)
    bar.ax.tick_params(labelsize=7)


def wrapped(title: str, notes: list[str], meaning: str, inches: float) -> tuple[list[str], list[str]]:
    """Return lines of the title, and of the notes below a picture (with a title also what scores are)."""
    if title:
        notes = [*notes, meaning]
    lines = [line for note in notes for line in textwrap.wrap(note, int(inches * 15))]
    return textwrap.wrap(title, int(inches * 13)), lines


def write_texts(figure: Figure, title: list[str], notes: list[str]) -> None:
    """Write the title at the top and notes at the bottom."""
    width, height = figure.get_size_inches()
    figure.text(0.12 / width, 1 - 0.12 / height, "\n".join(title), fontsize=9.5, va="top", linespacing=1.25)
    figure.text(0.12 / width, 0.08 / height, "\n".join(notes), fontsize=7.5, va="bottom", color="#444444")


def scale_label(explained_class: str, value: str) -> str:
    """Return the label of a scale of scores."""
    # a single output has no class
    return f"against  ←  {f'class {explained_class} ({value})' if explained_class else value}  →  for"


def _around(low: float, high: float, length: float) -> tuple[float, float]:
    middle = (low + high) / 2
    return middle - length / 2, middle + length / 2


def _draw_rings(axis: Axes, scene: Scene, unit: float) -> None:
    """Draw one faint line with a label for each hop."""
    for line in scene.hop_lines:
        axis.plot(*line.T, color="#e3e3e3", linewidth=0.8, zorder=0)
    style: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 0.5}
    style["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for (x, y), text in scene.hop_labels:
        axis.text(x, y, text, fontsize=6 * unit / EDGE_INCHES, color="#777777", **style)


def _radii(scene: Scene) -> np.ndarray:
    """Return the radii of nodes. Strong players are larger, for prints without colour."""
    return 0.30 * (0.75 + 0.25 * np.sqrt(scene.strength))


def _draw_edges(axis: Axes, scene: Scene, norm: Normalize, unit: float) -> None:
    lines, scale = scene.position[scene.edges], unit / EDGE_INCHES
    width = np.full(len(lines), (2.2 if scene.molecule else 1.0) * scale)
    alpha = np.full(len(lines), 1.0 if len(lines) < CROWDED_EDGES else 0.55)  # many edges are fainter
    near = np.isin(scene.edges, scene.targets).any(axis=1) | (scene.hop is None)
    colours = np.where(near, "#808080", "#b8b8b8").astype(object)
    order = np.full(len(lines), 1.0)
    alpha[scene.is_faint], width[scene.is_faint] = 0.22, 0.5 * scale
    if scene.edge_score is not None:
        strength = np.minimum(np.abs(scene.edge_score) / scene.max_score, 1)
        width = (0.7 + (4.0 if len(lines) < CROWDED_EDGES else 2.2) * strength) * scale
        alpha = np.where(_is_player(scene), 1.0, 0.35)
        colours = np.array([to_hex(EDGE_COLOURS(norm(score))) for score in scene.edge_score], dtype=object)
        order = 1 + 0.9 * strength  # the strongest lie on top
    radii, both = _radii(scene), {(int(u), int(v)) for u, v in scene.edges}
    straight = ~scene.one_way
    rows = np.flatnonzero(straight)[np.argsort(order[straight], kind="stable")]
    if len(rows):
        style: dict[str, Any] = {"colors": list(colours[rows]), "linewidths": width[rows], "alpha": alpha[rows]}
        axis.add_collection(LineCollection(list(lines[rows]), zorder=1, capstyle="round", **style))
    for row in np.flatnonzero(scene.one_way):
        start, end = lines[row]
        source, sink = scene.edges[row]
        direction = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
        gap = RING_GAP if sink in scene.targets else 0.0
        axis.add_patch(
            FancyArrowPatch(
                start + direction * radii[source],
                end - direction * (radii[sink] + gap + 0.02),
                arrowstyle="-|>",
                connectionstyle=f"arc3,rad={ARROW_BEND if (int(sink), int(source)) in both else 0}",
                mutation_scale=9 * scale,
                color=colours[row],
                linewidth=0.8 * width[row],
                alpha=alpha[row],
                shrinkA=0,
                shrinkB=0,
                zorder=order[row],
            )  # fmt: skip
        )


def _is_player(scene: Scene) -> np.ndarray:
    assert scene.edge_player is not None
    return scene.edge_player >= 0


def _draw_nodes(axis: Axes, scene: Scene, norm: Normalize, unit: float) -> None:
    radii = _radii(scene)
    for row, (x, y) in enumerate(scene.position):
        true, target = scene.truth is not None and scene.truth[row], row in scene.targets
        rim: dict[str, Any] = {"edgecolor": "#666666", "linewidth": 0.6}
        if true:
            rim = {"edgecolor": TRUTH, "linewidth": 2.4}
        if scene.other_class is not None and scene.other_class[row]:
            rim = {**rim, "edgecolor": TRUTH if true else INK, "linestyle": (0, DASHES)}
            rim["linewidth"] = max(rim["linewidth"], 0.9)
        filled = ZERO if scene.score is None else COLOURS(norm(scene.score[row]))
        shape = shapes_of(scene).get(scene.node_types[row], 0) if scene.node_types else 0
        axis.add_patch(_outline(shape, x, y, radii[row], facecolor=filled, zorder=2, **rim))
        if target:
            ring = {"fill": False, "edgecolor": INK, "linewidth": 1.8, "zorder": 2}
            axis.add_patch(_outline(shape, x, y, radii[row] + RING_GAP, **ring))
        if _fits_inside(scene.marks[row]):
            _write_inside(axis, scene, row, radii[row], unit)


# Sides, turn and size of each shape after the circle. All look equally large.
POLYGONS = [(4, 0.7854, 1.2), (3, 0.0, 1.35), (4, 0.0, 1.25), (5, 0.0, 1.1), (6, 0.5236, 1.05), (3, 3.1416, 1.35)]
MARKERS = ["o", "s", "^", "D", "p", "h", "v"]  # these shapes in a legend


def _size(shape: int) -> float:
    return POLYGONS[(shape - 1) % len(POLYGONS)][2] if shape else 1.0


def _outline(shape: int, x: float, y: float, radius: float, **style: Any) -> Circle | RegularPolygon:
    if shape == 0:
        return Circle((x, y), radius, **style)
    sides, turn, scale = POLYGONS[(shape - 1) % len(POLYGONS)]
    return RegularPolygon((x, y), sides, radius=radius * scale, orientation=turn, **style)


def _fits_inside(mark: str) -> bool:
    return len(mark) <= MAX_LETTERS_INSIDE


def _write_inside(axis: Axes, scene: Scene, row: int, radius: float, unit: float) -> None:
    mark, (x, y) = scene.marks[row], scene.position[row]
    if not mark:
        return
    fitting = 2 * radius * unit * 72 * 0.9 / (0.6 * len(mark))
    dark = scene.strength[row] > 0.7
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "color": "white" if dark else INK}
    axis.text(x, y, mark, fontsize=min(7.5 * unit / EDGE_INCHES, fitting), zorder=3, **style)


@dataclass(frozen=True)
class _Label:
    """A mark next to a node that is too small for it, turned if it would cover the next one."""

    text: str
    start: np.ndarray  # (2,)
    direction: np.ndarray  # (2,) away from the target
    steep: bool  # above or below its node
    turned: bool

    def write(self, axis: Axes, size: float) -> None:
        style: dict[str, Any] = {"ha": "left" if self.direction[0] > 0 else "right", "va": "center"}
        if self.turned:
            upward = self.direction[1] > 0
            style = {"ha": "left" if upward else "right", "va": "center", "rotation": 90, "rotation_mode": "anchor"}
        elif self.steep:
            style = {"ha": "center", "va": "bottom" if self.direction[1] > 0 else "top"}
        style["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}  # edges pass below
        axis.text(self.start[0], self.start[1], self.text, fontsize=size, zorder=3, color=INK, **style)

    @property
    def room(self) -> np.ndarray:
        """(2, 2) two opposite corners of what it covers."""
        length = LETTER_WIDTH * len(self.text)
        if self.turned:
            return np.array([self.start - (0.1, 0), self.start + (0.1, np.sign(self.direction[1]) * length)])
        if self.steep:
            return np.array([self.start - (length / 2, 0), self.start + (length / 2, np.sign(self.direction[1]) * 0.2)])
        return np.array([self.start - (0, 0.1), self.start + (np.sign(self.direction[0]) * length, 0.1)])


def _outer_labels(scene: Scene) -> list[_Label]:
    labels, radii = [], _radii(scene)
    for row, mark in enumerate(scene.marks):
        is_centre = row == scene.target == scene.targets[-1]  # other nodes surround it, so the legend names it
        if _fits_inside(mark) or is_centre:
            continue
        centre, text = scene.position[row], shortened(mark, MAX_MARK_LETTERS)
        direction = centre / (np.hypot(*centre) or 1) if scene.hop is not None else np.zeros(2)
        steep = bool(abs(direction[0]) < MAX_STEEP_SINE)
        if steep:
            direction = np.array([0.0, 1.0 if direction[1] > 0 else -1.0])
        near = np.abs(np.delete(scene.position, row, axis=0) - centre) < (LETTER_WIDTH * len(text), 0.5)
        shape = shapes_of(scene)[scene.node_types[row]] if scene.node_types else 0
        start = centre + direction * (radii[row] * _size(shape) + 0.06 + RING_GAP * (row in scene.targets))
        labels.append(_Label(text, start, direction, steep, turned=steep and bool(near.all(axis=1).any())))
    return labels


def _corners(scene: Scene, labels: list[_Label]) -> tuple[np.ndarray, np.ndarray]:
    """Return two opposite corners of everything that is drawn."""
    points = np.concatenate([scene.bounds, *(label.room for label in labels)])
    return points.min(axis=0), points.max(axis=0)


def _length(legend: list[Line2D]) -> float:
    """Return the inches that a line of these entries takes."""
    return sum(0.45 + 0.062 * len(str(handle.get_label())) for handle in legend)


def _legend_handles(scene: Scene) -> list[Line2D]:
    entries: list[tuple[str, dict[str, Any]]] = []
    if scene.target is not None:
        mark = scene.marks[scene.target]
        own = (
            "target" if _fits_inside(mark) or len(scene.targets) > 1 else f"target {shortened(mark, MAX_MARK_LETTERS)}"
        )
        own += "" if scene.score is None else f", its own score {scene.score[scene.target]:+.2f}"
        entries.append((own, {"markeredgecolor": INK, "markeredgewidth": 1.8}))
    if scene.truth is not None and scene.truth.any():
        entries.append(("ground truth", {"markeredgecolor": TRUTH, "markeredgewidth": 2.2}))
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=7, markerfacecolor="white", label=label, **style)
        for label, style in entries
    ]
    for name, shape in shapes_of(scene).items():
        marker: dict[str, Any] = {"marker": MARKERS[shape % len(MARKERS)], "markersize": 8, "linestyle": ""}
        handles.append(Line2D([], [], markeredgecolor="#666666", markerfacecolor=ZERO, label=name, **marker))
    if scene.other_class is not None and scene.other_class.any():
        label = f"dashed: another class than {shortened(scene.class_name, 30)}"
        handles.append(Line2D([], [], color=INK, linewidth=1.1, linestyle=(0, DASHES), label=label))
    return handles


def write(figure: Figure, path: Path, ending: str) -> None:
    """Write a figure as .png, .svg or .pdf. Equal figures give equal bytes, without dates."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending, {})
    drawn = io.BytesIO()  # on a full disk matplotlib cannot close a file that it opened itself
    with matplotlib.rc_context({"svg.hashsalt": "dgl-lara", "svg.fonttype": "none"}):
        figure.savefig(drawn, format=ending[1:], dpi=160, metadata=metadata, facecolor="white")
    path.write_bytes(drawn.getvalue())


def inline(figure: Figure, label: str) -> str:
    """Return an <svg> element for a page, with a label for screen readers."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": label, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None}, facecolor="white")
    svg = re.sub(r"<metadata>.*?</metadata>", "", text.getvalue()[text.getvalue().index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' id="[a-z]+(?:\dd)?_\d+"', "", svg)  # matplotlib's names repeat from figure to figure
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
