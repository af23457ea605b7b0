"""An explanation in two short sentences, on what carries the prediction and what the model returns without it.

The removal is evaluated by the model, and it has the last word:

    Node 512 is class 2 mainly because of its 1-hop neighbours 511 and 513. Removing the top 5 neighbours lowers its
    logit from 4.20 to -0.30.
    Node 1358 is class 2 because of itself. Its logit hardly depends on its neighbours: removing all 168 neighbours
    lowers it only from 2.97 to 2.90.
    Film 7 (Jaws) is recommended to user 3 (score 2.31) mainly because of film 4 (Alien), which they liked. Removing the
    top 5 neighbours lowers its score from 2.31 to 0.64.
    Node 9 is class 1. The model contradicts its scores: they put its 1-hop neighbour 7 first, but removing the top 5
    neighbours raises its logit from 1.20 to 1.50.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgl_lara._util.tables import cell

MAX_NAMED = 3  # players
MAX_REMOVED = 5  # players
SIMILAR_SCORE = 0.9  # of the last named score, from which players are named too
ZERO_SCORE = 1e-6  # of the largest score
FAINT_SCORE = 0.01  # of the strongest score, below which players are neither removed with it nor named after the target
SMALL_CHANGE = 0.05  # of the explained value, or of its distance from the value without players

CARRIED = "carried by"  # the named players, or all together, carry the value
INDEPENDENT = "hardly depends"  # removing all players changes next to nothing
CONTRADICTED = "contradicted"  # the removal moves the value against the scores
OPPOSED = "opposed"  # players count against the class only
ALONE = "alone"  # there is no player with a score


@dataclass(frozen=True)
class SentenceInput:
    """Facts about one target. Players come best first, without the target itself."""

    subject: str  # "Node 5"
    explained_class: str  # name or number
    predicted_class: str
    value: str  # "logit", "probability", "log-odds", "score"
    output: float  # the value on the whole graph
    null: float  # the value without any player
    noun: str  # "neighbour", "node", "atom"
    names: Sequence[str]
    roles: Sequence[str]  # what a player is to the target: "its 1-hop neighbour", "atom"
    score: Sequence[float]
    without: Callable[[Sequence[int]], float]  # the value without the players at these positions
    own: float = 0.0  # score of the target itself
    within: str = ""  # the reach of players: " within 3 hops"
    clauses: Sequence[str] = ()  # in place of roles: "which they liked", "who liked it"
    rather_than: str | None = None  # class against which the explained one is set
    has_classes: bool = True
    recommended_to: str = ""  # the user, if the target is a recommendation


@dataclass(frozen=True)
class Sentence:
    """The text, and which players it names.

    Attributes:
        outcome: CARRIED, INDEPENDENT, CONTRADICTED, OPPOSED or ALONE.
        text: The sentences.
        named: Positions of the players in the text.
        removed: Positions of the players that were removed if the text gives only their number.
    """

    outcome: str
    text: str
    named: Sequence[int] = ()
    removed: Sequence[int] = ()


def build_sentence(facts: SentenceInput) -> Sentence:
    """Return the sentence that follows from the scores and from removing the strongest players."""
    if not facts.score:
        return Sentence(ALONE, f"{_head(facts)}. It has no {facts.noun}s{facts.within}.")
    if any(map(math.isnan, [*facts.score, facts.own])):
        return Sentence(ALONE, f"{_head(facts)}. Its scores are not numbers (NaN).")
    zero = ZERO_SCORE * max(map(abs, [*facts.score, facts.own]))
    supporters = [i for i, score in enumerate(facts.score) if score > zero]
    opponents = [i for i, score in enumerate(facts.score) if score < -zero][::-1]
    if not supporters and not opponents:
        return Sentence(INDEPENDENT, f"{_head(facts)}. Every score of its {facts.noun}s is 0.")
    removed = _strongest(facts, supporters or opponents)
    after = facts.without(removed)
    if _hardly_differs(facts, after):
        return _without_all(facts, removed, after, "top {}" if supporters else "{} most adverse")
    if (after > facts.output) == bool(supporters):
        return _contradicted(facts, supporters, removed, after)
    return _carried(facts, supporters, opponents, removed, after) if supporters else _opposed(facts, removed, after)


def _carried(
    facts: SentenceInput, supporters: list[int], opponents: list[int], removed: list[int], after: float
) -> Sentence:
    """Name the players that carry half of the support, and the stronger opponents."""
    named = _foremost(facts, supporters, removed)
    if facts.score[named[0]] < FAINT_SCORE * _own_support(facts):
        named = []
    phrases = _phrases(facts, named, _num_ties(facts, supporters, named)) if named else []
    least = facts.score[named[-1]] if named else FAINT_SCORE * _own_support(facts)
    if _own_support(facts) and _own_support(facts) >= least:
        first = _own_support(facts) >= sum(facts.score[i] for i in named)
        phrases.insert(0 if first else len(phrases), "itself")
    ties = [i for i in opponents if _looks_equal(facts, i, opponents[0])]
    opposing = ties[:MAX_NAMED] if ties and -facts.score[ties[0]] > least else []
    against = ["itself"] * (-facts.own > least)
    against += _phrases(facts, opposing, len(ties) - len(opposing)) if opposing else []
    despite = f", despite {_and(against)}" if against else ""
    text = f"{_head(facts)} mainly because of {_and(phrases)}{despite}. {_removal(facts, removed, after)}."
    return Sentence(CARRIED, text, [*named, *opposing], _counted(facts, removed))


def _opposed(facts: SentenceInput, removed: list[int], after: float) -> Sentence:
    named = removed[:MAX_NAMED]
    text = f"{_head(facts)}{_because_of_itself(facts)} although {_listed(facts, named)} {_count_verb(named)} against it"
    removal = _removal(facts, removed, after, "{} most adverse")
    return Sentence(OPPOSED, f"{text}. {removal}.", named, _counted(facts, removed))


def _contradicted(facts: SentenceInput, supporters: list[int], removed: list[int], after: float) -> Sentence:
    named = _foremost(facts, supporters, removed) if supporters else removed[:MAX_NAMED]
    scores = "its scores"
    if facts.rather_than is not None:
        scores += f" for class {facts.explained_class} rather than class {facts.rather_than}"
    elif _explains_other_class(facts):
        scores += f" for class {facts.explained_class}"
    claim = f"put {_listed(facts, named)} first"
    if not supporters:
        claim = f"claim that {_listed(facts, named)} {_count_verb(named)} against it"
    removal = _removal(facts, removed, after, "top {}" if supporters else "{} most adverse")
    text = f"{_prediction(facts)}. The model contradicts {scores}: they {claim}, but {_lower(removal)}."
    return Sentence(CONTRADICTED, text, named, _counted(facts, removed))


def _without_all(facts: SentenceInput, removed: list[int], after: float, which: str) -> Sentence:
    """Remove all players, since removing the strongest changes next to nothing."""
    alone = after if len(removed) == len(facts.score) else facts.without(range(len(facts.score)))
    if _hardly_differs(facts, alone):
        itself = "" if _explains_other_class(facts) else _because_of_itself(facts)
        head = _prediction(facts) if _explains_other_class(facts) else _head(facts)
        change = _change(facts, _all_players(facts), alone, "it", only=" only")
        value = _its_value(facts, full=True)
        text = f"{head}{itself}. {value[0].upper()}{value[1:]} hardly depends on its {facts.noun}s: {_lower(change)}."
        return Sentence(INDEPENDENT, text)
    together = f"its {len(facts.score)} {facts.noun}s together"
    if alone > facts.output:
        outcome, reason = OPPOSED, f"{_because_of_itself(facts)} although {together} count against it"
    else:
        outcome, reason = CARRIED, f" because of {_and(['itself'] * bool(_own_support(facts)) + [together])}"
    change = f"Removing {_which(facts, removed, which)} hardly changes {_its_value(facts)} "
    change += f"({number(facts.output)} to {number(after)})"
    verb = "lowers" if alone < facts.output else "raises"
    text = f"{_head(facts)}{reason}. {change}, removing {_all_players(facts)} {verb} it to {number(alone)}."
    return Sentence(outcome, text, (), _counted(facts, removed))


# --- phrases


def _head(facts: SentenceInput) -> str:
    """Return the prediction, and the class that is explained if it is another."""
    if facts.rather_than is not None:
        pair = f"class {facts.explained_class} rather than class {facts.rather_than}"
        if _explains_other_class(facts):
            return f"{_prediction(facts)}. Of the two, it would be {pair}"
        return f"{facts.subject} is {pair}"
    if _explains_other_class(facts):
        return f"{_prediction(facts)}, and it would be class {facts.explained_class}"
    return _prediction(facts)


def _prediction(facts: SentenceInput) -> str:
    if facts.recommended_to:
        return f"{facts.subject} is recommended to {facts.recommended_to} (score {number(facts.output)})"
    if not facts.has_classes:
        return f"{facts.subject} has the {facts.value} {number(facts.output)}"
    return f"{facts.subject} is class {facts.predicted_class}"


def _its_value(facts: SentenceInput, full: bool = False) -> str:
    """Return "its logit", and its class if the model does not predict it.

    Args:
        full: Name both classes of a contrast.
    """
    if facts.rather_than is not None:
        both = f" between class {facts.explained_class} and class {facts.rather_than}"
        return f"its {facts.value}{both if full and _explains_other_class(facts) else ''}"
    if not _explains_other_class(facts):
        return f"its {facts.value}"
    if not str(facts.explained_class).isdigit():
        return f"its {facts.value} of class {facts.explained_class}"
    return f"its class-{facts.explained_class} {facts.value}"


def _removal(facts: SentenceInput, removed: list[int], after: float, which: str = "top {}") -> str:
    return _change(facts, _which(facts, removed, which), after, _its_value(facts))


def _change(facts: SentenceInput, what: str, after: float, value: str, only: str = "") -> str:
    before, then = number(facts.output), number(after)
    if before == then:
        return f"Removing {what} leaves {value} at {then}"
    return f"Removing {what} {'lowers' if after < facts.output else 'raises'} {value}{only} from {before} to {then}"


def _which(facts: SentenceInput, removed: list[int], which: str) -> str:
    if len(removed) == len(facts.score) and len(removed) > 1:
        return _all_players(facts)
    if len(removed) == 1:
        return f"{facts.noun} {facts.names[removed[0]]}"
    return f"the {which.format(len(removed))} {facts.noun}s"


def _phrases(facts: SentenceInput, named: list[int], num_ties: int = 0) -> list[str]:
    """Return "its 1-hop neighbours 511 and 513", "its 2-hop neighbour 9", the strongest first."""
    more = [f"{num_ties} more with equal scores"] if num_ties else []
    groups: dict[str, list[str]] = {}
    for i in named:
        groups.setdefault((facts.clauses or facts.roles)[i], []).append(facts.names[i])
    if facts.clauses:
        return [", ".join(f"{_and(names)}, {clause}" for clause, names in groups.items()), *more]
    if len(groups) == 1 and more:
        ((role, names),) = groups.items()
        return [f"{role}s {_and([*names, *more])}"]
    return [*(f"{role}{'s' * (len(names) > 1)} {_and(names)}" for role, names in groups.items()), *more]


def _listed(facts: SentenceInput, named: list[int]) -> str:
    return _and(_phrases(facts, named))


def number(value: float) -> str:
    """Return a number with two decimals, or in scientific form if they would hide it."""
    return f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1e}"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _count_verb(named: list[int]) -> str:
    return "counts" if len(named) == 1 else "count"


# --- facts


def _explains_other_class(facts: SentenceInput) -> bool:
    return facts.has_classes and facts.explained_class != facts.predicted_class


def _own_support(facts: SentenceInput) -> float:
    """Return the score of the target if it counts for the class by score and by what the model returns, else 0."""
    return facts.own if facts.own > 0 and facts.output > facts.null else 0.0


def _because_of_itself(facts: SentenceInput) -> str:
    return " because of itself" if _own_support(facts) else ""


def _all_players(facts: SentenceInput) -> str:
    return f"all {len(facts.score)} {facts.noun}s" if len(facts.score) > 1 else f"the only {facts.noun}"


def _hardly_differs(facts: SentenceInput, after: float) -> bool:
    return abs(facts.output - after) <= SMALL_CHANGE * max(abs(facts.output), abs(facts.output - facts.null))


# --- which players


def _strongest(facts: SentenceInput, players: list[int]) -> list[int]:
    """Return the first players without those that are faint compared to the first."""
    least = FAINT_SCORE * abs(facts.score[players[0]])
    return [i for i in players[:MAX_REMOVED] if abs(facts.score[i]) >= least]


def _foremost(facts: SentenceInput, supporters: list[int], removed: list[int]) -> list[int]:
    """Return the fewest players that carry half of the support, and those with similar scores."""
    total, reached, named = sum(facts.score[i] for i in supporters), 0.0, list[int]()
    for i in removed[:MAX_NAMED]:
        if reached >= total / 2 and facts.score[i] < SIMILAR_SCORE * facts.score[named[-1]]:
            break
        named.append(i)
        reached += facts.score[i]
    return named


def _num_ties(facts: SentenceInput, supporters: list[int], named: list[int]) -> int:
    """Return how many further players have the score of the last named one."""
    return sum(_looks_equal(facts, i, named[-1]) for i in supporters if i not in named)


def _looks_equal(facts: SentenceInput, i: int, j: int) -> bool:
    """Return whether two scores are equal, or look equal in a table."""
    shown = cell(facts.score[j])
    equal = math.isclose(facts.score[i], facts.score[j], rel_tol=1e-4)
    return equal or (cell(facts.score[i]) == shown and shown != cell(0.0))


def _counted(facts: SentenceInput, removed: list[int]) -> list[int]:
    """Return the removed players if the sentence gives only their number."""
    return removed if 1 < len(removed) < len(facts.score) else []
