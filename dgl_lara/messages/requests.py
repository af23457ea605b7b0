"""Texts of requests for explanations."""

MESSAGES = {
    "refine.done": "{count:,} doubtful (below {least:.1%}), refined with {coalitions:,} coalitions, now all above it.",
    "refine.none": "No explanation is doubtful (below {least:.1%}), so the model was not evaluated.",
    "refine.still_doubtful": (
        "{count:,} doubtful (below {least:.1%}), refined with {coalitions:,} coalitions, {left:,} still below it. More "
        "pairs may help (--refine N)."
    ),
    "request.links_missing": "A graph with links needs the links to explain. Name them with --pair or --pairs.",
    "request.no_links": "This run explains {task}s, not links. Leave out --pair and --pairs.",
    "targets_file.line": "{path} must hold one whole number a line (line {line} is '{got}').",
}
