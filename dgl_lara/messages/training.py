"""Texts of training."""

MESSAGES = {
    "batch.halved": (
        "The subgraph around a batch ({nodes:,} nodes) does not fit the memory, so such batches are halved."
    ),
    "checkpoint.beyond_end": "The checkpoint is at step {step}, but the settings end at step {total}.",
    "checkpoint.invalid": "The checkpoint is damaged or belongs to another run ({problem}).",
    "objective.index": (
        "objective must be 'least-squares' or 'running-mean' for {index} values (got {got!r}). Set it with "
        "--objective or TrainingConfig(objective=...)."
    ),
    "model.constant": (
        "Removing players does not change the model's output (its {value} changes by at most {moved:.1g}, within "
        "rounding). Check that its weights are loaded and the features are not all zero. If the outputs are that "
        "small, or far from zero, let the model return them scaled or centred."
    ),
    "pool.needs_full_graph": (
        "pool must be left out if batch_size is not 0 (got {batch_size:,}), because its coalitions are of the whole "
        "graph. Leave out --pool or --batch-size."
    ),
    "pool.not_needed": (
        "No pool: all steps together draw {drawn:,} pairs of coalitions, not more than the {pairs:,} of the pool."
    ),
    "pool.too_large": (
        "The model's outputs for {pairs:,} pairs of coalitions of the whole graph do not fit the memory, so each step "
        "draws new ones."
    ),
    "running_mean.too_large": (
        "The running mean of Eq. 10 must hold at most {most:,} (target, player) pairs (got {pairs:,}). Use --objective "
        "least-squares, which needs none."
    ),
    "training.diverged": (
        "Training diverged at step {step} (a value became {figure}). Lower the learning rate (--lr {lr:.1g})."
    ),
    "training.resumed": "Resuming at step {step:,} of {total:,}.",
    "training.was_finished": (
        "All {total:,} steps of training were made already. Only the quality of the scores is measured again."
    ),
    "validation.only_noise": (
        "On the validation targets the true attribution is close to the noise level, so agreement is not meaningful."
    ),
}
