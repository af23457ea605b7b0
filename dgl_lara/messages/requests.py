"""Texts of requests for explanations."""

MESSAGES = {
    "request.links_missing": "A graph with links needs the links to explain. Name them with --pair or --pairs.",
    "request.no_links": "This run explains {task}s, not links (its data set is {dataset}).",
    "targets_file.line": "{path} must hold one whole number a line (line {line} is '{got}').",
}
