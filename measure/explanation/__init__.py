"""Why a relation of metrics is perturbed, by interventions on the emulated machine, and what to do about it."""
