"""From the stored runs of a campaign to its findings: what ran, what perturbs, and the summary."""
