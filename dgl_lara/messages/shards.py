"""Texts of shards."""

MESSAGES = {
    "ray.gave_up": "A shard failed {tries} times ({problem}). Run the same command to continue.",
    "ray.packages": "--engine ray needs more packages ({name}). Install them with pip install 'dgl-lara[ray]'.",
    "ray.task": "A task of Ray failed ({problem}).",
    "ray.unreachable": "Ray cannot be reached at {address} ({problem}). Start it with ray start --head.",
    "shard.changed": "{path} was changed after it was written. Run its shard again.",
    "shard.foreign": "{path} belongs to another shard or another request.",
    "shard.repeated": "{problem} Shard {shard} is explained again.",
    "shards.is_file": "--out must be a folder for shards (got the file {got}). Name another one.",
    "shards.join_ending": "The joined file must end in {endings} (got '{got}').",
    "shards.join_folder": "The joined file must not be in {folder}, which holds the shards (got '{got}').",
    "shards.missing": "{folder} lacks the shards {missing}. Run them with --shard.",
    "shards.none": "{folder} holds no shards. Write some with explain --shard.",
    "shards.other_request": (
        "{folder} holds shards of another request. There, {name} is {then}, and now it is {now}. "
        "Name another folder or use equal options for all shards."
    ),
    "shards.seal": "{path} was changed after it was written. Run its shard again.",
    "shards.too_many": "The number of shards must be at most {targets}, the number of targets (got {got}).",
}
