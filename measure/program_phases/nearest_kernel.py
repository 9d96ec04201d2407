"""Kernels that find the nearest centre of every point: estimated in single precision, decided in double.

Points are measured 64 at a time, side by side, so that the processor's vectors are used. An estimate, half the square
of the centre less the dot product, costs one multiply-add per dimension. Only if the two best estimates are closer
than the possible rounding error, squared distances are summed in double precision, in the order of the dimensions. So
labels equal those of a plain loop, bit for bit, for about a sixth of its work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel, relaxed_kernel

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Labels = NDArray[np.int32]

WIDTH = 64  # points measured together
_CHUNK = 15  # dimensions summed together; the usual number of them
_SINGLE = 2.0**-24  # relative rounding of single precision
_DOUBLE = 2.0**-53


class Blocks(NamedTuple):
    """Points (n, d) in blocks of `WIDTH`; places beyond the last point repeat it.

    ``exact`` (blocks, d x WIDTH): dimension after dimension; ``rough`` (blocks, padded d x WIDTH): less ``shift`` (d,)
    and times ``scale``, so that none is beyond 1 (0: no estimates); ``squares`` (blocks, WIDTH): their squared
    lengths; ``reach``: the greatest length.
    """

    exact: Floats
    rough: Singles
    squares: Singles
    shift: Floats
    scale: float
    reach: float


class Scratch(NamedTuple):
    """Work space of `assign_with`: ``centres`` (k, padded d) and ``halves`` (k,) of the centres as estimates need them,
    ``scores`` (WIDTH,), ``near`` (2 x WIDTH,), ``best`` (WIDTH,), ``exact_near`` (2 x WIDTH,), ``sums`` (WIDTH,)."""

    centres: Singles
    halves: Singles
    scores: Singles
    near: Singles
    best: Labels
    exact_near: Floats
    sums: Floats


def blocks_of(points: Floats) -> Blocks:
    """``points`` (n, d), n > 0, in the layout that `assign` needs."""
    n, dimensions = points.shape
    padded = (dimensions + _CHUNK - 1) // _CHUNK * _CHUNK
    count = (n + WIDTH - 1) // WIDTH
    exact = np.empty((count, dimensions * WIDTH))
    rough = np.zeros((count, padded * WIDTH), np.float32)
    squares = np.empty((count, WIDTH), np.float32)
    shift, about = np.zeros(dimensions), np.zeros(2)
    _fill_blocks(np.ascontiguousarray(points), exact, rough, squares, shift, about)
    return Blocks(exact, rough, squares, shift, float(about[0]), float(about[1]))


def scratch_for(blocks: Blocks, k: int) -> Scratch:
    """Work space for ``k`` centres."""
    single = np.float32
    return Scratch(
        np.zeros((k, blocks.rough.shape[1] // WIDTH), single), np.empty(k, single), np.empty(WIDTH, single),
        np.empty(2 * WIDTH, single), np.empty(WIDTH, np.int32), np.empty(2 * WIDTH), np.empty(WIDTH),
    )  # fmt: skip


def assign(blocks: Blocks, centres: Floats, moved: float, labels: Labels, margins: Floats) -> None:
    """Give each point its nearest centre, the lowest on ties; see `assign_with`."""
    centres = np.ascontiguousarray(centres)
    assign_with(blocks, centres, float(moved), labels, margins, scratch_for(blocks, len(centres)))


def nearest_centres(points: Floats, blocks: Blocks, centres: Floats) -> tuple[Labels, Floats]:
    """(n,) nearest centre of each point, the lowest on ties, and (n,) squared distance to it."""
    labels = np.zeros(points.shape[0], np.int32)
    assign(blocks, centres, 0.0, labels, np.full(blocks.exact.shape[0], -1.0))
    return labels, squares_to(points, centres, labels)


def squares_to(points: Floats, centres: Floats, labels: Labels) -> Floats:
    """(n,) squared distance of each point to the centre that its label names."""
    squares = np.empty(labels.size)
    _fill_squares(np.ascontiguousarray(points), np.ascontiguousarray(centres), labels, squares)
    return squares


@kernel
def _fill_blocks(points: Floats, exact: Floats, rough: Singles, squares: Singles, shift: Floats, about: Floats) -> None:
    """Fill the arrays of `Blocks` from ``points``; ``about`` gets scale and reach."""
    n, dimensions = points.shape
    for i in range(n):
        for j in range(dimensions):
            shift[j] += points[i, j] / n
    furthest = 0.0
    for i in range(n):
        for j in range(dimensions):
            furthest = max(furthest, abs(points[i, j] - shift[j]))
    # Points whose squares double precision does not hold well get scale 0: no estimate is trusted, all are decided.
    scale = 1.0 / furthest if 1e-130 < furthest < 1e130 else 0.0
    longest = 0.0
    for place in range(exact.shape[0] * WIDTH):
        block, lane = place // WIDTH, place % WIDTH
        i = min(place, n - 1)
        square = 0.0
        for j in range(dimensions):
            value = (points[i, j] - shift[j]) * scale
            exact[block, j * WIDTH + lane] = points[i, j]
            rough[block, j * WIDTH + lane] = value
            square += value * value
        squares[block, lane] = square
        longest = max(longest, square)
    about[0] = scale
    about[1] = np.sqrt(longest)


@kernel
def fifteen(row: Singles, first: int) -> tuple[float, ...]:
    """``_CHUNK`` numbers from ``first`` on, which then stay in registers."""
    r = row[first : first + _CHUNK]
    return (r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14])


@relaxed_kernel
def dot(x: Singles, c: tuple[float, ...], i: int) -> float:
    """Dot product of ``_CHUNK`` dimensions of the point at ``i`` and of a centre; three sums that are independent."""
    w = WIDTH
    r = x[i] * c[0] + x[w + i] * c[1] + x[2 * w + i] * c[2] + x[3 * w + i] * c[3] + x[4 * w + i] * c[4]
    s = x[5 * w + i] * c[5] + x[6 * w + i] * c[6] + x[7 * w + i] * c[7] + x[8 * w + i] * c[8] + x[9 * w + i] * c[9]
    t = x[10 * w + i] * c[10] + x[11 * w + i] * c[11] + x[12 * w + i] * c[12] + x[13 * w + i] * c[13]
    return r + s + (t + x[14 * w + i] * c[14])


@relaxed_kernel
def estimate(block: Singles, centres: Singles, halves: Singles, scores: Singles, near: Singles, best: Labels) -> None:
    """Half the squared distance to the nearest and to the second nearest centre, less half the point's own square.

    ``block`` (padded d x WIDTH,), ``centres`` (k, padded d), ``halves`` (k,): half of their squares. Sets ``near``
    (2 x WIDTH,): the nearest's, then the second's; ``best`` (WIDTH,). ``scores`` (WIDTH,) is scratch.
    """
    near[:] = np.float32(np.inf)
    best[:] = 0
    last = centres.shape[1] - _CHUNK
    for centre in range(centres.shape[0]):
        number = np.int32(centre)
        scores[:] = halves[centre]
        for first in range(0, last, _CHUNK):
            x, c = block[first * WIDTH :], fifteen(centres[centre], first)
            for i in range(WIDTH):
                scores[i] -= dot(x, c, i)
        x, c = block[last * WIDTH :], fifteen(centres[centre], last)
        for i in range(WIDTH):
            score, least, runner = scores[i] - dot(x, c, i), near[i], near[WIDTH + i]
            farther = least if score < least else score
            near[WIDTH + i] = farther if farther < runner else runner
            near[i] = score if score < least else least
            best[i] = number if score < least else best[i]


@relaxed_kernel
def closest_call(near: Singles, squares: Singles, blur: np.float32) -> tuple[np.float32, np.float32]:
    """For a block: the least difference of the two estimates in ``near``, and of the distances that they estimate.

    ``squares`` (WIDTH,): of the points; ``blur``: possible error of squared distances, subtracted from the second.
    """
    gap, margin = np.float32(np.inf), np.float32(np.inf)
    two, nothing = np.float32(2.0), np.float32(0.0)
    for i in range(WIDTH):
        difference = near[WIDTH + i] - near[i]
        own = squares[i] + two * near[i] + blur
        other = squares[i] + two * near[WIDTH + i] - blur
        apart = np.sqrt(other if other > nothing else nothing) - np.sqrt(own if own > nothing else nothing)
        gap = difference if difference < gap else gap
        margin = apart if apart < margin else margin
    return gap, margin


@kernel
def decide(block: Floats, centres: Floats, near: Floats, best: Labels, sums: Floats) -> None:
    """As `estimate`, exactly: squared distances summed over the dimensions in order, the lowest centre on ties.

    ``block`` (d x WIDTH,), ``centres`` (k, d); ``near`` (2 x WIDTH,) gets the two least squared distances.
    ``sums`` (WIDTH,) is scratch.
    """
    dimensions = centres.shape[1]
    whole = dimensions - dimensions % 5
    near[:] = np.inf
    best[:] = 0
    for centre in range(centres.shape[0]):
        number = np.int32(centre)
        sums[:] = 0.0
        for j in range(0, whole, 5):
            x = block[j * WIDTH : (j + 5) * WIDTH]
            c = centres[centre, j : j + 5]
            c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
            for i in range(WIDTH):
                e0, e1, e2 = x[i] - c0, x[WIDTH + i] - c1, x[2 * WIDTH + i] - c2
                e3, e4 = x[3 * WIDTH + i] - c3, x[4 * WIDTH + i] - c4
                sums[i] = ((((sums[i] + e0 * e0) + e1 * e1) + e2 * e2) + e3 * e3) + e4 * e4
        for j in range(whole, dimensions):
            c0 = centres[centre, j]
            x = block[j * WIDTH : (j + 1) * WIDTH]
            for i in range(WIDTH):
                e0 = x[i] - c0
                sums[i] += e0 * e0
        for i in range(WIDTH):
            square, least, runner = sums[i], near[i], near[WIDTH + i]
            farther = least if square < least else square
            near[WIDTH + i] = farther if farther < runner else runner
            near[i] = square if square < least else least
            best[i] = number if square < least else best[i]


@kernel
def assign_with(
    blocks: Blocks, centres: Floats, moved: float, labels: Labels, margins: Floats, scratch: Scratch
) -> None:
    """Give each point its nearest centre, the lowest on ties.

    ``margins`` (blocks,): lower bound, over the points of a block, of how much farther the nearest other centre is than
    the own one; no centre has moved by more than ``moved`` since, and blocks whose margin is larger keep their labels
    (the triangle inequality; Hamerly, "Making k-means even faster", SDM 2010, section 3). Negative: measure. Sets
    ``labels`` (n,).
    """
    n, (k, dimensions) = labels.size, centres.shape
    centres_rough, halves = scratch.centres, scratch.halves
    scores, near, best, exact_near = scratch.scores, scratch.near, scratch.best, scratch.exact_near
    farthest = 0.0
    for centre in range(k):
        square = 0.0
        for j in range(dimensions):
            value = (centres[centre, j] - blocks.shift[j]) * blocks.scale
            centres_rough[centre, j] = value
            square += value * value
        halves[centre] = 0.5 * square
        farthest = max(farthest, square)
    farthest = np.sqrt(farthest)
    reach = blocks.reach
    span = (reach + farthest) ** 2
    # Error of an estimate: numbers rounded to single precision, and a sum rounded once per dimension, with half as much
    # again for second orders; and the error of the squared distances in double precision that it estimates.
    rounding = 1.5 * (dimensions + 4) * _SINGLE * (0.5 * farthest * farthest + reach * farthest)
    rounding += 4.0 * (dimensions + 4) * _DOUBLE * span
    blur = 2.0 * rounding + 8.0 * _SINGLE * span  # of an estimated squared distance
    for block in range(margins.size):
        margins[block] -= 2.0 * moved * blocks.scale
        if margins[block] > 0.0:
            continue
        estimate(blocks.rough[block], centres_rough, halves, scores, near, best)
        gap, margin = closest_call(near, blocks.squares[block], np.float32(blur))
        if gap <= 2.0 * rounding:
            decide(blocks.exact[block], centres, exact_near, best, scratch.sums)
            margin = np.inf
            for i in range(WIDTH):
                margin = min(margin, np.sqrt(exact_near[WIDTH + i]) - np.sqrt(exact_near[i]))
            margin *= blocks.scale
        margins[block] = margin - 1e-6 * (reach + farthest)
        first = block * WIDTH
        for i in range(min(WIDTH, n - first)):
            labels[first + i] = best[i]


@kernel
def squared_distance(a: Floats, b: Floats) -> float:
    """Squared Euclidean distance of two rows."""
    total = 0.0
    for j in range(a.size):
        difference = a[j] - b[j]
        total += difference * difference
    return total


@kernel
def _fill_squares(points: Floats, centres: Floats, labels: Labels, squares: Floats) -> None:
    for i in range(labels.size):
        squares[i] = squared_distance(points[i], centres[labels[i]])
