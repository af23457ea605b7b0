"""Texts of reports, of tables of a benchmark and of summaries."""

MESSAGES = {
    "report.measuring": "Measuring {metric} on {count} {split} {task}s.",
    "report.examples": "Measuring time and choosing examples.",
    "reproduce.parallel": "{jobs} data sets at a time. Their output is in {out}/*.log.",
    "reproduce.measured": "{name} is measured.",
    "summary.class_of_no_target": "the class must be predicted for some {task} of the split '{split}' (got {got}).",
    "summary.sampled": "summing up {count:,} of {total:,} {task}s, drawn at random{hint}",
    "eval.not_kept": "the table of {metric} cannot be kept in {folder} ({reason}).",
    # what was explained
    "report.data": "Data: {name} ({source}), {size}, {outputs}.",
    "report.model": "Model: {name}, a black box to the explainer: only its outputs are used, no gradients or hidden "
    "layers.",
    "report.players": "The {value} of the predicted class is explained for every {task}. The players are {players}. A "
    "player's score estimates its removal-based attribution φ (Eq. 5 of the paper, the Banzhaf value): the mean "
    "value over random coalitions with the player, minus the mean over those without it. A positive score supports "
    "the class, a negative one opposes it.",
    "report.explainer": "Explainer: LARA, a small network trained on {learners} without labels. After training a "
    "score is a dot product without model calls.",
    "report.corrected_explainer": "Explainer: LARA, a small network trained on {learners} without labels. After "
    "training a score is a dot product, corrected by {pairs:,} pairs of coalitions that training evaluated "
    "(“amortised” in the tables: not corrected). Neither form needs further model calls.",
    "report.trained": "{steps} steps. The weights with the best validation agreement ({agreement:.3f}) are used.",
    # how good it is
    "report.accuracy": "The model is right on {accuracy:.1%} of the test {task}s of {name}.",
    "report.agreement": "The explainer's scores agree with the true attribution with R² = {r2} on {count} {split} "
    "{task}s (1 is perfect, the noise of the reference is taken out).",
    "report.agreement_of_neighbours": "Over the neighbours alone R² is {r2}.",
    "report.fidelity": "Δ fidelity{kept} is {lara}. Players ranked by chance reach {random}.",
    "report.speed": "One explanation takes {milliseconds:.1f} ms with a trained explainer.",
    "report.rough": "unknown with so few reference pairs (--reference-pairs)",
    "report.truth_of_some": "These are the {count} targets with a motif, of {measured} measured.",
    "report.machine": "Measured on {machine} {device} with {threads} thread(s), median of three after a warm-up "
    "(sampled: one).",
    "verdict.unknown": "Direct sampling was left out, so the difference to a costly direct estimate is unknown.",
    "verdict.equal": "LARA and {sampled} do not differ significantly {figures}.",
    "verdict.better": "LARA is better than {sampled} {figures}.",
    "verdict.worse": "LARA is worse than {sampled} {figures}.",
    "verdict.figures": "(difference of Δ {gap:+.2f}, standard error about {error:.2f})",
    # examples
    "examples.chosen": "Of {count} {split} {task}s, those with the highest, middle and lowest Δ fidelity of their "
    "own{kept}. Δ has the unit of the {value}, so targets with a high {value} rank higher.",
    "examples.removed": "Removed together: {names}.",
    "examples.wrong": "The prediction is wrong: the label is {label}.",
    "examples.fidelity": "Δ fidelity {delta:.2f}.",
    # caveats
    "caveat.not_causal": "Explanations describe this model, not the world. They are not causal statements about the "
    "data, and a wrong prediction can be explained faithfully.",
    "caveat.unusual_inputs": "Removing {players} makes inputs that the model was not trained on. Its outputs for "
    "them, on which attribution and fidelity rest, may be unusual.",
    "caveat.estimates": "Scores are estimates. Agreement is measured over all {count} targets, and single errors can "
    "be much larger. Check important explanations by direct sampling.",
    "caveat.model_errors": "The model is wrong on {share:.1%} of the {count} targets measured here. Their "
    "explanations explain the mistake.",
    "caveat.own_attribution": "R² is dominated by the large attribution of the target itself. Over the neighbours "
    "alone it is {r2}.",
    "caveat.low_agreement": "Agreement is low (R² {r2:.2f}, below {least}). Do not rely on these explanations. Train "
    "longer, or on all targets (--train-on all).",
    "caveat.trained_on_targets": "The explainer was trained on the targets measured here, so the figures do not hold "
    "for other targets.",
    "caveat.few_targets": "Only {count} targets were measured, so the standard errors are rough.",
    "caveat.other_data": "The data are not the original ones: {source}.",
    "caveat.best_examples": "The best examples of any method look good, so typical and worst ones are shown too.",
    # notes of a benchmark
    "benchmark.best": "* best of the column without {floor}",
    "benchmark.speed": "Times faster: LARA without corrections against the method of the row, in turns in one "
    "process. Corrected rows of LARA are compared with it too. Stored: LARA has its embeddings from before. Latency "
    "for a number of targets is that number divided by targets/s.",
    "benchmark.fidelity": "F+, F-, Delta (F+ high, F- low is good): average over sparsity 0.3 ... 0.7",
    "benchmark.fidelity_kept": "kept: the target itself stays",
    "benchmark.seeds": "±: standard deviation over seeds",
    "benchmark.truth": "rank correlation, R2: with the true attribution",
    "benchmark.cost": "Nodes that the model was given, over all graphs and for each target. Training is shared by all "
    "targets. Backward passes and the prediction on the full graph are not counted.",
    "benchmark.above_one": "An R2 above 1 is noise, since the noise of the true attribution is taken out "
    "approximately. The best is chosen as if it were 1.",
    "benchmark.scale": "R2 needs scores on the scale of the true attribution. Use the rank correlation for methods "
    "with another scale.",
    "benchmark.auc": "AUC ranks players by their signed scores, AUC |score| by their size. A node of the true motif "
    "may oppose the predicted class: then a faithful signed score is low, but scores without a sign (OrphicX, edge "
    "masks) are not.",
    "benchmark.markdown": "Mean ± standard deviation over seeds, best in bold.",
}
