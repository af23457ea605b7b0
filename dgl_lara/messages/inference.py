"""Texts of the room `inference`."""

MESSAGES = {
    "targets.type": "targets must be whole numbers or a mask of booleans (got {got}).",
    "targets.mask_size": "A mask of targets must have {expected} entries (got {got}).",
    "targets.shape": "targets must be one list of {task} numbers (got shape {got}).",
    "classes.ambiguous": (
        "classes={got} can mean one class for each of the two targets, or one class rather than the other. "
        "Write {each} for the first, {contrast} for the second."
    ),
    "classes.pair": "classes must name one class, or two classes to contrast, for each target (got {got}).",
    "classes.range": "classes must be whole numbers from 0 to {most} (got {got}).",
    "classes.count": "classes must name one class for each of the {expected} targets (got {got}).",
    "classes.same": "A class cannot be contrasted with itself (got {got} twice). Name two different classes.",
    "classes.unknown": "{option} must be {expected} (got {got}).{closest}",
    "classes.predicted_only": (
        "This explainer was trained for the predicted class only. Train it with all classes to explain another one."
    ),
    "top.range": "At least one player must be kept of each target (got {got}).",
    "confidence.range": "The confidence to reach must be above 0 and below 1 (got {got}).",
    "confidence.unknown": (
        "The errors of these scores are unknown, so doubtful explanations cannot be found. "
        "Refine all of them with a number of pairs, or train again."
    ),
    "export.ending": "The file must end in {expected} (got '{got}').",
    "export.interrupted": "{kept:,} of {total:,} parts are kept in {folder}. The same command resumes from there.",
    "export.damaged_part": "{path} is damaged ({reason}). It is computed again.",
    "store.damaged": "{path} is damaged ({problem}). It is computed again.",
    "store.unreadable": "{problem} It is computed again.",
    "store.unwritable": "{path} cannot be written ({problem}). The work goes on without it.",
}
