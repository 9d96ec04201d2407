"""Checks that sampling by phases does not perturb what its traces say."""
