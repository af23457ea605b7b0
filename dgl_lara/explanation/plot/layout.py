"""Positions of nodes, on rings of hops around a target or by forces. Deterministic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import networkx as nx
import numpy as np

NODE_GAP = 0.62  # between neighbours on a ring. Rings are at least 1 apart
END_DISTANCE = 0.5  # of both ends of a link from the centre
MAX_TRIALS = 250  # arrangements of the first ring
EVEN_RING_NODES = 12  # of the first ring, up to which distances may differ
MIN_OPEN_ANGLE = 2 * np.pi / 3  # without nodes, for an open circle
OPEN_END = 0.65  # by which an open circle continues behind its last nodes, with room for a label
LABEL_DISTANCE = 0.62  # of a label from the nodes of its ring
OUTER_DISTANCE = 0.5  # of a label outside a full ring
NUM_RANDOM_STARTS = 4  # for graphs that are still tangled
MAX_KAMADA_KAWAI_NODES = 200  # distances between all pairs of more take too long


def rings(hop: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(num_nodes, 2) Place nodes at hop h on ring h around the target, with few crossings and short edges.

    The order on the first ring is searched. Every other node is near the nodes through which it reaches the target.
    """
    edges = _undirected(edges)
    order = _chain(np.flatnonzero(hop == 1), edges)
    best = _place(order, hop, edges)
    cost, trials, improved = _cost(best, edges), 0, True
    while improved and trials < MAX_TRIALS:
        improved = False
        for arc in _arcs(len(order)):
            turned = order.copy()
            turned[arc] = order[arc[::-1]]
            position = _place(turned, hop, edges)
            new_cost, trials = _cost(position, edges), trials + 1
            if new_cost < cost - 1e-9:
                order, best, cost, improved = turned, position, new_cost, True
            if trials == MAX_TRIALS:
                break
    return best


def arcs(position: np.ndarray, hop: np.ndarray) -> list[np.ndarray]:
    """Return a line (points, 2) for each hop, a circle or the part of it with nodes."""
    lines = []
    for ring in range(1, int(hop.max(initial=0)) + 1):
        x, y = position[hop == ring].T
        radius, angle = float(np.hypot(x, y).mean()), np.sort(np.arctan2(y, x))
        gaps = np.diff(angle, append=angle[0] + 2 * np.pi)
        last, margin = int(gaps.argmax()), OPEN_END / radius
        start, end = 0.0, 2 * np.pi
        if gaps[last] > max(MIN_OPEN_ANGLE, 2 * margin):
            start, end = angle[(last + 1) % len(angle)] - margin, angle[last] + margin
            end += 2 * np.pi if end < start else 0
        angles = np.linspace(start, end, 2 + int(24 * (end - start)))
        lines.append(radius * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    return lines


def free_positions(
    position: np.ndarray, hop: np.ndarray, lines: list[np.ndarray], edges: np.ndarray
) -> list[np.ndarray]:
    """Return for each line of `arcs` the position (2,) of a label that covers nothing, outside if the ring is full."""
    along = np.linspace(0, 1, 9)[:, None, None]
    edge = (along * position[edges[:, 0]] + (1 - along) * position[edges[:, 1]]).reshape(-1, 2)
    positions: list[np.ndarray] = []
    for ring, line in enumerate(lines, start=1):
        taken = np.concatenate([position, *(one[None] for one in positions)])

        def room(points: np.ndarray, taken: np.ndarray = taken) -> np.ndarray:
            """Return the distance of points from nodes and labels, and a share of that from edges."""
            crossed = _nearest(points, edge) if len(edge) else np.ones(len(points))
            return _nearest(points, taken) + 0.3 * np.minimum(crossed, 0.5)

        outside = np.hypot(*position[hop == ring].T).max() + OUTER_DISTANCE
        outer = line * outside / np.hypot(*line.T)[:, None]
        best = line if _nearest(line, taken).max() >= LABEL_DISTANCE else outer
        positions.append(best[int(room(best).argmax())])
    return positions


def _nearest(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(num_points,) distance of each point from the nearest of the others."""
    return np.linalg.norm(points[:, None] - others[None], axis=2).min(axis=1)


def _undirected(edges: np.ndarray) -> np.ndarray:
    """Return each pair once, without self-loops."""
    pairs = np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1)
    return np.unique(pairs, axis=0) if len(pairs) else pairs.reshape(0, 2)


def _arcs(count: int) -> list[np.ndarray]:
    """Return the stretches of a ring that may be reversed."""
    return [(start + np.arange(size)) % count for size in (2, 3, 5, 8) if size < count for start in range(count)]


def _chain(nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the nodes in an order that keeps connected ones (an edge, common neighbours) together."""
    graph = nx.Graph(edges.tolist())
    graph.add_nodes_from(nodes.tolist())
    around = {node: set(graph[node]) for node in nodes.tolist()}
    remaining: list[int] = nodes.tolist()
    order: list[int] = []
    while remaining:
        last = around[order[-1]] | {order[-1]} if order else set()
        links = [2 * (node in last) + len(around[node] & last) for node in remaining]
        order.append(remaining.pop(int(np.argmax(links))))
    return np.array(order, dtype=int)


def _place(first: np.ndarray, hop: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the positions for an order of the first ring."""
    position = np.zeros((len(hop), 2))
    angle, radius = np.zeros(len(hop)), 0.0
    middle = np.flatnonzero(hop == 0)
    if len(middle) > 1:  # both ends of a link
        position[middle, 0] = np.linspace(-END_DISTANCE, END_DISTANCE, len(middle))
        angle[middle], radius = np.pi * np.linspace(-0.5, 0.5, len(middle)), END_DISTANCE
    below = [edges[hop[edges[:, 0]] < hop[edges[:, 1]]], edges[hop[edges[:, 0]] > hop[edges[:, 1]]][:, ::-1]]
    down = np.concatenate(below)  # (inner node, outer node)
    # a node of the first ring gets room for its outer neighbours
    room = 1 + 0.5 * np.minimum(np.bincount(down[hop[down[:, 1]] == 2, 0], minlength=len(hop))[first], 3)
    if len(first) > EVEN_RING_NODES:
        room[:] = 1
    for ring in range(1, int(hop.max(initial=0)) + 1):
        nodes = np.flatnonzero(hop == ring)
        rows = int(np.ceil(len(nodes) * NODE_GAP / (2 * np.pi * (radius + 4)))) or 1  # many nodes get several rows
        free = -len(nodes) % rows  # keeps the last from the first
        radius = max(radius + 1, (len(nodes) + free) * NODE_GAP / rows / (2 * np.pi))
        if ring == 1:
            nodes, angle[first] = first, 2 * np.pi * (room.cumsum() - room / 2) / (room.sum() + free)
            nearest = np.diff(angle[first], append=angle[first[0]] + 2 * np.pi).min()
            radius = max(radius, NODE_GAP / rows / nearest)
        else:
            nodes, angle[nodes] = _spread(
                nodes, angle, down, min(NODE_GAP / rows / radius, 2 * np.pi / (len(nodes) + free))
            )
        distance = radius + 0.75 * (np.arange(len(nodes)) % rows)
        position[nodes] = distance[:, None] * np.stack([np.sin(angle[nodes]), np.cos(angle[nodes])], axis=1)
        radius += 0.75 * (rows - 1)
    return position


def _spread(nodes: np.ndarray, angle: np.ndarray, down: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes in their order on a ring and their angles, near their inner neighbours and `gap` apart."""
    toward = np.zeros(len(angle), dtype=complex)
    np.add.at(toward, down[:, 1], np.exp(1j * angle[down[:, 0]]))
    wish = np.angle(toward[nodes]) % (2 * np.pi)
    order = np.argsort(wish, kind="stable")
    nodes, wish = nodes[order], wish[order]
    # cut the ring at its largest gap, then move the nodes as little as keeps the gap (isotonic regression)
    start = (int(np.argmax(np.diff(wish, append=wish[0] + 2 * np.pi))) + 1) % len(wish)
    nodes, wish = np.roll(nodes, -start), np.concatenate([wish[start:], wish[:start] + 2 * np.pi])
    steps = gap * np.arange(len(nodes))
    from scipy.optimize import isotonic_regression  # half a second, which only pictures need

    moved = isotonic_regression(wish - steps).x
    middle, room = (moved[0] + moved[-1]) / 2, max(2 * np.pi - gap * len(nodes), 0)
    return nodes, np.clip(moved, middle - room / 2, middle + room / 2) + steps


def _cost(position: np.ndarray, edges: np.ndarray) -> float:
    return crossings(position, edges) + 0.5 * float(_lengths(position, edges).sum())


def crossings(position: np.ndarray, edges: np.ndarray) -> int:
    """Return the number of pairs of edges that cross."""
    a, b = position[edges[:, 0]], position[edges[:, 1]]

    def side(p: np.ndarray) -> np.ndarray:
        """(num_edges, num_points) side of each edge on which a point lies."""
        across = b - a
        return np.sign(
            across[:, None, 0] * (p[None, :, 1] - a[:, None, 1]) - across[:, None, 1] * (p[None, :, 0] - a[:, None, 0])
        )

    split = side(a) * side(b) < 0
    return int((split & split.T).sum()) // 2


def forces(num_nodes: int, edges: np.ndarray, labels: Sequence[str] | None = None) -> np.ndarray:
    """(num_nodes, 2) Place the nodes of a graph without a target, unconnected parts in rows, the long side horizontal.

    RDKit draws molecules (`labels` are their atoms) if it is installed.
    """
    graph = nx.Graph(_undirected(edges).tolist())
    graph.add_nodes_from(range(num_nodes))
    parts = sorted((sorted(part) for part in nx.connected_components(graph)), key=lambda part: (-len(part), part))
    drawn = []
    for nodes in parts:
        inner = graph.subgraph(nodes)
        atoms = None if labels is None else [labels[node] for node in nodes]
        drawn.append(_lengthwise(_drawn_by_rdkit(atoms, inner, nodes) if atoms else None, inner, nodes))
    position = np.zeros((num_nodes, 2))
    for nodes, own, corner in zip(parts, drawn, _in_rows([np.ptp(own, axis=0) for own in drawn]), strict=True):
        position[nodes] = own - own.min(axis=0) + corner
    return position - (position.max(0) + position.min(0)) / 2


def _in_rows(sizes: list[np.ndarray]) -> list[tuple[float, float]]:
    """Return the lower left corners of boxes (width, height) in rows."""
    gap = 1.2
    area = sum((width + gap) * (height + gap) for width, height in sizes)
    max_width = max(max(width for width, _ in sizes), 1.5 * float(np.sqrt(area)))
    corners, x, top, low = [], 0.0, 0.0, 0.0
    for width, height in sizes:
        if x and x + width > max_width:
            x, top = 0.0, low - gap
        corners.append((x, top - height))
        x, low = x + width + gap, min(low, top - height)
    return corners


def _lengthwise(position: np.ndarray | None, graph: nx.Graph, nodes: list[int]) -> np.ndarray:
    """Turn positions so that the long side is horizontal, with edges of median length 1."""
    if len(nodes) == 1:
        return np.zeros((1, 2))
    if position is None:
        position = _untangled(graph, nodes)
    position = position - position.mean(0)
    _, _, axes = np.linalg.svd(position, full_matrices=False)
    turned = position @ axes.T
    turned *= np.where(turned[np.abs(turned).argmax(0), [0, 1]] < 0, -1, 1)  # svd leaves the signs open
    return turned / np.median(_lengths(turned, np.searchsorted(nodes, np.array(graph.edges))))


def _lengths(position: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.linalg.norm(position[edges[:, 0]] - position[edges[:, 1]], axis=1)


def _untangled(graph: nx.Graph, nodes: list[int]) -> np.ndarray:
    """Return the best Kamada-Kawai layout from several starts. A single one twists rings."""
    if len(nodes) > MAX_KAMADA_KAWAI_NODES:
        placed = nx.spring_layout(graph, seed=0, iterations=200)
        return np.array([placed[node] for node in nodes])
    starts: list[Callable] = [nx.circular_layout, nx.spectral_layout]
    starts += [nx.planar_layout] * nx.check_planarity(graph)[0]
    starts += [partial(nx.spring_layout, seed=seed) for seed in range(NUM_RANDOM_STARTS)]
    ends = np.searchsorted(nodes, np.array(graph.edges))
    tried: list[tuple[int, float, int, np.ndarray]] = []
    for start in starts:
        placed = nx.kamada_kawai_layout(graph, pos=start(graph))
        position = np.array([placed[node] for node in nodes])
        length = _lengths(position, ends)
        tried.append((crossings(position, ends), float(length.std() / length.mean()), len(tried), position))
        if tried[-1][0] == 0:
            break
    return min(tried)[-1]


def _drawn_by_rdkit(atoms: Sequence[str], graph: nx.Graph, nodes: list[int]) -> np.ndarray | None:
    """Return a chemist's positions, or None without RDKit. Bond orders are unknown, so all bonds are single."""
    try:
        from rdkit import Chem
        from rdkit.Chem import rdDepictor
    except ImportError:
        return None
    molecule = Chem.RWMol()
    index = {node: molecule.AddAtom(Chem.Atom(atom)) for node, atom in zip(nodes, atoms, strict=True)}
    for u, v in graph.edges:
        molecule.AddBond(index[u], index[v], Chem.BondType.SINGLE)
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    rdDepictor.Compute2DCoords(molecule, canonOrient=True)
    return np.array(molecule.GetConformer().GetPositions())[:, :2]
