"""Texts of `_util/`: settings, files, processes, progress."""

MESSAGES = {
    "file.content": "{where} cannot be read. {problem}",
    "settings.invalid": "{name} must be {expected} (got {got}).",
    "settings.missing": "{name} is missing.",
    "settings.unknown": "{name} is not a setting. {hint}",
}
