"""Constraints that the mechanisms of a scheme, such as low-rank sums, impose on the settings of a run."""

import math
from collections.abc import Iterable, Sequence

from hpcbench.contract import rules
from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import TrafficSettings
from hpcbench.contract.training import UNFLUSHED, Data, Train

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


def explain_scheme_misfit(scheme: Scheme, setting: TrafficSettings, data: Data) -> str | None:
    """Return why the rules of a scheme contradict each other or the settings of a run, or None if they do not."""
    return (
        rules.find_schedule_misfit(scheme, setting.train)
        or find_low_rank_misfit(scheme, setting.train)
        or find_width_misfit(scheme, setting.train)
        or find_average_misfit(scheme, setting.train)
        or find_sample_misfit(scheme, setting.train, data, setting.layout)
        or find_difference_misfit(scheme, setting.train)
        or rules.explain_wrong_gradients(scheme, setting)
        or rules.explain_drifting_copies(scheme, setting)
    )


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
    if train.schedule in UNFLUSHED:
        return f"{what}, but schedule {train.schedule} does not end its steps: use schedule 1f1b"
    return _find_changed_gradients(what, train)


def find_width_misfit(scheme: Scheme, train: Train) -> str | None:
    """Return why a run cannot send gradients with mixed widths, or None if it can."""
    if not any(rule.mixed_bits for rule in scheme.rules):
        return None
    return _find_changed_gradients("mixed_bits splits gradients by width", train)


def _find_changed_gradients(what: str, train: Train) -> str | None:
    """Return which setting sends something other than whole gradients, or None. `what` names the mechanism."""
    if train.optimizer == "onebit-adam":
        return f"{what}, but the momenta of 1-bit Adam replace gradients: use optimizer adamw"
    if train.prune is not None:
        return f"{what}, but train.prune removes values from messages: leave one of the two out"
    if train.sync != "all-reduce":
        return f"{what}, but sync {train.sync} sends shards to servers: use all-reduce"
    return None


def find_sample_misfit(scheme: Scheme, train: Train, data: Data, layout: Layout) -> str | None:
    """Return why both stages cannot keep the activations of samples in a run, or None if they can."""
    if not any(rule.sample_changes for rule in scheme.rules):
        return None
    what, batch = "sample_changes sends changes since a sample was last seen", train.global_batch
    if data.samples is None:
        return f"{what}, but training samples never recur: set data.samples, or leave sample_changes out"
    if data.samples % batch:
        return (
            f"{what} by the same replica, but data.samples {data.samples} is not a multiple of train.global_batch "
            f"{batch}: set data.samples to {-(-data.samples // batch) * batch}"
        )
    if data.samples >= train.steps * batch:
        return (
            f"{what}, but no sample recurs in {train.steps} steps of {batch} samples: set data.samples below "
            f"{train.steps * batch}, or leave sample_changes out"
        )
    if train.schedule in UNFLUSHED:
        return f"{what}, but schedule {train.schedule} does not end its steps: use schedule 1f1b"
    if layout.tensor != "1d":
        return f"{what}, but layout.tensor {layout.tensor} splits samples over ranks: use layout.tensor 1d"
    return None
