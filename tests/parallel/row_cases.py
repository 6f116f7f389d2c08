"""Runs whose embedding gradients are sent as rows, and their references."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import cases
import expert_cases  # registers kinds of experts
from cases import Case, Comparison, one_process, select_once, select_rest
from covering import cover_sample, every_case

from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import CommPrecision

TOP = NamedScheme(
    name="top-feedback",
    algorithm="encoded",
    default="none",
    rules=[Rule(dimension="DP", codec="topk:0.1", feedback=True)],
)
cases.NAMED["scheme"][TOP.name] = TOP
cases.NAMED["train.comm_precision"] = {"gradients in fp32": CommPrecision(gradients="fp32")}
assert "roomy" in expert_cases.NAMED

MODEL: Case = {"model": "neox", "model.layers": 2}
COMMON: Case = {"train.eval_samples": 8}
SPARSE = "train.sparse_gradients"

EXPERTS = "model.experts+layout.ep"
AXES: dict[str, Sequence[Any]] = {
    "layout.dp": (2, 3, 4),
    "layout.tp": (1, 2),
    "layout.pp": (1, 2),
    "layout.cp+layout.context": ((1, "ring"), (2, "ring"), (2, "ulysses")),
    EXPERTS: ((None, 1), ("roomy", 1), ("roomy", 2)),
    "train.sequence_parallel": (False, True),
}
"""Axes that restrict each other, as in cases.py."""
FREE: dict[str, Sequence[Any]] = {
    SPARSE: ("auto", "always"),
    "model.vocab": (256, 611),
    "train.zero": (0, 1, 2, 3),
    "train.micro_batch": (1, 2),
    "layout.chunks+train.schedule": ((1, "1f1b"), (1, "gpipe")),
    "train.overlap": (True, False),
    "train.bucket_mb": (cases.FUSED, cases.UNFUSED),
    "train.recompute": ("none", "selective", "full"),
    "train.offload": (False, True),
    "train.clip": (1.0, 0.0),
}
"""Axes that can be combined with every case."""
PAIRS = [(SPARSE, name) for name in (*AXES, *FREE) if name != SPARSE]
FILLS = 24

MORE: list[Case] = [
    {**MODEL, **more, SPARSE: way}
    for way in FREE[SPARSE]
    for more in (
        {
            "model.layers": 4,
            "layout.dp": 2,
            "layout.pp": 2,
            "layout.chunks+train.schedule": (2, "interleaved"),
            "train.zero": 2,
        },
        {"layout.dp": 4, "train.zero": 3, "train.node_copy": True},
    )
]
"""Settings for chunks, which require more layers, and for second copies of pieces, which require stage 3."""


MOST = 4
"""Maximum number of ranks of a case.

With this limit, two cases can run at the same time, and every kind of replica is covered.
"""


def fits(case: Case) -> bool:
    """Return whether the engine accepts the settings."""
    settings = {**MODEL, **COMMON, **case}
    return cases.run_of(settings).ranks <= MOST and cases.is_valid(settings)


@cache
def places() -> list[Case]:
    """Return cases that combine both modes of row transfer with each value of every other setting."""
    cover = cover_sample(every_case(AXES, fits), FREE, FILLS, seed=11, pairs=PAIRS)
    return [*({**MODEL, **case} for case in cover), *MORE]


def make_comparison(settings: Case, against: Case | None = None, fault: str | None = None) -> Comparison:
    """Compare a run that sends rows with a reference, by default a run in one process, which sends no rows."""
    settings = {**settings, **COMMON}
    experts = {"model.experts": settings[EXPERTS][0]} if EXPERTS in settings else {}
    model = {name: value for name, value in one_process(settings).items() if name != EXPERTS}
    named = {name: settings[name] for name in ("train.clip",) if name in settings}
    alone = {**model, **experts, **COMMON, **named}
    return Comparison(settings, alone if against is None else {**against, **COMMON}, fault)


@cache
def rows() -> list[Comparison]:
    """Compare every layout with one process, in fp64."""
    return [make_comparison(case) for case in places()]


FOUR: Case = {**MODEL, "layout.dp": 4}
STAGES: Case = {**MODEL, "layout.dp": 2, "layout.pp": 2, "train.micro_batch": 2}
SPLIT: Case = {**MODEL, "layout.dp": 2, "layout.tp": 2}


SHORT: Case = {"train.zero": 1, "scheme": "sign-feedback", "train.precision": "fp32", "train.seq_len": 48}
"""Indices are as long as rows, and all ranks receive all rows, so the whole gradient is shorter."""
BORDERS: Case = {"train.zero": 1, "model.vocab": 406}
"""The boundary between the first two of four pieces splits the row of the letter e."""


def both(settings: Case, way: str = "always", planted: str | None = None, **more: Any) -> Comparison:
    """Compare a run that sends rows with the same run that sends the whole gradient."""
    named = {name.replace("__", "."): value for name, value in more.items()}
    return make_comparison({**settings, **named, SPARSE: way}, {**settings, **named, SPARSE: "never"}, planted)


def same_bits() -> Iterator[Comparison]:
    """Compare rows with whole gradients, without a codec. Results must be bitwise identical.

    The summation order of the norm depends on buckets, so gradients are not clipped.
    """
    plain: Case = {"scheme": "identity", "train.clip": 0.0, "train.precision": "fp32"}
    for zero in (0, 1, 2, 3):
        yield both({**FOUR, **plain}, train__zero=zero)
    yield both({**STAGES, **plain}, train__zero=2)
    yield both({**SPLIT, **plain}, train__zero=0, model__vocab=611)
    yield both({**FOUR, **plain, "train.precision": "bf16"}, train__zero=0, train__comm_precision="gradients in fp32")
    for zero in (0, 2):
        yield both({**FOUR, **plain}, "auto", "alternating", train__zero=zero)
    yield both({**STAGES, **plain}, "measured", train__zero=1)


def lossless() -> Iterator[Comparison]:
    """Compare a lossless codec on rows with rows without a codec."""
    for zero in (0, 1):
        common = {**FOUR, "train.precision": "fp32", "train.zero": zero, SPARSE: "always"}
        yield make_comparison({**common, "scheme": "naive-mpc"}, {**common, "scheme": "identity"})


def lossy() -> Iterator[Comparison]:
    """Yield lossy schemes on rows. Replicas must be identical."""
    for zero, schemes in ((0, ("naive-int8", TOP.name)), (1, ("zhybrid-16-8", "sign-feedback"))):
        common = {**FOUR, "train.precision": "fp32", "train.zero": zero, SPARSE: "always"}
        for scheme in schemes:
            yield make_comparison({**common, "scheme": scheme}, {**common, "scheme": "identity"})


FAULTY: dict[str, tuple[Case, str]] = {
    "index_of_another_row": ({"train.zero": 0}, "gradients"),
    "index_of_another_row_to_an_owner": (BORDERS, "gradients"),
    "row_of_two_ranks_counted_once": ({"train.zero": 0}, "gradients"),
    "summed_in_another_order_on_odd_ranks": ({"train.zero": 0}, "replicas"),
    "rows_of_the_last_micro_batch_only": ({"train.zero": 0}, "gradients"),
    "rows_noted_in_the_forward_pass": ({"train.zero": 2, "layout.dp": 2, "layout.pp": 2}, "gradients"),
    "rows_not_averaged": (BORDERS, "gradients"),
    "border_rows_to_one_owner": (BORDERS, "gradients"),
    "old_sums_left_in_the_table": (BORDERS, "gradients"),
    "own_rows_kept_exact": ({"train.zero": 0, "scheme": "naive-int8", "train.precision": "fp32"}, "replicas"),
    "sent_where_whole_is_shorter": ({SPARSE: "auto", "train.micro_batch": 3, **SHORT}, "sent"),
}
"""Settings that expose each planted fault, and the quantity that differs."""


def make_sound_settings(settings: Case) -> Case:
    """Return settings of the run without a planted fault."""
    return {**FOUR, SPARSE: "always", **settings}


def faulty_pair(name: str) -> tuple[Comparison, Comparison]:
    """Return the run without the fault, and the run with the fault."""
    settings = make_sound_settings(FAULTY[name][0])
    against = None if "scheme" not in settings else {**settings, "scheme": "identity"}
    return make_comparison(settings, against), make_comparison(settings, against, name)


def faulty_rows() -> Iterator[Comparison]:
    """Yield each run twice: without a fault, and with its planted fault."""
    pairs = [faulty_pair(name) for name in FAULTY]
    yield from {right.name: right for right, _ in pairs}.values()
    for _, wrong in pairs:
        yield wrong


SUITES = {
    "": (lambda: select_once(rows()), same_bits, lossless, lossy, faulty_rows),
    "rest": (lambda: select_rest(rows()),),
}
"""Suites by worker argument: the cases of `make test`, and the additional cases of `make test-long`."""
