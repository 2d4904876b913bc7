"""K-means: centroids of vectors, by products of matrices over a sample in memory.

Each round runs on the whole sample: rounds on a part of it lead to partitions that are less even, and to larger errors
of the codes, which cost recall. Instead centroids are moved a little beyond the means of their vectors, which takes
half as many rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.index.vector.distances import products, squared_norms

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.index.vector.distances import Int64s, Vectors

_BLOCK_ITEMS = 1 << 21
"""Products at a time: threads of BLAS wait for each other in loops, in smaller blocks for longer than they compute."""
_TOLERANCE = 5e-4
_BEYOND = 0.4
"""How far centroids go beyond the means, as a share of the way there; below 1 the loss falls in each round."""


def nearest_centroids(vectors: Vectors, centroids: Vectors) -> tuple[Int64s, npt.NDArray[Any]]:
    """Return the nearest centroid of each vector by L2, and the score that it is chosen by.

    Args:
        vectors: Shape (n, dimensions).
        centroids: Shape (k, dimensions), of the same type.

    Returns:
        Numbers of centroids, and ``v.c - |c|^2 / 2``, which is largest for the nearest; both of shape (n,).
    """
    # A last item of 1 in vectors and of -|c|^2 / 2 in centroids makes the product the whole score.
    factors = np.concatenate([centroids, -0.5 * squared_norms(centroids)[:, None]], axis=1)
    step = max(256, _BLOCK_ITEMS // len(centroids))
    numbers, scores = np.empty(len(vectors), np.int64), np.empty(len(vectors), vectors.dtype)
    extended = np.ones((min(step, len(vectors)), vectors.shape[1] + 1), vectors.dtype)
    for start in range(0, len(vectors), step):
        part = vectors[start : start + step]
        block = extended[: len(part)]
        block[:, :-1] = part
        every = products(block, factors)
        best = every.argmax(axis=1)
        numbers[start : start + step] = best
        scores[start : start + step] = every[np.arange(len(part)), best]
    return numbers, scores


def train_centroids(sample: Vectors, count: int, *, max_rounds: int, rng: np.random.Generator) -> tuple[Vectors, float]:
    """Find centroids of a sample.

    Args:
        sample: Shape (n, dimensions), float32 or float64, finite.
        count: Number of centroids; those that are more than the vectors repeat some.
        max_rounds: Rounds at most.
        rng: Where chance comes from.

    Returns:
        Centroids of shape (count, dimensions), and the sum of squared distances to them.
    """
    if len(sample) <= count:
        return sample[np.arange(count) % len(sample)], 0.0
    centroids = sample[rng.choice(len(sample), count, replace=False)]
    total = float(squared_norms(sample).sum(dtype=np.float64))
    means, loss, before = centroids, np.inf, np.inf
    for _ in range(max_rounds):
        numbers, scores = nearest_centroids(sample, centroids)
        loss = max(total - 2 * float(scores.sum(dtype=np.float64)), 0.0)
        means, is_empty = _means(sample, numbers, centroids, rng)
        if before - loss <= _TOLERANCE * loss:
            break
        before = loss
        centroids = means + np.where(is_empty[:, None], 0, _BEYOND * (means - centroids)).astype(means.dtype)
    return means, loss


def _means(
    sample: Vectors, numbers: Int64s, centroids: Vectors, rng: np.random.Generator
) -> tuple[Vectors, npt.NDArray[np.bool_]]:
    """Return the mean of the vectors of each centroid, and which have none: these split the largest ones."""
    # In the order of their centroids the vectors of one stand in a row, so that one reduction sums up all of them. A
    # centroid without vectors takes a random one out of the row of a large centroid, each of another one.
    counts = np.bincount(numbers, minlength=len(centroids))
    order = np.argsort(numbers, kind="stable")
    there = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[there]
    means = centroids.copy()
    means[there] = np.add.reduceat(sample[order], starts, axis=0) / counts[there, None].astype(sample.dtype)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        largest = np.argsort(-counts, kind="stable")[: len(empty)]
        ends = (np.cumsum(counts))[largest]
        means[empty] = sample[order[ends - 1 - rng.integers(0, counts[largest])]]
    return means, counts == 0
