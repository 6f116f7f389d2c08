"""What sparse weights take off messages, and what choosing them sends, as integers. Pure.

Of pattern 2:4 the settings tell everything. Of the others they tell how many weights of a matrix are zero, but not in
which part of it: where ranks hold parts, only the masks do, and `Zeros` has what was counted in them.
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
from hpcbench.features.prune.engine.lengths import mask_bytes, piece_length, whole_length
from hpcbench.features.prune.engine.targets import DIGIT, place_bytes, targets, units
from hpcbench.features.prune.rules import pruning
from hpcbench.features.prune.settings import Prune
from hpcbench.predict.buckets import PredictedBucket, get_itemsize
from hpcbench.predict.call import PredictedCall, RepeatedCall

_EXACT: Traffic = ("EXACT", "STEP", "OPTIM")

Counted = Sequence[Sequence[int]]
"""Zeros of each bucket of a rank, in the order in which gradients come, and of each replica's piece of it."""


class Zeros(NamedTuple):
    """Zeros of a rank's buckets in a step, as counted in the masks."""

    before: Counted
    """In the mask that the gradients have."""
    after: Counted
    """In the mask after the update, which the gathered weights have."""


def masked(
    buckets: Sequence[PredictedBucket], model: Model, train: Train, layout: Layout, *, updates: int, zeros: Zeros | None
) -> list[tuple[PredictedBucket, int]]:
    """The buckets of a rank with the lengths of their messages in the step after `updates` updates, each once."""
    prune = pruning(train)
    if prune is None:
        return [(bucket, 1) for bucket in buckets]
    found = []
    for i, bucket in enumerate(buckets):
        if zeros is not None:
            sides = [zeros.before[i], zeros.after[i]]
        else:
            sides = [_expected(bucket, model, prune, layout.replicas, count) for count in (updates, updates + 1)]
        sent, given = (_elements(bucket, train.zero, layout.replicas, side) for side in sides)
        found.append((replace(bucket, sent=sent, given=given), 1))
    return found


def _expected(bucket: PredictedBucket, model: Model, prune: Prune, replicas: int, updates: int) -> list[int]:
    """Return the zeros of each replica's piece, if they are spread evenly; 2:4 always are."""
    part = prune.part(updates)
    if prune.pattern in ("rows", "heads"):
        count = units(model, prune.pattern)
        part = Fraction(prune.zeros(count, updates), count)
    found = []
    for cut in cut_evenly(bucket.length, replicas):
        each = (max(0, min(cut.stop, end) - max(cut.start, start)) for start, end in bucket.free)
        found.append(sum(math.floor(n * part + Fraction(1, 2)) for n in each))
    return found


def _elements(bucket: PredictedBucket, zero: int, replicas: int, zeros: Sequence[int]) -> int:
    """Return the elements of a message of the bucket."""
    if not any(zeros):
        return bucket.length
    if zero == 0:
        return whole_length(bucket.length - sum(zeros), replicas)
    cuts = cut_evenly(bucket.length, replicas)
    return replicas * piece_length([count_elements(cut) - gone for cut, gone in zip(cuts, zeros, strict=True)])


def choosing(
    buckets: Sequence[PredictedBucket], model: Model, train: Train, layout: Layout, *, updates: int
) -> Iterator[RepeatedCall]:
    """Yield the calls by which ranks choose weights again in the step after `updates` updates, and tell each other."""
    prune, replicas = pruning(train), layout.replicas
    if prune is None or not prune.due(updates + 1):
        return
    all_targets = targets(model, prune.pattern)
    if prune.pattern == "unstructured":
        rounds = get_itemsize(train) + place_bytes(all_targets)
        yield PredictedCall(_EXACT, "all-reduce", len(all_targets) * DIGIT, 8, "world"), rounds
    elif prune.pattern != "2:4":
        families = len({target.family for target in all_targets})
        yield PredictedCall(_EXACT, "all-reduce", families, 8, "world"), 1
        yield PredictedCall(_EXACT, "all-reduce", families * units(model, prune.pattern), 8, "world"), 1
    for bucket in buckets if train.zero else ():
        if bucket.free:
            piece = mask_bytes(bucket.length // replicas)
            yield PredictedCall(_EXACT, "all-gather", piece * replicas, 1, "dp"), 1
    yield PredictedCall(_EXACT, "all-gather", replicas, 8, "dp"), 1
