"""Runs on tensor grids and their references."""

from collections.abc import Iterator

from cases import Case, Comparison, label

COMMON: Case = {"train.eval_samples": 8, "train.micro_batch": 4}
NEOX: Case = {"model": "neox", "model.layers": 2}
GPT2: Case = {"model": "gpt2", "model.layers": 2, "model.vocab": 260}

TWO: Case = {"layout.tp": 4, "layout.tensor": "2d"}
TWO_AND_A_HALF: Case = {"layout.tp": 8, "layout.tensor": "2.5d", "layout.depth": 2}
THREE: Case = {"layout.tp": 8, "layout.tensor": "3d"}

PLACES: list[Case] = [
    {**NEOX, **TWO},
    {**GPT2, **TWO, "layout.dp": 2, "train.zero": 2, "train.recompute": "full"},
    {**NEOX, **TWO, "layout.pp": 2, "train.recompute": "selective", "train.bucket_mb": 1e-6},
    {**GPT2, **TWO_AND_A_HALF, "train.overlap": False, "train.bucket_mb": 1e-6},
    {**NEOX, **THREE, "train.zero": 3},
]
MORE_PLACES: list[Case] = [
    {**GPT2, **TWO, "layout.pp": 2, "train.overlap": False},
    {**NEOX, **TWO, "layout.dp": 2, "train.zero": 3, "train.offload": True},
    {**NEOX, **TWO_AND_A_HALF, "train.zero": 0},
    {**GPT2, **THREE, "train.overlap": False, "train.recompute": "full", "train.bucket_mb": 1e-6},
    {**GPT2, **THREE, "model.tied": False, "train.recompute": "selective"},
]
"""Every mode, with settings that change the placement of a parameter or message.

Only `make test-long` runs these cases.
"""


def one_process(settings: Case) -> Case:
    """Return settings for the same model and samples in one process."""
    return {name: value for name, value in settings.items() if name.startswith("model") or name in COMMON}


def make_comparison(settings: Case, against: Case | None = None, fault: str | None = None) -> Comparison:
    """Compare a run on a grid with a reference, by default a run in one process."""
    settings = {**settings, **COMMON}
    return Comparison(settings, one_process(settings) if against is None else {**against, **COMMON}, fault)


def grids() -> Iterator[Comparison]:
    """Compare every layout with one process, in fp64."""
    return map(make_comparison, PLACES)


def more_grids() -> Iterator[Comparison]:
    """Yield the layouts that only `make test-long` tests."""
    return map(make_comparison, MORE_PLACES)


def lossless_grids() -> Iterator[Comparison]:
    """Compare a lossless codec with the same algorithm without a codec."""
    for mode in (TWO, TWO_AND_A_HALF, THREE):
        common = {**GPT2, **mode, "train.precision": "fp32"}
        yield make_comparison({**common, "scheme": "naive-mpc"}, {**common, "scheme": "identity"})


def lossy_grids() -> Iterator[Comparison]:
    """Use 8-bit integers for all traffic.

    Errors must stay within the bound, and replicated values must be identical.
    """
    return map(lossy, (TWO,))


def more_lossy_grids() -> Iterator[Comparison]:
    """Yield the lossy cases that only `make test-long` tests."""
    return map(lossy, (TWO_AND_A_HALF, THREE))


def lossy(mode: Case) -> Comparison:
    """Compare a lossy codec in one mode with the same algorithm without a codec."""
    common = {**GPT2, **mode, "train.precision": "fp32"}
    return make_comparison({**common, "scheme": "naive-int8"}, {**common, "scheme": "identity"})


def name_of(settings: Case) -> str:
    """Return the name of a case in the results."""
    return label({**settings, **COMMON})


FAULTY: dict[str, tuple[Case, str]] = {
    "axes_swapped": (TWO, "loss"),
    "gradients_of_biases_and_norms_left_as_summands": (THREE, "gradients"),
    "depth_left_out": (TWO_AND_A_HALF, "gradients"),
    "gathered_in_another_order": (THREE, "loss"),
    "mean_divided_twice": (TWO, "gradients"),
    "stale_second_buffer": (TWO, "loss"),
    "statistics_of_own_features": (TWO, "loss"),
    "backward_sums_of_own_features": (THREE, "gradients"),
    "first_piece_of_the_vocabulary": (THREE, "loss"),
    "own_summand_for_the_sum": (TWO, "gradients"),
    "scattered_before_the_sum": (THREE, "loss"),
    "targets_of_the_first_samples": (TWO, "loss"),
    "weight_gathered_once": (THREE, "loss"),
    "norm_counts_every_layer_of_the_grid": (TWO_AND_A_HALF, "norm"),
    "broadcast_over_the_other_axis": (TWO, "loss"),
}
"""For each planted fault, a mode that exposes it, and the quantity that differs."""

SOUND: Case = {**NEOX, "train.zero": 0, "train.bucket_mb": 1e-6}


def faulty_grids() -> Iterator[Comparison]:
    """Yield each mode without a fault, and with each of its planted faults."""
    for mode in (TWO, TWO_AND_A_HALF, THREE):
        yield make_comparison({**SOUND, **mode})
    for name, (mode, _) in FAULTY.items():
        yield make_comparison({**SOUND, **mode}, fault=name)


SUITES = {
    suite.__name__: suite for suite in (grids, more_grids, lossless_grids, lossy_grids, more_lossy_grids, faulty_grids)
}
