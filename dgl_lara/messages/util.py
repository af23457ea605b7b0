"""Texts of `_util/`: settings, files, processes, progress."""

MESSAGES = {
    "choice.unknown": "{name} must be one of {known} (got '{got}').{hint}",
    "device.invalid": "device must be like 'cpu', 'cuda' or 'cuda:1' (got {got}).",
    "file.checksum": "{path} has changed since it was written (the checksum of {entry} differs).",
    "file.content": "{where} cannot be read. {problem}",
    "file.missing": "There is no file '{path}'.",
    "file.no_checkpoint": "{path} is truncated or not a checkpoint ({problem}).",
    "folder.locked": "Another process is writing to {folder}. Wait for it, or name another folder.",
    "folder.unwritable": "'{folder}' cannot be written ({reason}). {remedy}",
    "memory.exceeded": (
        "{what} would take about {needed:,.1f} GB of {limit:,.1f} GB. Use less, or raise --memory or LARA(memory=...)."
    ),
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
