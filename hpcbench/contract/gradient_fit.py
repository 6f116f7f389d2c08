"""Rules for schemes that change gradients: which matrices have low-rank sums, and which runs allow each mechanism."""

import math
from collections.abc import Iterable, Sequence

from hpcbench.contract.scheme import Scheme
from hpcbench.contract.training import UNFLUSHED, Train

LEAST_RATE = 2
"""Minimum ratio of the number of elements in a matrix to the number of elements in its factors."""


def matrix_shape(shape: Sequence[int], rank: int) -> tuple[int, int] | None:
    """Return a gradient's shape as a matrix (n, m), or None if factors of this rank would not be small enough."""
    if len(shape) < 2:
        return None
    rows, columns = shape[0], math.prod(shape[1:])
    return (rows, columns) if (rows + columns) * rank * LEAST_RATE < rows * columns else None


def count_factors(shapes: Iterable[Sequence[int]], rank: int) -> tuple[int, int] | None:
    """Return the sizes of the two messages that replace a bucket's gradients, or None if no matrix is suitable.

    The first message also contains the gradients that are not approximated.
    """
    left = right = others = 0
    for shape in shapes:
        matrix = matrix_shape(shape, rank)
        if matrix is None:
            others += math.prod(shape)
            continue
        left, right = left + matrix[0] * rank, right + matrix[1] * rank
    return (left + others, right) if left else None


def find_average_misfit(scheme: Scheme, train: Train) -> str | None:
    """Return why the residuals of a run cannot be averaged or reset, or None if they can."""
    if train.sync == "all-reduce" or not any(rule.feedback_average or rule.feedback_reset for rule in scheme.rules):
        return None
    return (
        f"sync {train.sync} sends gradients to servers, and the errors of servers are neither averaged nor reset: use "
        "all-reduce, or leave feedback_average and feedback_reset out"
    )


def find_difference_misfit(scheme: Scheme, train: Train) -> str | None:
    """Return why a run cannot gather weight differences, or None if it can."""
    if not any(rule.differences for rule in scheme.rules):
        return None
    if train.zero == 3:
        return (
            "differences adds to the weights of the previous gather, but train.zero 3 frees weights after their use: "
            "set train.zero to 1 or 2, or leave differences out"
        )
    if train.sync != "all-reduce":
        return (
            f"differences adds to the weights of the previous gather, but with sync {train.sync} workers read weights "
            "at different times: use all-reduce, or leave differences out"
        )
    return None


def find_low_rank_misfit(scheme: Scheme, train: Train) -> str | None:
    """Return why low-rank sums cannot replace gradient sums in a run, or None if they can."""
    if not any(rule.low_rank for rule in scheme.rules):
        return None
    what = "low_rank sums the whole gradient of a step"
    if train.zero > 1:
        return f"{what}, but train.zero {train.zero} sums pieces in each micro-batch: set train.zero to 0 or 1"
    if train.optimizer == "onebit-adam":
        return f"{what}, but the momenta of 1-bit Adam replace gradients: use optimizer adamw"
    if train.prune is not None:
        return f"{what} as matrices, but train.prune removes values from its messages: leave one of the two out"
    if train.sync != "all-reduce":
        return f"{what}, but sync {train.sync} sends shards to servers: use all-reduce"
    if train.schedule in UNFLUSHED:
        return f"{what}, but schedule {train.schedule} does not end its steps: use schedule 1f1b"
    return None
