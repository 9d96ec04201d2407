"""Makes the ground truth of a campaign: undisturbed software metrics, true positions, the sampler's own runs."""
