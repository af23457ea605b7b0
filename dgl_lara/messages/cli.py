"""Texts of the command line: options that do not fit together, and what commands print."""

MESSAGES = {
    "runs.no_terminal": "There is no terminal to confirm the deletion of {folder}. Add --yes.",
}
