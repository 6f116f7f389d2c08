"""Context-parallel runs and their references."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations

import cases
from cases import FREE, Case, Comparison, is_valid
from covering import cover_sample, every_case

CP = "layout.cp+layout.context"
COMMON: Case = {"train.seq_len": 24}
"""Number of positions that four ranks in a ring can split, and tensor-parallel ranks can split again."""

SAMPLED = (*COMMON, "train.eval_samples")
"""Sample settings, which the single-process reference uses as well."""

AXES = {CP: ((4, "ring"), (2, "rsa"), (2, "ulysses")), **cases.AXES}
"""Each method with two and four ranks, combined with all axes of the case grid."""

FILLS = 12


def fits(settings: Case) -> bool:
    return is_valid({**settings, **COMMON})


def make_comparison(settings: Case, against: Case | None = None, fault: str | None = None) -> Comparison:
    """Compare a context-parallel run with a reference, by default a run in one process."""
    settings = {**settings, **COMMON}
    alone = {name: value for name, value in settings.items() if name.startswith("model") or name in SAMPLED}
    return Comparison(settings, alone if against is None else {**against, **COMMON}, fault)


@cache
def possible() -> list[Case]:
    return every_case(AXES, fits)


@cache
def contexts() -> list[Comparison]:
    """Return cases that combine every method with each valid value of every other setting."""
    pairs = [pair for pair in combinations([*AXES, *FREE], 2) if CP in pair]
    return [make_comparison(case) for case in cover_sample(possible(), FREE, FILLS, pairs=pairs)]


def grid_contexts() -> Iterator[Comparison]:
    """Yield cases on tensor grids."""
    on_grid: Case = {"layout.tp": 4, "layout.tensor": "2d", "model.layers": 2, "model.vocab": 260}
    for model, way in (("gpt2", "ring"), ("neox", "rsa"), ("gpt2", "ulysses")):
        settings = {"model": model, **on_grid, CP: (2, way), **SAMPLES}
        yield make_comparison(
            settings, {**{name: settings[name] for name in settings if name.startswith("model")}, **SAMPLES}
        )


SAMPLES: Case = {"train.eval_samples": 8, "train.global_batch": 8, "train.micro_batch": 2}


WAYS = ("ring", "rsa", "ulysses")
SMALL: Case = {"model.layers": 2, "train.global_batch": 4, "train.micro_batch": 2}


def stepped_contexts() -> Iterator[Comparison]:
    """Yield a two-step run per method.

    The second step covers nonzero moments and gradients of updated weights.
    """
    common: Case = {"model": "gpt2", **SMALL, "train.eval_samples": 4}
    yield make_comparison({**common, CP: (2, "ring"), "layout.dp": 2, "train.zero": 2})
    yield make_comparison({**common, CP: (2, "rsa"), "layout.tp": 2, "train.zero": 3})
    yield make_comparison({**common, CP: (2, "ulysses"), "layout.pp": 2, "train.zero": 0})


def lossless_contexts() -> Iterator[Comparison]:
    """Compare a lossless codec with the same algorithm without a codec."""
    for way in WAYS:
        common = {"model": "gpt2", **SMALL, CP: (4, way), "train.precision": "fp32"}
        yield make_comparison({**common, "scheme": "naive-mpc"}, {**common, "scheme": "identity"})


def lossy_contexts() -> Iterator[Comparison]:
    """Use 8-bit integers for all traffic.

    Errors must stay within the bound, and replicated values must be identical.
    """
    for way in WAYS:
        common = {"model": "gpt2", **SMALL, CP: (4, way), "train.precision": "fp32"}
        yield make_comparison({**common, "scheme": "naive-int8"}, {**common, "scheme": "identity"})


def bit_equal_contexts() -> Iterator[Comparison]:
    """Yield settings that preserve the summation order, so results must be bitwise identical."""
    others = {"train.overlap": True, "train.zero": 1, "train.recompute": "selective"}
    for way in WAYS:
        plain = {"model": "neox", **SMALL, "scheme": "identity", "train.clip": 0.0, CP: (4, way), "train.zero": 0}
        plain["train.overlap"] = False
        yield make_comparison({**plain, **others}, plain)


RING: Case = {CP: (2, "ring")}
ROWS: Case = {CP: (2, "rsa")}
REPLICAS: Case = {**ROWS, "layout.dp": 2, "train.eval_samples": 4}
"""Runs in which all replicas have the same number of samples.

If the numbers differed, ranks could wait for each other forever.
"""
HEADS: Case = {CP: (2, "ulysses")}
FAULTY: dict[str, tuple[Case, str]] = {
    "mask_off_by_one_block": (RING, "loss"),
    "stale_block": (RING, "loss"),
    "blocks_never_weighed_again": (RING, "loss"),
    "share_of_the_own_block": (RING, "gradients"),
    "sums_stay": (ROWS, "gradients"),
    "heads_in_another_order": (HEADS, "loss"),
    "positions_as_in_a_whole_sample": (HEADS, "loss"),
    "neighbouring_positions_in_the_ring": (RING, "loss"),
    "positions_of_one_rank_left_out": (ROWS, "gradients"),
    "mean_divided_twice": (ROWS, "gradients"),
    "other_samples_on_each_rank": (REPLICAS, "loss"),
}
"""For each planted fault, a run that exposes it, and the quantity that differs."""

SOUND: Case = {"model": "neox", "model.layers": 1, "train.global_batch": 4}


def faulty_contexts() -> Iterator[Comparison]:
    """Yield each run without a fault, and with each of its planted faults."""
    for place in (RING, ROWS, REPLICAS, HEADS):
        yield make_comparison({**SOUND, **place})
    for name, (place, _) in FAULTY.items():
        yield make_comparison({**SOUND, **place}, fault=name)


def others() -> Iterator[Comparison]:
    """Yield the cases of several suites, so that the ranks start only once for all of them."""
    for suite in (grid_contexts, lossless_contexts, lossy_contexts, bit_equal_contexts, faulty_contexts):
        yield from suite()


SUITES = {suite.__name__: suite for suite in (contexts, others)}
