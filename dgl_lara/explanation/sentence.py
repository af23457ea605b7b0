"""One explanation as one sentence, which follows from two kinds of numbers: the scores, and what f itself says once the
players that they praise are gone. The removal is evaluated, never guessed from the scores, and it has the last word:

    Node 512 is class 2 mostly because of its 1-hop neighbours 511 and 513; removing the top 5 neighbours lowers its
    logit from 4.20 to -0.30.
    Node 1358 is class 2 because of itself; it hardly depends on its neighbours: removing all 168 lowers its logit only
    from 2.97 to 2.90.
    Film 7 (Jaws) is recommended to user 3 (score 2.31) mostly because of film 4 (Alien), which they liked, and of
    user 8, who liked it; removing the top 5 neighbours lowers its score from 2.31 to 0.64.
    Node 9 is class 1, but its scores are not borne out: they put its 1-hop neighbours 7 and 26 first, yet removing the
    top 5 neighbours raises its logit from 1.20 to 1.50.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgl_lara._util.tables import cell

NAMED = 3  # at most so many players are named
ALIKE = 0.9  # of a score: who has so much of the last one's is named too
REMOVED = 5  # and so many removed
NEGLIGIBLE = 1e-6  # of the largest score: counts as zero
FAINT = 0.01  # of the strongest's score: who has less is not removed beside it; of the target's: not named after it
FAMILIAR = 1.5  # spreads of what the explainer has learned from, up to which a graph is like it
HARDLY = 0.05  # of the explained value, or of its distance from nothing at all: a change that is next to nothing
LITTLE = 0.5  # of what the players contribute: scores that are expected to explain less are no ground to stand on
NOT_ADDITIVE = "scores are averages over random coalitions and do not add up to the {}"


@dataclass(frozen=True)
class SentenceInput:
    """What the sentence is made of. Players come best first; the target itself is not among them."""

    task: str  # what the target is: "node", "graph"
    named_by_hop: bool  # players stand at hop distances
    target: str  # its number, or its name
    explained_class: str  # likewise
    predicted_class: str
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
    rather_than: str | None = None  # the class that the explained one is set against
    scored: bool = False  # f gives a number, not a class
    subject: str = ""  # how the sentence begins, where that is not task and target
    whose: Sequence[str] = ()  # of each player, whose neighbour it is, where the target is several nodes
    who_are: Sequence[str] = ()  # in its place, how each player comes in: "which they liked", "who liked it too"
    recommended_to: str = ""  # somebody, where the target is a recommendation

    @property
    def who(self) -> str:
        return self.subject or f"{self.task.capitalize()} {self.target}"

    def hardly_differs(self, after: float) -> bool:
        return abs(self.output - after) <= HARDLY * max(abs(self.output), abs(self.output - self.null))

    @property
    def itself_speaks_for_it(self) -> bool:
        """By its score, and by what f says of nothing at all."""
        return self.own > 0 and self.output > self.null

    @property
    def own_support(self) -> float:
        return max(self.own, 0.0)

    @property
    def asks_another(self) -> bool:
        """Explained is a class that f does not predict."""
        return self.explained_class != self.predicted_class

    @property
    def places(self) -> range:
        return range(len(self.score))


@dataclass(frozen=True)
class Sentence:
    """The sentence, and the places of the players that it calls by name, so that a picture can show who they are; and
    of those that it takes away as "the top 5", which whoever reads it may want to know one by one."""

    text: str
    named: Sequence[int] = ()
    removed: Sequence[int] = ()


def sentence(facts: SentenceInput) -> str:
    return build_sentence(facts).text


def build_sentence(facts: SentenceInput) -> Sentence:
    if not facts.score:
        return _alone(facts)
    if any(map(math.isnan, [*facts.score, facts.own])):
        return Sentence(f"{_head(facts)}, but its scores are not numbers (NaN), so nothing can be said of why.")
    least = NEGLIGIBLE * max(map(abs, [*facts.score, facts.own]))
    supporters = [place for place in facts.places if facts.score[place] > least]
    opponents = [place for place in facts.places if facts.score[place] < -least][::-1]
    if supporters:
        return _supported(facts, supporters, opponents)
    if opponents:
        return _opposed(facts, opponents)
    return Sentence(f"{_head(facts)} regardless of its {_count(len(facts.score), facts.kind)}: every score is 0.")


def _head(facts: SentenceInput) -> str:
    """Who is what; for a class that f does not predict, which class is asked about."""
    subject = facts.who
    if facts.recommended_to:
        return f"{subject} is recommended to {facts.recommended_to} (score {number(facts.output)})"
    if facts.scored and not facts.asks_another:
        return f"{subject} has the {facts.value} {number(facts.output)}"
    if facts.rather_than is not None:
        this, that = facts.explained_class, facts.rather_than
        verb = "is" if this == facts.predicted_class else f"is class {facts.predicted_class}; of the two, it would be"
        return f"{subject} {verb} class {this} rather than class {that}"
    return f"{_is(facts)}, and it would be class {facts.explained_class}" if facts.asks_another else _is(facts)


def _is(facts: SentenceInput) -> str:
    return f"{facts.who} is class {facts.predicted_class}"


def _alone(facts: SentenceInput) -> Sentence:
    if facts.kind != "neighbour":
        return Sentence(f"{_head(facts)}: it has no {facts.kind}s that could matter.")
    values = f"{facts.value} {number(facts.output)}, against {number(facts.null)} for a node without features"
    reach = f"within {_count(facts.hops, 'hop')}"
    return Sentence(f"{_head(facts)} by its own features alone: it has no neighbours {reach} ({values}).")


def _supported(facts: SentenceInput, supporters: list[int], opponents: list[int]) -> Sentence:
    best = _strongest(facts, supporters)
    named = _foremost(facts, supporters, best)
    after = facts.without(best)
    removal = _removal(facts, _which(facts, best, "top {}"), after, _its_value(facts))
    if facts.hardly_differs(after):
        return _hardly(facts, best, after, "top {}")
    if after > facts.output:
        behind = " after itself" if facts.own > facts.score[named[0]] else ""
        return _not_borne_out(facts, f"put {_named(facts, named)} first{behind}", named, removal, best)
    if facts.score[best[0]] < FAINT * facts.own_support:
        named = []
    against, foes = _in_spite_of(facts, named, opponents)
    text = f"{_because(facts, supporters, named)}{against}; {removal}."
    return Sentence(text, [*named, *foes], _counted(facts, best))


def _opposed(facts: SentenceInput, opponents: list[int]) -> Sentence:
    """Nothing but, perhaps, itself speaks for it."""
    worst = _strongest(facts, opponents)
    named = worst[:NAMED]
    after = facts.without(worst)
    if facts.hardly_differs(after):
        return _hardly(facts, worst, after, "{} most adverse")
    removal = _removal(facts, _which(facts, worst, "{} most adverse"), after, _its_value(facts))
    speak = f"{_named(facts, named)} speak{'s' * (len(named) == 1)}"
    if after < facts.output:
        return _not_borne_out(facts, f"say that {speak} against it", named, removal, worst)
    itself = " because of itself," if facts.itself_speaks_for_it else ""
    against = f"although nothing else speaks for it and {speak} most against it"
    return Sentence(f"{_head(facts)}{itself} {against}; {removal}.", named, _counted(facts, worst))


def _not_borne_out(facts: SentenceInput, claim: str, named: list[int], removal: str, removed: list[int]) -> Sentence:
    """f contradicts the scores: no ranking is praised."""
    other, asked = facts.asks_another, facts.explained_class
    if facts.rather_than is not None:
        other, asked = True, f"{asked} rather than class {facts.rather_than}"
    scores = f"and its scores for class {asked}" if other else "but its scores"
    head = _head(facts) if facts.scored else _is(facts)
    text = f"{head}, {scores} are not borne out: they {claim}, yet {removal}."
    return Sentence(text, named, _counted(facts, removed))


def _hardly(facts: SentenceInput, removed: list[int], after: float, which: str) -> Sentence:
    """Removing the players that the scores call the strongest changes next to nothing. Does removing all of them?"""
    itself = " because of itself" if facts.itself_speaks_for_it else ""
    everyone = f"all {len(facts.score)}" if len(facts.score) > 1 else f"the only {facts.kind}"
    alone = after if len(removed) == len(facts.score) else facts.without(facts.places)
    hardly = f"hardly depends on its {facts.kind}s"
    if facts.hardly_differs(alone) and facts.asks_another:
        change = _removal(facts, everyone, alone, "it", " only")
        return Sentence(f"{_is(facts)}; {_its_value_in_full(facts)} {hardly}: {change}.")
    if facts.hardly_differs(alone):
        change = _removal(facts, everyone, alone, _its_value(facts), " only")
        return Sentence(f"{_head(facts)}{itself}; it {hardly}: {change}.")
    raised = alone > facts.output
    few = f"removing {_which(facts, removed, which)} hardly changes "
    few += _its_value_in_full(facts) if raised and facts.asks_another else _its_value(facts)
    few += f" ({number(facts.output)} to {number(after)})"
    if raised:
        head = _is(facts) if facts.asks_another else f"{_head(facts)}{itself}"
        text = f"{head}; {few}, removing {everyone} raises it to {number(alone)}."
        return Sentence(text, removed=_counted(facts, removed))
    together = f"{itself} and" if itself else " because of"
    together += f" its {_count(len(facts.score), facts.kind)} together, not of a few of them"
    text = f"{_head(facts)}{together}: {few}, removing {everyone} lowers it to {number(alone)}."
    return Sentence(text, removed=_counted(facts, removed))


def _strongest(facts: SentenceInput, places: list[int]) -> list[int]:
    """The first REMOVED, without those who count next to nothing beside the very first."""
    enough = FAINT * abs(facts.score[places[0]])
    return [place for place in places[:REMOVED] if abs(facts.score[place]) >= enough]


def _foremost(facts: SentenceInput, supporters: list[int], best: list[int]) -> list[int]:
    """The fewest, up to NAMED, that carry half of what the players say for it, and who counts about as much as the last
    of them."""
    total, reached, named = sum(facts.score[place] for place in supporters), 0.0, list[int]()
    for place in best[:NAMED]:
        if reached >= total / 2 and facts.score[place] < ALIKE * facts.score[named[-1]]:
            break
        named.append(place)
        reached += facts.score[place]
    return named


def _because(facts: SentenceInput, supporters: list[int], named: list[int]) -> str:
    """'mostly' is said of whoever carries half of all that speaks for it. The target itself is named where it counts at
    least as much as the last player who is, and first where it outweighs all of them; where nobody is named, it is
    because of itself."""
    own = facts.own_support
    total = own + sum(facts.score[place] for place in supporters)
    itself = f"itself{'' if facts.itself_speaks_for_it else _though_nothing_has_more(facts)}"
    if not named:
        return f"{_head(facts)} {'' if own >= total / 2 else 'most of all '}because of {itself}"
    last = facts.score[named[-1]]
    alike = len(_alike(facts, supporters, named[-1])) - len(_alike(facts, named, named[-1]))
    text = _listed(facts, named, alike)
    theirs = sum(facts.score[place] for place in named)
    carried = theirs + alike * last
    if own >= theirs:
        text, carried = f"{itself}, then of {text}", own
    elif own >= last:
        text, carried = f"{text} and of {itself}", carried + own
    return f"{_head(facts)} {'mostly' if carried >= total / 2 else 'most of all'} because of {text}"


def _though_nothing_has_more(facts: SentenceInput) -> str:
    """What is to be said of a target that raises the value by its score, although the whole has less than nothing."""
    return f" (though without any {facts.task} {_its_value(facts)} is {number(facts.null)})"


def _alike(facts: SentenceInput, places: Sequence[int], one: int) -> list[int]:
    """Those who count as much as one of them: for who reads the table, whose figures look the same."""
    like, figure = facts.score[one], cell(facts.score[one])
    nothing = figure == cell(0.0)  # where figures hide what is small, none of them tells who is alike
    return [place for place in places if math.isclose(facts.score[place], like, rel_tol=1e-4)
            or (cell(facts.score[place]) == figure and not nothing)]  # fmt: skip


def _in_spite_of(facts: SentenceInput, named: list[int], opponents: list[int]) -> tuple[str, list[int]]:
    """Who speaks against it more than the last one who is named speaks for it, and the places of those named so; where
    nobody is, who is not faint beside the target itself."""
    enough = facts.score[named[-1]] if named else FAINT * facts.own_support
    alike = _alike(facts, opponents, opponents[0]) if opponents and -facts.score[opponents[0]] > enough else []
    foes = alike[:NAMED]
    against = [*(["itself"] if -facts.own > enough else [])]
    against += [_listed(facts, foes, len(alike) - len(foes))] if foes else []
    return f", in spite of {_and(against)}" if against else "", foes


def _named(facts: SentenceInput, places: list[int]) -> str:
    """The same where no 'because of' stands before it."""
    return _listed(facts, places, between=", and ") + "," * bool(facts.who_are)


def _listed(facts: SentenceInput, places: list[int], alike: int = 0, between: str = ", and of ") -> str:
    """'its 1-hop neighbours 511 and 513 and its 2-hop neighbour 9'; 'atoms N3, O4 and 2 more that count as much as O4';
    'film 50, which they liked,'. `alike`: how many more count as much as the last."""
    more = f"{alike} more that count{'s' * (alike == 1)} as much as {facts.names[places[-1]]}" if alike else ""
    groups: dict[str, list[str]] = {}  # whoever comes first in `places`, the strongest, is named first
    if facts.who_are:
        for place in places:
            groups.setdefault(facts.who_are[place], []).append(facts.names[place])
        phrases = [f"{_and(names)}, {clause}" for clause, names in groups.items()]
        return between.join(filter(None, [*phrases, more]))
    for place in places:
        owner = f"{facts.whose[place]}'s" if facts.whose else "its"
        kind = f"{owner} {facts.hop[place]}-hop {facts.kind}" if facts.named_by_hop else facts.kind
        groups.setdefault(kind, []).append(facts.names[place])
    if more and len(groups) == 1:
        ((kind, names),) = groups.items()
        return f"{kind}s {_and([*names, more])}"
    return _and([*(f"{kind}{'s' * (len(names) > 1)} {_and(names)}" for kind, names in groups.items()), more])


def _counted(facts: SentenceInput, removed: list[int]) -> list[int]:
    """Those removed, where the sentence says only how many they are: not of one, nor of all."""
    return removed if 1 < len(removed) < len(facts.score) else []


def _which(facts: SentenceInput, removed: list[int], which: str) -> str:
    if len(removed) == 1:
        return f"{facts.kind} {facts.names[removed[0]]}"
    if len(removed) == len(facts.score):
        return f"all {_count(len(removed), facts.kind)}"
    return f"the {which.format(len(removed))} {facts.kind}s"


def _its_value(facts: SentenceInput) -> str:
    """'its logit'; of a class that f does not predict 'its class-0 logit', 'its logit of class rule learning'."""
    if facts.rather_than is not None or not facts.asks_another:
        return f"its {facts.value}"
    if not str(facts.explained_class).isdigit():
        return f"its {facts.value} of class {facts.explained_class}"
    return f"its class-{facts.explained_class} {facts.value}"


def _its_value_in_full(facts: SentenceInput) -> str:
    """The same where the sentence has not said which two classes are compared."""
    if facts.rather_than is None:
        return _its_value(facts)
    return f"{_its_value(facts)} between class {facts.explained_class} and class {facts.rather_than}"


def _removal(facts: SentenceInput, what: str, after: float, its: str, only: str = "") -> str:
    before, then = number(facts.output), number(after)
    if before == then:
        return f"removing {what} leaves {its} at {then}"
    verb = "lowers" if after < facts.output else "raises"
    return f"removing {what} {verb} {its}{only} from {before} to {then}"


def number(value: float) -> str:
    """Two decimals; more where that would hide it."""
    return f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1e}"


def _count(count: int, kind: str) -> str:
    return f"{count} {kind}{'s' * (count != 1)}"


def _and(words: Sequence[str]) -> str:
    words = list(filter(None, words))
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _share(part: float) -> str:
    """Never 100 %: nobody expects that."""
    return f"{part:.0%}" if part < 0.995 else "over 99%"


def how_sure(corrected: bool, confidence: float | None, kind: str, local: bool) -> str:
    """How the scores came about, and how much of the truth they are expected to tell."""
    source = "corrected by what the model said of coalitions" if corrected else "the explainer's own, by no model call"
    if confidence is None or math.isnan(confidence):
        return f"These scores are {source}; what share of the truth they tell is not known."
    whose = f"its {kind}s" if local else f"the {kind}s"
    only, advice = ("only ", ": refine them before you rely on them") if confidence < LITTLE else ("", "")
    share = f"{only}{_share(confidence)} of what {whose} contribute{advice}"
    return f"These scores are {source}, and expected to explain {share}."


def doubt(agreement: float | None, of_neighbours: float | None = None) -> str:
    """What is to be said of an explainer that has learned little, by its best agreement; nothing of a good one."""
    advice = "let it learn longer or from more targets, or refine what you rely on"
    if agreement is not None and agreement < LITTLE:
        of = f"its agreement on validation targets is {agreement:.2f} (1 is perfect, 0 is worthless)"
        return f"this explainer has learned little: {of}; {advice}"
    if of_neighbours is not None and of_neighbours < LITTLE:
        of = f"its agreement over them alone is {of_neighbours:.2f} (1 is perfect, 0 is worthless)"
        return (
            f"of the neighbours this explainer has learned little: {of}, so scores that are not corrected (of other "
            f"classes, of new nodes) tell little of them; {advice}"
        )
    return ""


def how_far(novelty: float) -> str:
    """From what the explainer has learned from, on a graph that it has not."""
    word = "as it knows it" if novelty < FAMILIAR else "unlike what it knows"
    return f"To the explainer the graph around it is {word} ({novelty:.1f} times the spread of what it learned from)."
