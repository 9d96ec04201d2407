"""Campaigns that tell what instrumentation perturbs: plan, run, store, analyse, report."""
