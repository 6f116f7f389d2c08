"""Runs with sparse weights, and their reference runs."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import cases
from cases import Case, Comparison, select_once, select_rest
from covering import cover_sample, every_case

from hpcbench.features.prune.settings import Prune

COMMON: Case = {"train.eval_samples": 4, "train.global_batch": 4, "model.layers": 2}

NAMED = {
    "pairs": Prune(pattern="2:4", begin=1),
    "growing": Prune(pattern="unstructured", sparsity=0.6, begin=1, end=3),
    "neurons": Prune(pattern="rows", sparsity=0.3, begin=2),
    "few-heads": Prune(pattern="heads", sparsity=0.25, begin=1),
}
cases.NAMED["train.prune"] = NAMED

AXES: dict[str, Sequence[Any]] = {
    "layout.dp": (1, 2),
    "layout.tp": (1, 2),
    "layout.pp": (1, 2),
    "layout.cp": (1, 2),
    "train.sequence_parallel": (False, True),
    "train.micro_batch": (1, 2),
}
"""Axes that restrict each other, as in cases.py."""
FREE: dict[str, Sequence[Any]] = {
    "train.prune": tuple(NAMED),
    "model": ("neox", "gpt2"),
    "train.zero": (0, 1, 2, 3),
    "train.overlap": (True, False),
    "train.bucket_mb": (cases.FUSED, cases.UNFUSED),
    "train.recompute": ("none", "full"),
    "train.offload": (False, True),
}
"""Axes that can be combined with every case."""
PAIRS = [(name, "train.prune") for name in (*AXES, *FREE) if name != "train.prune"]
FILLS = 48
MOST = 4
"""Maximum number of ranks of a case, which suffices for all pairs of group sizes."""

MORE: list[Case] = [
    {
        "train.prune": "growing",
        "model": "neox",
        "model.layers": 4,
        "layout.dp": 2,
        "layout.pp": 2,
        "layout.chunks+train.schedule": (2, "interleaved"),
        "train.zero": 2,
    },
    {"train.prune": "pairs", "model": "neox", "layout.dp": 1, "layout.tp": 4, "train.zero": 1},
    {"train.prune": "neurons", "model": "neox", "layout.dp": 2, "train.zero": 1, "scheme": "identity"},
]
"""Cases that the axes do not cover: chunks, four tensor-parallel ranks, and hpcbench's own collectives."""


def fits(case: Case) -> bool:
    """Return whether the run has a valid number of ranks and the engine accepts the settings."""
    ranks = cases.run_of({**COMMON, **case}).ranks
    return 1 < ranks <= MOST and cases.is_valid({**COMMON, **case})


@cache
def possible() -> list[Case]:
    return every_case(AXES, lambda case: len(case) < len(AXES) or fits(case))


@cache
def places() -> list[Case]:
    """Return cases that combine each pattern with every valid value of the other settings, and `MORE`.

    The grid of test_parity.py covers pairs of the other settings.
    """
    return [*cover_sample(possible(), FREE, FILLS, pairs=PAIRS), *MORE]


def one_process(settings: Case) -> Case:
    """Return settings for the same model and samples in one process."""
    wanted = (*COMMON, "train.prune")
    return {name: value for name, value in settings.items() if name.startswith("model") or name in wanted}


def make_comparison(settings: Case, against: Case | None = None, fault: str | None = None) -> Comparison:
    """Compare a run with sparse weights with a reference, by default a run in one process."""
    settings = {**COMMON, **settings}
    return Comparison(settings, one_process(settings) if against is None else {**COMMON, **against}, fault)


@cache
def sparse() -> list[Comparison]:
    """Compare every case with training in one process, in fp64."""
    return [make_comparison(case) for case in places()]


WHOLE: Case = {"layout.dp": 2, "layout.tp": 2, "model": "gpt2", "train.precision": "fp32"}


def lossless_sparse() -> Iterator[Comparison]:
    """Compare a lossless codec with the same algorithm without a codec."""
    for kind, zero in (("growing", 3),):
        common = {**WHOLE, "train.prune": kind, "train.zero": zero}
        yield make_comparison({**common, "scheme": "naive-mpc"}, {**common, "scheme": "identity"})


def lossy_sparse() -> Iterator[Comparison]:
    """Compare lossy schemes, including one with residuals, with the scheme `identity`."""
    for kind, zero, scheme in (
        ("growing", 1, "naive-int8"),
        ("pairs", 0, "sign-feedback"),
    ):
        common = {**WHOLE, "train.prune": kind, "train.zero": zero}
        yield make_comparison({**common, "scheme": scheme}, {**common, "scheme": "identity"})


TWO: Case = {"model": "neox", "layout.dp": 2, "train.zero": 1}
FAULTY: dict[str, tuple[Case, str]] = {
    "masked_weights_written_back": ({**TWO, "train.prune": "pairs", "train.zero": 0}, "stray"),
    "chosen_by_each_rank_alone": ({**TWO, "train.prune": "growing"}, "masks"),
    "smallest_neurons_kept": ({**TWO, "train.prune": "neurons"}, "masks"),
    "places_of_another_group": ({**TWO, "train.prune": "pairs"}, "masks"),
    "values_in_wrong_places": ({**TWO, "train.prune": "growing"}, "gradients"),
    "masks_of_masters_only": ({**TWO, "train.prune": "pairs", "layout.dp": 1, "layout.tp": 2}, "gradients"),
    "zeros_travel": ({**TWO, "train.prune": "pairs"}, "sent"),
}
"""Settings that expose each planted fault, and the quantity that differs."""


def faulty_sparse() -> Iterator[Comparison]:
    """Yield each run without a fault, and with its planted fault."""
    names = {
        comparison.name: comparison for settings, _ in FAULTY.values() for comparison in [make_comparison(settings)]
    }
    yield from names.values()
    for name, (settings, _) in FAULTY.items():
        yield make_comparison(settings, fault=name)


TRAVELLERS = ["pairs", "growing"]
"""Patterns of the runs that resume in other layouts."""
SUITES = {
    "": (lambda: select_once(sparse()), lossless_sparse, lossy_sparse, faulty_sparse),
    "rest": (lambda: select_rest(sparse()),),
}
"""Suites by worker argument: the cases of `make test`, and the additional cases of `make test-long`."""
