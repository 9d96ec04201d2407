"""Inner and outer perturbation: statistics, verdicts, findings, and their wording."""
