"""Texts of explanations, their files and how far they can be trusted."""

MESSAGES = {
    "explanations.index": "the index of an explanation must be below {count} (got {got}).",
    "explanations.index_type": "the index of an explanation must be a whole number (got {got!r}).",
    "explanations.no_game": "these explanations have no game. Make them with LARA.explain, or pass game=.",
    "explanation.file_ending": "the file must end in {endings} (got '{got}').",
    "explanation.not_in_graph": "{players} have no place in a graph. Save their scores as .csv or .json.",
    "explanation.other_target": "a page shows one target, {target} (got also {got}).",
    "explainer.low_agreement": "this explainer has learned little: its agreement on validation targets is "
    "{agreement:.2f} (1 is perfect, 0 is worthless). Train longer or on more targets, or refine important "
    "explanations.",
    "explainer.low_agreement_of_neighbours": "this explainer has learned little about neighbours: its agreement on "
    "them is {agreement:.2f} (1 is perfect, 0 is worthless). Uncorrected scores (other classes, new nodes) are "
    "unreliable. Train longer or on more targets, or refine important explanations.",
    "labels.one_type": "labels by type need a graph with several types. Pass one list of names.",
    "labels.unknown_type": "labels must name types of the graph, {types} (got '{got}').",
    "names.count": "{name} must have one name for each {each}, {count} in all (got {got}).",
    "scores.not_additive": "scores are averages {over} and do not add up to the {value}",
    "scores.adds_up": "scores are averages {over} and add up to the {value} minus that without any player",
    "sparsity.range": "sparsity must be in [0, 1) (got {got}).",
    "summary.empty": "a summary needs at least one explanation.",
    "summary.no_such_class": "the class must be one that is explained, {classes} (got {got}).",
    "trust.amortised": "These scores are the explainer's own, without model calls{share}.",
    "trust.corrected": "These scores are corrected by model calls{share}.",
    "trust.share": ", and should explain {share} of what the {noun}s contribute",
    "trust.share_low": ", and should explain only {share} of what the {noun}s contribute. Refine them before use",
    "trust.share_unknown": ". How much they explain is unknown",
    "trust.familiar": "The graph around it is similar to the training data ({novelty:.1f} times its spread).",
    "trust.novel": "The graph around it differs from the training data ({novelty:.1f} times its spread).",
}
