"""Texts of metrics and evaluations."""

MESSAGES = {
    "benchmark.comparing": "Comparing {methods}, on {targets} targets.",
    "benchmark.trains_lara": "LARA is trained again for each seed.",
    "benchmark.shorter": "--quick, --methods, --seeds or --targets make the comparison shorter.",
    "benchmark.no_metric": "{metric} is not measured: {reason}",
    "agreement.above_one": (
        "An R2 above 1 is noise because there are too few reference pairs (--reference-pairs asks for more)."
    ),
    "agreement.ceiling": (
        "Its estimate for a single player is noisy, so perfect scores would reach only the noise ceiling in the column "
        "R2.\nR2 corrected and neighbours only have that noise removed, so perfect scores reach 1."
    ),
    "agreement.ceiling_of_graphs": (
        "Its estimate for a single player is noisy, so perfect scores would reach only the noise ceiling in the column "
        "R2.\nR2 corrected has that noise removed, so perfect scores reach 1."
    ),
    "agreement.only_noise": (
        "- means that the true attribution is close to its noise (players that count next to nothing, or too few "
        "reference pairs), so no R2 is meaningful."
    ),
    "agreement.order_is_noise": (
        "Rank correlation is far below R2 because most players count next to nothing, so their order is noise."
    ),
    "agreement.reference": "The true attribution is {description}.",
    "auc.features": "there is no ground truth for features.",
    "auc.no_ground_truth": "this data set has no ground truth.",
    "auc.no_target_in_motif": "none of these targets has a ground truth. Choose more targets (--targets).",
    "auc.note": (
        "Signed uses the score, absolute its size, because evidence against the class matters too. Pooled means all "
        "players of all targets together. Targets without a ground truth are left out."
    ),
    "benchmark.damaged": "{path} is damaged and is measured again ({problem}).",
    "benchmark.left_out": "{method} is left out: {reason}",
    "benchmark.new_graphs": "The test targets are new graphs, so there are no more targets to learn from.",
    "benchmark.quick": (
        "Quick: LARA makes {steps} of 300 steps on large graphs and trains as usual on small ones. The paper's form "
        "makes {paper_steps} of 3,000 steps. Other methods that learn use {learners} targets. {methods}. phi is "
        "estimated from {pairs} pairs. A method whose explanations would take more than {minutes} minutes is left out."
    ),
    "benchmark.timed_untrained": "{problem} Speed is measured with another explainer.",
    "benchmark.too_slow": (
        "Its {targets} explanations would take about {minutes:.0f} minutes, at most {most} in a quick benchmark. Leave "
        "out --quick."
    ),
    "benchmark.trained_again": "{problem} It is trained again.",
    "characterization.note": (
        "average over sparsity 0.3 ... 0.7, fid+: labels that change without the important players, fid-: with them "
        "alone"
    ),
    "evaluation.cost": "nodes that the model evaluated for each explanation: {methods}",
    "evaluation.cost_of_lara": "lara {cost:,.0f} (in training, shared by all {targets}), none after it",
    "evaluation.fewer_targets": " --targets {targets} would take about {time}.",
    "evaluation.sampled_left_out": (
        "{method} is left out, because it would evaluate {nodes:,} nodes. Reduce --targets or --pairs."
    ),
    "evaluation.takes_long": "This will take about {time} ({parts}).{shorter}",
    "evaluation.without_sampled": " --pairs 0 leaves out 'sampled'.",
    "fidelity.note": "average over sparsity 0.3 ... 0.7, ± standard error over targets",
    "fidelity.note_kept": (
        "average over sparsity 0.3 ... 0.7, ± standard error over targets, 'kept': the target itself stays"
    ),
    "fidelity_curve.note": (
        "area of fid+ / (1 - fid-) over sparsity 0.3 ... 0.7, high is good, 0.4 if only the important players matter"
    ),
    "metric.unavailable": "No metric can be computed ({reasons}).",
    "metric.needs_classes": "a regression model has no labels and no probabilities.",
    "reference.estimated": "estimated from {pairs:,} pairs of coalitions (random subsets) for each target",
    "reference.estimated_together": (
        "estimated from {pairs:,} pairs of coalitions (random subsets) that all targets share"
    ),
    "reference.exact": "exact, from every coalition",
    "reference.too_few": ", which is few for up to {players:,} players",
    "speed.note": "For 1, 10, 100 ... targets, up to all targets of the data set. --targets does not change it.",
    "unfaithfulness.note": (
        "average over sparsity 0.3 ... 0.7, ± standard error over targets, from 0 (equal predictions) to 1"
    ),
}
