"""One explanation as one sentence.

"Node 512 is class 2 mostly because of its 1-hop neighbours 511 and 513; removing the top 5 neighbours lowers its
logit from 4.20 to -0.30." The removal is evaluated, never guessed from the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NAMED = 3  # at most so many players are named
REMOVED = 5  # and so many removed
NEGLIGIBLE = 1e-6  # of the largest score: counts as zero


@dataclass(frozen=True)
class Facts:
    """What the sentence is made of. Players come best first; the target itself is not among them."""

    task: str  # what the target is: "node", "graph"
    named_by_hop: bool  # players stand at hop distances
    target: int
    explained_class: int
    predicted_class: int
    value: str  # "logit", "probability", "log-odds"
    output: float  # that value on the untouched graph
    null: float  # and of nothing at all
    hops: int
    kind: str  # what a player is: "neighbour", "node", "atom"
    names: Sequence[str]
    hop: Sequence[int]
    score: Sequence[float]
    own: float  # score of the target itself; 0 for a graph
    without: Callable[[Sequence[int]], float]  # the value when the players at these places are removed


def sentence(facts: Facts) -> str:
    if not facts.score:
        return _alone(facts)
    if any(map(math.isnan, [*facts.score, facts.own])):
        return f"{_head(facts)}, but its scores are not numbers (NaN), so nothing can be said of why."
    largest = max(map(abs, [*facts.score, facts.own]))
    supporters = [place for place, score in enumerate(facts.score) if score > NEGLIGIBLE * largest]
    opponents = [place for place, score in enumerate(facts.score) if score < -NEGLIGIBLE * largest][::-1]
    if supporters:
        return f"{_because(facts, supporters, opponents)}; {_removal(facts, supporters, 'top {}')}."
    if opponents:
        itself = " because of itself," if facts.own > 0 else ""
        against = f"although nothing else speaks for it and {_listed(facts, opponents[:NAMED])} speak most against it"
        return f"{_head(facts)}{itself} {against}; {_removal(facts, opponents, '{} most adverse')}."
    return f"{_head(facts)} regardless of its {_count(len(facts.score), facts.kind)}: every score is 0."


def _head(facts: Facts) -> str:
    """Who is what; for a class that f does not predict, which class is asked about."""
    subject = f"{facts.task.capitalize()} {facts.target}"
    if facts.explained_class == facts.predicted_class:
        return f"{subject} is class {facts.explained_class}"
    return f"{subject} is class {facts.predicted_class}, and it would be class {facts.explained_class}"


def _alone(facts: Facts) -> str:
    values = f"{facts.value} {number(facts.output)}, against {number(facts.null)} for a node without features"
    reach = f"within {_count(facts.hops, 'hop')}"
    return f"{_head(facts)} by its own features alone: it has no neighbours {reach} ({values})."


def _because(facts: Facts, supporters: list[int], opponents: list[int]) -> str:
    total = sum(facts.score[place] for place in supporters)
    named, reached = 0, 0.0
    while named < min(NAMED, len(supporters)) and reached < total / 2:
        reached += facts.score[supporters[named]]
        named += 1
    last = facts.score[supporters[named - 1]]
    alike = sum(math.isclose(facts.score[place], last, rel_tol=1e-4) for place in supporters[named:])
    text = _listed(facts, supporters[:named], f"{alike} more that count{'s' * (alike == 1)} as much" if alike else "")
    itself = "itself, then of " if facts.own > total else ""
    text = f"{_head(facts)} mostly because of {itself}{text}"
    strongest = facts.score[supporters[0]]
    against = ["itself"] if -facts.own > strongest else []
    if opponents and -facts.score[opponents[0]] > strongest:
        against.append(_listed(facts, opponents[:1]))
    return f"{text}, in spite of {_and(against)}" if against else text


def _listed(facts: Facts, places: list[int], more: str = "") -> str:
    """'its 1-hop neighbours 511 and 513 and its 2-hop neighbour 9'; 'atoms N3 and O4'."""
    groups: dict[str, list[str]] = {}
    for place in sorted(places, key=lambda place: facts.hop[place]):
        kind = f"its {facts.hop[place]}-hop {facts.kind}" if facts.named_by_hop else facts.kind
        groups.setdefault(kind, []).append(facts.names[place])
    phrases = [f"{kind}{'s' * (len(names) > 1)} {_and(names)}" for kind, names in groups.items()]
    return _and([*phrases, *([more] if more else [])])


def _removal(facts: Facts, places: list[int], which: str) -> str:
    removed = places[:REMOVED]
    after = facts.without(removed)
    if len(removed) == 1:
        what = f"{facts.kind} {facts.names[removed[0]]}"
    elif len(removed) == len(facts.score):
        what = f"all {_count(len(removed), facts.kind)}"
    else:
        what = f"the {which.format(len(removed))} {facts.kind}s"
    asked = "" if facts.explained_class == facts.predicted_class else f"class-{facts.explained_class} "
    before, then = number(facts.output), number(after)
    if before == then:
        return f"removing {what} leaves its {asked}{facts.value} at {then}"
    verb = "lowers" if after < facts.output else "raises"
    return f"removing {what} {verb} its {asked}{facts.value} from {before} to {then}"


def number(value: float) -> str:
    """Two decimals; more where that would hide it."""
    return f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1e}"


def _count(count: int, kind: str) -> str:
    return f"{count} {kind}{'s' * (count != 1)}"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
