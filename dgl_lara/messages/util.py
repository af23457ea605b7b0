"""Texts of `_util/`: settings, files, processes, progress."""

MESSAGES = {
    "choice.unknown": "{name} must be one of {known} (got '{got}').{hint}",
    "file.content": "{where} cannot be read. {problem}",
    "folder.locked": "Another process is writing to {folder}. Wait for it, or name another folder.",
    "settings.invalid": "{name} must be {expected} (got {got}).",
    "settings.missing": "{name} is missing.",
    "settings.unknown": "{name} is not a setting. {hint}",
}
