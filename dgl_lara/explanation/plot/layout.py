"""Where to draw nodes. Rings of hops around a target, or forces for a graph without one. Deterministic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import networkx as nx
import numpy as np

GAP = 0.62  # between neighbours on a ring; rings lie at least 1 apart
APART = 0.5  # of the ends of a link from the middle
TRIALS = 250  # arrangements of the first ring that are compared
EVENLY_FROM = 12  # nodes on the first ring
WIDE = 2 * np.pi / 3  # a stretch of a ring without nodes from which on its circle is left open
BEYOND = 0.65  # by which an open circle goes on behind its last nodes: a word finds room there
CLEAR, BESIDE = 0.62, 0.5  # of a word from the nodes of its ring, on the line; of its middle where it stands outside
SPRINGS = 4  # random starts, for what is still tangled
FORCES_UP_TO = 200  # nodes; beyond, distances between all pairs take too long


def rings(hop: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(num_nodes, 2): hop h on ring h, the target in the middle.

    The order on the first ring is searched for few crossings and short edges; every other node stands as near as it
    can to the nodes through which it reaches the target.
    """
    edges = _undirected(edges)
    order = _chain(np.flatnonzero(hop == 1), edges)
    best = _place(order, hop, edges)
    cost, trials, improved = _cost(best, edges), 0, True
    while improved and trials < TRIALS:
        improved = False
        for arc in _arcs(len(order)):
            turned = order.copy()
            turned[arc] = order[arc[::-1]]
            position = _place(turned, hop, edges)
            now, trials = _cost(position, edges), trials + 1
            if now < cost - 1e-9:
                order, best, cost, improved = turned, position, now, True
            if trials == TRIALS:
                break
    return best


def arcs(position: np.ndarray, hop: np.ndarray) -> list[np.ndarray]:
    """One line (points, 2) a hop, to read distances from: a circle, or as much of it as there are nodes on it."""
    lines = []
    for ring in range(1, int(hop.max(initial=0)) + 1):
        x, y = position[hop == ring].T
        radius, angle = float(np.hypot(x, y).mean()), np.sort(np.arctan2(y, x))
        gaps = np.diff(angle, append=angle[0] + 2 * np.pi)
        last, beyond = int(gaps.argmax()), BEYOND / radius
        start, end = 0.0, 2 * np.pi
        if gaps[last] > max(WIDE, 2 * beyond):
            start, end = angle[(last + 1) % len(angle)] - beyond, angle[last] + beyond
            end += 2 * np.pi if end < start else 0
        way = np.linspace(start, end, 2 + int(24 * (end - start)))
        lines.append(radius * np.stack([np.cos(way), np.sin(way)], axis=1))
    return lines


def free_places(position: np.ndarray, hop: np.ndarray, lines: list[np.ndarray], edges: np.ndarray) -> list[np.ndarray]:
    """(2,) one a line of `arcs`: where a word on it covers nothing; outside of a ring that is full, where the next
    begins."""
    along = np.linspace(0, 1, 9)[:, None, None]
    edge = (along * position[edges[:, 0]] + (1 - along) * position[edges[:, 1]]).reshape(-1, 2)
    places: list[np.ndarray] = []
    for ring, line in enumerate(lines, start=1):
        taken = np.concatenate([position, *(place[None] for place in places)])

        def room(points: np.ndarray, taken: np.ndarray = taken) -> np.ndarray:
            """How far each is from the nearest node and word, and a little of how far from an edge."""
            crossed = _nearest(points, edge) if len(edge) else np.ones(len(points))
            return _nearest(points, taken) + 0.3 * np.minimum(crossed, 0.5)

        outside = np.hypot(*position[hop == ring].T).max() + BESIDE
        beside = line * outside / np.hypot(*line.T)[:, None]
        best = line if _nearest(line, taken).max() >= CLEAR else beside
        places.append(best[int(room(best).argmax())])
    return places


def _nearest(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(num_points,) the distance of each from the nearest of the others."""
    return np.linalg.norm(points[:, None] - others[None], axis=2).min(axis=1)


def _undirected(edges: np.ndarray) -> np.ndarray:
    """Each pair once, without loops."""
    pairs = np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1)
    return np.unique(pairs, axis=0) if len(pairs) else pairs.reshape(0, 2)


def _arcs(count: int) -> list[np.ndarray]:
    """The stretches of a ring that may be turned round."""
    return [(start + np.arange(size)) % count for size in (2, 3, 5, 8) if size < count for start in range(count)]


def _chain(nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The nodes in an order that keeps strongly linked ones (an edge, common neighbours) together."""
    graph = nx.Graph(edges.tolist())
    graph.add_nodes_from(nodes.tolist())
    around = {node: set(graph[node]) for node in nodes.tolist()}
    left: list[int] = nodes.tolist()
    order: list[int] = []
    while left:
        last = around[order[-1]] | {order[-1]} if order else set()
        links = [2 * (node in last) + len(around[node] & last) for node in left]
        order.append(left.pop(int(np.argmax(links))))
    return np.array(order, dtype=int)


def _place(first: np.ndarray, hop: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Positions for a given order of the first ring."""
    position = np.zeros((len(hop), 2))
    angle, radius = np.zeros(len(hop)), 0.0
    middle = np.flatnonzero(hop == 0)
    if len(middle) > 1:  # both ends of a link stand side by side
        position[middle, 0] = np.linspace(-APART, APART, len(middle))
        angle[middle], radius = np.pi * np.linspace(-0.5, 0.5, len(middle)), APART
    below = [edges[hop[edges[:, 0]] < hop[edges[:, 1]]], edges[hop[edges[:, 0]] > hop[edges[:, 1]]][:, ::-1]]
    down = np.concatenate(below)  # (inner node, outer node)
    # a node of the first ring gets room for what hangs on it
    room = 1 + 0.5 * np.minimum(np.bincount(down[hop[down[:, 1]] == 2, 0], minlength=len(hop))[first], 3)
    if len(first) > EVENLY_FROM:
        room[:] = 1
    for ring in range(1, int(hop.max(initial=0)) + 1):
        nodes = np.flatnonzero(hop == ring)
        rows = int(np.ceil(len(nodes) * GAP / (2 * np.pi * (radius + 4)))) or 1  # a crowd stands in several rows
        free = -len(nodes) % rows  # so that the last does not stand beside the first
        radius = max(radius + 1, (len(nodes) + free) * GAP / rows / (2 * np.pi))
        if ring == 1:
            nodes, angle[first] = first, 2 * np.pi * (room.cumsum() - room / 2) / (room.sum() + free)
            nearest = np.diff(angle[first], append=angle[first[0]] + 2 * np.pi).min()
            radius = max(radius, GAP / rows / nearest)
        else:
            nodes, angle[nodes] = _spread(nodes, angle, down, min(GAP / rows / radius, 2 * np.pi / (len(nodes) + free)))
        distance = radius + 0.75 * (np.arange(len(nodes)) % rows)
        position[nodes] = distance[:, None] * np.stack([np.sin(angle[nodes]), np.cos(angle[nodes])], axis=1)
        radius += 0.75 * (rows - 1)
    return position


def _spread(nodes: np.ndarray, angle: np.ndarray, down: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """(nodes in their order on the ring, their angles): each towards the mean of its inner neighbours, `gap` apart; the
    last keeps it from the first."""
    toward = np.zeros(len(angle), dtype=complex)
    np.add.at(toward, down[:, 1], np.exp(1j * angle[down[:, 0]]))
    wish = np.angle(toward[nodes]) % (2 * np.pi)
    order = np.argsort(wish, kind="stable")
    nodes, wish = nodes[order], wish[order]
    # cut the ring where it is emptiest, then move the nodes as little as keeps the gap (isotonic regression)
    start = (int(np.argmax(np.diff(wish, append=wish[0] + 2 * np.pi))) + 1) % len(wish)
    nodes, wish = np.roll(nodes, -start), np.concatenate([wish[start:], wish[:start] + 2 * np.pi])
    steps = gap * np.arange(len(nodes))
    from scipy.optimize import isotonic_regression  # half a second, which only pictures need

    moved = isotonic_regression(wish - steps).x
    middle, room = (moved[0] + moved[-1]) / 2, max(2 * np.pi - gap * len(nodes), 0)
    return nodes, np.clip(moved, middle - room / 2, middle + room / 2) + steps


def _cost(position: np.ndarray, edges: np.ndarray) -> float:
    length = np.linalg.norm(position[edges[:, 0]] - position[edges[:, 1]], axis=1)
    return crossings(position, edges) + 0.5 * float(length.sum())


def crossings(position: np.ndarray, edges: np.ndarray) -> int:
    """How many pairs of edges without a common end cross."""
    a, b = position[edges[:, 0]], position[edges[:, 1]]

    def side(p: np.ndarray) -> np.ndarray:
        """(num_edges, num_points): on which side of each edge a point lies."""
        across = b - a
        return np.sign(
            across[:, None, 0] * (p[None, :, 1] - a[:, None, 1]) - across[:, None, 1] * (p[None, :, 0] - a[:, None, 0])
        )

    split = side(a) * side(b) < 0
    return int((split & split.T).sum()) // 2


def forces(count: int, edges: np.ndarray, labels: Sequence[str] | None = None) -> np.ndarray:
    """(num_nodes, 2) for a graph without a target: edges about one unit long, the long side horizontal.

    Molecules come from RDKit where it is installed (labels: their atoms). Unconnected parts stand in rows.
    """
    graph = nx.Graph(_undirected(edges).tolist())
    graph.add_nodes_from(range(count))
    parts = [sorted(part) for part in nx.connected_components(graph)]
    parts.sort(key=lambda part: (-len(part), part))
    drawn = []
    for nodes in parts:
        inner = graph.subgraph(nodes)
        atoms = None if labels is None else [labels[node] for node in nodes]
        drawn.append(_lengthwise(_drawn_by_rdkit(atoms, inner, nodes) if atoms else None, inner, nodes))
    position = np.zeros((count, 2))
    for nodes, own, corner in zip(parts, drawn, _in_rows([np.ptp(own, axis=0) for own in drawn]), strict=True):
        position[nodes] = own - own.min(axis=0) + corner
    return position - (position.max(0) + position.min(0)) / 2


def _in_rows(sizes: list[np.ndarray]) -> list[tuple[float, float]]:
    """Lower left corners of boxes (width, height) set one after the other into rows, the largest first."""
    apart = 1.2
    area = sum((width + apart) * (height + apart) for width, height in sizes)
    wide = max(max(width for width, _ in sizes), 1.5 * float(np.sqrt(area)))
    corners, x, top, low = [], 0.0, 0.0, 0.0
    for width, height in sizes:
        if x and x + width > wide:
            x, top = 0.0, low - apart
        corners.append((x, top - height))
        x, low = x + width + apart, min(low, top - height)
    return corners


def _lengthwise(given: np.ndarray | None, graph: nx.Graph, nodes: list[int]) -> np.ndarray:
    if len(nodes) == 1:
        return np.zeros((1, 2))
    if given is None:
        given = _untangled(graph, nodes)
    given = given - given.mean(0)
    _, _, axes = np.linalg.svd(given, full_matrices=False)
    turned = given @ axes.T
    turned *= np.where(turned[np.abs(turned).argmax(0), [0, 1]] < 0, -1, 1)  # svd leaves the signs open
    ends = np.searchsorted(nodes, np.array(graph.edges))
    return turned / np.median(np.linalg.norm(turned[ends[:, 0]] - turned[ends[:, 1]], axis=1))


def _untangled(graph: nx.Graph, nodes: list[int]) -> np.ndarray:
    """Springs between all pairs (Kamada and Kawai) from several starts: from one alone, rings come out twisted."""
    if len(nodes) > FORCES_UP_TO:
        placed = nx.spring_layout(graph, seed=0, iterations=200)
        return np.array([placed[node] for node in nodes])
    starts: list[Callable] = [nx.circular_layout, nx.spectral_layout]
    starts += [nx.planar_layout] * nx.check_planarity(graph)[0]
    starts += [partial(nx.spring_layout, seed=seed) for seed in range(SPRINGS)]
    ends = np.searchsorted(nodes, np.array(graph.edges))
    tried: list[tuple[int, float, int, np.ndarray]] = []
    for start in starts:
        placed = nx.kamada_kawai_layout(graph, pos=start(graph))
        position = np.array([placed[node] for node in nodes])
        length = np.linalg.norm(position[ends[:, 0]] - position[ends[:, 1]], axis=1)
        tried.append((crossings(position, ends), float(length.std() / length.mean()), len(tried), position))
        if tried[-1][0] == 0:
            break
    return min(tried)[-1]


def _drawn_by_rdkit(atoms: Sequence[str], graph: nx.Graph, nodes: list[int]) -> np.ndarray | None:
    """A chemist's coordinates; None where RDKit is not installed. Bond orders are unknown, so all bonds are single."""
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
