"""Ground truth: undisturbed software metrics, true alignments, and the sampler's own perturbation."""
