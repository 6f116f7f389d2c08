"""Predicted traffic of sparse weights: shorter messages, and the calls that select the zeros.

For pattern 2:4, the settings determine the lengths of all messages. For the other patterns, the settings determine the
number of zeros of a matrix, but the number of zeros in each rank's part depends on the masks. `Zeros` contains counts
from the masks.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from hpcbench.contract.layout import Layout
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.engine.lengths import compute_piece_length, compute_whole_length, count_mask_bytes
from hpcbench.features.prune.engine.targets import DIGIT, count_place_bytes, count_units, list_targets
from hpcbench.features.prune.rules import resolve_pruning
from hpcbench.features.prune.settings import Prune
from hpcbench.predict.buckets import PredictedBucket, get_itemsize
from hpcbench.predict.call import PredictedCall, RepeatedCall

_EXACT: Traffic = ("EXACT", "STEP", "OPTIM")

Counted = Sequence[Sequence[int]]
"""Number of zeros, indexed by bucket (in the order of the gradients) and by the replica that owns the piece."""


class Zeros(NamedTuple):
    """Numbers of zeros in a rank's buckets in one step, taken from the masks."""

    before: Counted
    """Zeros in the mask that applies to the gradients."""
    after: Counted
    """Zeros in the mask after the update, which applies to the gathered weights."""


def list_masked_buckets(
    buckets: Sequence[PredictedBucket], model: Model, train: Train, layout: Layout, *, updates: int, zeros: Zeros | None
) -> list[tuple[PredictedBucket, int]]:
    """Return pairs of a bucket, with its message lengths after `updates` updates, and the number 1."""
    prune = resolve_pruning(train)
    if prune is None:
        return [(bucket, 1) for bucket in buckets]
    lengths = []
    for i, bucket in enumerate(buckets):
        if zeros is not None:
            sides = [zeros.before[i], zeros.after[i]]
        else:
            sides = [_expected(bucket, model, prune, layout.replicas, count) for count in (updates, updates + 1)]
        sent, given = (_elements(bucket, train.zero, layout.replicas, side) for side in sides)
        lengths.append((replace(bucket, sent=sent, given=given), 1))
    return lengths


def _expected(bucket: PredictedBucket, model: Model, prune: Prune, replicas: int, updates: int) -> list[int]:
    """Return the number of zeros in each replica's piece, assuming an even distribution (exact for 2:4)."""
    part = prune.compute_fraction(updates)
    if prune.pattern in ("rows", "heads"):
        count = count_units(model, prune.pattern)
        part = Fraction(prune.count_zeros(count, updates), count)
    zeros = []
    for cut in cut_evenly(bucket.length, replicas):
        each = (max(0, min(cut.stop, end) - max(cut.start, start)) for start, end in bucket.free)
        zeros.append(sum(math.floor(n * part + Fraction(1, 2)) for n in each))
    return zeros


def _elements(bucket: PredictedBucket, zero: int, replicas: int, zeros: Sequence[int]) -> int:
    """Return the message length of a bucket in elements."""
    if not any(zeros):
        return bucket.length
    if zero == 0:
        return compute_whole_length(bucket.length - sum(zeros), replicas)
    cuts = cut_evenly(bucket.length, replicas)
    return replicas * compute_piece_length([count_elements(cut) - gone for cut, gone in zip(cuts, zeros, strict=True)])


def list_choice_calls(
    buckets: Sequence[PredictedBucket], model: Model, train: Train, layout: Layout, *, updates: int
) -> Iterator[RepeatedCall]:
    """Yield the calls for weight selection and mask exchange in the step after `updates` updates."""
    prune, replicas = resolve_pruning(train), layout.replicas
    if prune is None or not prune.is_due(updates + 1):
        return
    all_targets = list_targets(model, prune.pattern)
    if prune.pattern == "unstructured":
        rounds = get_itemsize(train) + count_place_bytes(all_targets)
        yield PredictedCall(_EXACT, "all-reduce", len(all_targets) * DIGIT, 8, "world"), rounds
    elif prune.pattern != "2:4":
        families = len({target.family for target in all_targets})
        yield PredictedCall(_EXACT, "all-reduce", families, 8, "world"), 1
        yield PredictedCall(_EXACT, "all-reduce", families * count_units(model, prune.pattern), 8, "world"), 1
    for bucket in buckets if train.zero else ():
        if bucket.free:
            piece = count_mask_bytes(bucket.length // replicas)
            yield PredictedCall(_EXACT, "all-gather", piece * replicas, 1, "dp"), 1
    yield PredictedCall(_EXACT, "all-gather", replicas, 8, "dp"), 1
