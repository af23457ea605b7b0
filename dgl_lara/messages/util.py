"""Texts of `_util/`: settings, files, processes, progress."""

MESSAGES = {
    "choice.unknown": "{name} must be one of {known} (got '{got}').{hint}",
    "file.content": "{where} cannot be read. {problem}",
    "folder.locked": "Another process is writing to {folder}. Wait for it, or name another folder.",
    "folder.unwritable": "'{folder}' cannot be written ({reason}). {remedy}",
    "processes.differ": ("{name} must be the same in all processes ({first} in process 0, {other} in process {rank})."),
    "processes.late": "Only {arrived} of {count} processes started within {seconds:.0f} s.",
    "processes.lost": "Another process of this training has ended, so it was stopped.",
    "processes.no_meeting": "The {count} processes did not find each other ({problem}).",
    "processes.silent": (
        "Process {rank} has sent no heartbeat for {seconds:.0f} s. Continue from the last checkpoint with --resume."
    ),
    "settings.invalid": "{name} must be {expected} (got {got}).",
    "settings.missing": "{name} is missing.",
    "settings.unknown": "{name} is not a setting. {hint}",
}
