"""How long comparing the runs of a campaign takes, before there are any: alignments of made-up traces are timed.

Alignments are nearly all of it: each pair of runs is aligned once a metric on the other metrics, and once on all. The
traces that are timed have the campaign's records and metrics, and noise that keeps paths within their band.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from measure.perturbation.assay import MOST_PAIRS
from measure.perturbation.outer import ALL_PAIRS_RUNS, DEFAULT_REFERENCES
from measure.perturbation.similarity import PreparedRun, SimilarityRule, align_in_threads, prepare, similarity
from measure.runs.campaign_model import Campaign

_TIMED_PAIRS = 4
_MOST_TIMED_RECORDS = 3000  # of longer traces; the time of an alignment within a band grows with the square
_NOISE = 0.3  # standard deviation, of signals of 0.7
_WITHOUT_ALIGNMENTS_SECONDS = 0.7  # a variant and the baselines: tests, and figures of the report


@dataclass(frozen=True)
class Alignments:
    """Numbers of pairs of runs to align: each metric on the others (``held_out``), on all metrics (``joint``), and of
    the baselines' assay, one after another (``assayed``)."""

    held_out: int
    joint: int
    assayed: int


def alignments(campaign: Campaign) -> Alignments:
    """The alignments that the comparison of a campaign makes, if no run fails."""
    if not campaign.outer:
        return Alignments(0, 0, 0)
    baselines, runs = campaign.baselines, campaign.replicates
    variants = len(campaign.variant_sets())
    if baselines + runs <= ALL_PAIRS_RUNS:
        shared, each = baselines * (baselines - 1) // 2, runs * baselines + runs * (runs - 1) // 2
    else:
        references = min(DEFAULT_REFERENCES, baselines)
        shared, each = references * (baselines - references), references * runs
    compared = variants + campaign.has_controls
    held_out, joint = (shared + each * count if count else 0 for count in (compared, variants))
    return Alignments(held_out, joint, 2 * min(baselines, MOST_PAIRS) if compared else 0)


def comparing_seconds(campaign: Campaign, records: int) -> float:
    """Estimated time to compare the runs, of so many ``records`` each, on this machine if it had no other work, and to
    draw the report."""
    wanted = alignments(campaign)
    rest = _WITHOUT_ALIGNMENTS_SECONDS * (1 + len(campaign.variant_sets()))
    if not wanted.held_out:
        return rest
    timed = min(records, _MOST_TIMED_RECORDS)
    names = campaign.hardware_metrics
    made_up = [_made_up(timed, names, seed) for seed in range(_TIMED_PAIRS + 1)]
    pairs = list(pairwise(made_up))
    nothing = ((),) * len(names)
    processors = min(len(os.sched_getaffinity(0)), len(pairs))
    seconds = 0.0
    for held_out, count in ((True, wanted.held_out), (False, wanted.joint)):
        if count and (len(names) > 1 or not held_out):
            how = SimilarityRule(held_out, campaign.alignment_setting, nothing)
            similarity(*pairs[0], how)  # loads kernels
            started = time.process_time()
            align_in_threads(pairs, how, lambda done: None)
            each = (time.process_time() - started) / len(pairs) / processors
            seconds += each * count
            if held_out:
                started = time.process_time()
                similarity(*pairs[0], how)
                seconds += (time.process_time() - started) * wanted.assayed
    return rest + seconds * (records / timed) ** 2


def _made_up(records: int, names: tuple[str, ...], seed: int) -> PreparedRun:
    """A trace of waves, the same in every run, and noise."""
    rng = np.random.default_rng(seed)
    waves = np.sin(np.arange(records)[:, None] / np.linspace(5, 60, len(names)))
    return prepare(waves + rng.normal(0, _NOISE, waves.shape), names, "a made-up trace")
