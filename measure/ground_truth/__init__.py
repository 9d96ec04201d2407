"""What no real machine has: undisturbed software metrics, true positions, and the cost of the sampler itself."""
