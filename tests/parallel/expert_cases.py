"""Mixture-of-experts runs and their references."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import cases
from cases import Case, Comparison, label, select_once, select_rest
from covering import cover_sample, every_case

from hpcbench.contract.experts import Experts

CP = "layout.cp+layout.context"
COMMON: Case = {"train.eval_samples": 8, "train.global_batch": 16}
MODEL: Case = {"model": "neox", "model.layers": 2}
TIED: Case = {"model": "gpt2", "model.layers": 2, "model.vocab": 260}

ROOMY = Experts(count=4, top=2, capacity=4.0)
"""Experts with enough capacity for every token."""
TIGHT = Experts(count=4, top=2, capacity=0.75, min_capacity=1)
PROBABLE = TIGHT.changed(drop="probability", shared=True)
OPEN = Experts(count=4, top=2, drop="none")
SWITCH = Experts(count=8, top=1, capacity=1.0, min_capacity=2, shared=True, balance=0.1, z_loss=0.01)
ALTERNATE = Experts(count=4, top=2, every=2, drop="none", shared=True)
BALANCED = Experts(count=4, top=2, capacity=4.0, balance=1.0, z_loss=0.1)
"""Router losses with large factors, so that the tests detect a wrong factor."""

HEAVY = BALANCED.changed(drop="none")

NAMED = {
    "roomy": ROOMY,
    "tight": TIGHT,
    "probable": PROBABLE,
    "open": OPEN,
    "switch": SWITCH,
    "alternate": ALTERNATE,
    "balanced": BALANCED,
    "heavy": HEAVY,
}
cases.NAMED["model.experts"] = NAMED

AXES: dict[str, Sequence[Any]] = {
    "layout.dp+layout.ep": ((2, 1), (4, 2), (8, 8)),
    "layout.tp": (1, 2),
    "layout.pp": (1, 2),
    "model.experts": ("probable", "alternate", "switch"),
    "train.micro_batch": (1, 2),
}
"""Axes that restrict each other, as in cases.py."""
FREE: dict[str, Sequence[Any]] = {
    "model.tied": (False, True),
    "train.zero": (0, 1, 3),
    "train.overlap": (True, False),
    "train.bucket_mb": (cases.FUSED, cases.UNFUSED),
    "train.recompute": ("none", "selective", "full"),
    "train.offload": (False, True),
}
"""Axes that can be combined with every case."""
FILLS = 48

MORE: list[Case] = [
    {**TIED, "model.experts": "balanced", "layout.dp": 4, "layout.ep": 2, "train.micro_batch": 2},
    {**MODEL, "model.experts": "open", "layout.dp": 4, "layout.ep": 4},
    {
        **TIED,
        "model.layers": 4,
        "model.experts": "tight",
        "layout.dp": 2,
        "layout.ep": 2,
        "layout.pp": 2,
        "layout.chunks+train.schedule": (2, "interleaved"),
        "train.zero": 2,
    },
    {**TIED, "model.experts": "heavy", "layout.dp": 4, "layout.ep": 2, CP: (2, "ring"), "train.recompute": "full"},
    {**MODEL, "model.experts": "alternate", "layout.dp": 2, "layout.ep": 2, "layout.tp": 2, CP: (2, "ulysses")},
    {**MODEL, "model.experts": "heavy", "layout.pp": 2, CP: (2, "rsa"), "train.micro_batch": 2, "train.zero": 3},
]
"""Cases that the axes do not cover: large router losses, full capacity, chunks, and context parallelism."""


def fits(case: Case) -> bool:
    """Return whether the run has several ranks and the engine accepts it."""
    ranks = cases.run_of({**MODEL, **COMMON, **case}).ranks
    return ranks > 1 and cases.is_valid({**MODEL, **COMMON, **case})


@cache
def possible() -> list[Case]:
    return every_case(AXES, lambda case: len(case) < len(AXES) or fits(case))


@cache
def places() -> list[Case]:
    """Return cases that cover all valid pairs of values, and a few additional cases."""
    return [*({**MODEL, **case} for case in cover_sample(possible(), FREE, FILLS)), *MORE]


def one_process(settings: Case) -> Case:
    """Return settings for the same model and samples in one process."""
    return {name: value for name, value in settings.items() if name.startswith("model") or name in COMMON}


def batch_samples(settings: Case) -> Case:
    """Halve the samples per step if the smaller number still fills the pipeline."""
    run = cases.run_of({**settings, **COMMON})
    half = run.train.global_batch // 2
    enough = cases.fill_pipeline(run).global_batch <= half
    return {**settings, **COMMON, **({"train.global_batch": half} if enough else {})}


def make_comparison(settings: Case, against: Case | None = None, fault: str | None = None) -> Comparison:
    """Compare a run that has experts with a reference, by default a run in one process."""
    settings = batch_samples(settings)
    if against is None:
        return Comparison(settings, one_process(settings), fault)
    return Comparison(settings, {**against, **{name: settings[name] for name in COMMON}}, fault)


@cache
def experts() -> list[Comparison]:
    """Compare every layout with training in one process, in fp64."""
    return [make_comparison(case) for case in places()]


FOUR: Case = {**MODEL, "layout.dp": 2, "layout.tp": 2, "layout.ep": 2, "train.precision": "fp32"}
REPLICAS: Case = {**MODEL, "layout.dp": 4, "layout.ep": 2, "train.precision": "fp32"}


def lossless_experts() -> Iterator[Comparison]:
    """Compare a lossless codec with the same algorithm without a codec."""
    for kind in ("tight", "open"):
        common = {**FOUR, "model.experts": kind}
        yield make_comparison({**common, "scheme": "naive-mpc"}, {**common, "scheme": "identity"})


def lossy_experts() -> Iterator[Comparison]:
    """Use 8-bit integers for all traffic.

    Errors must stay within the bound, and replicated values must be identical.
    """
    for kind, place in (("probable", REPLICAS), ("open", FOUR)):
        common = {**place, "model.experts": kind}
        yield make_comparison({**common, "scheme": "naive-int8"}, {**common, "scheme": "identity"})


def overlapped_experts() -> Iterator[Comparison]:
    """Compare blocking transfers with transfers that overlap with the shared expert."""
    common = {**MODEL, "model.experts": "probable", "layout.dp": 2, "layout.ep": 2, "scheme": "identity"}
    yield make_comparison({**common, "train.overlap": True}, {**common, "train.overlap": False})


def name_of(settings: Case) -> str:
    """Return the name of a case in the results."""
    return label(batch_samples(settings))


DROPPING = ("tight", "probable", "switch")
SPREAD = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 8))
"""Layouts as pairs of dp and ep."""


def dropping() -> Iterator[Case]:
    """Yield runs that drop tokens, each in several layouts."""
    for kind in DROPPING:
        for dp, ep in SPREAD:
            if NAMED[kind].count % ep == 0:
                place: Case = {"model.experts": kind, "layout.dp": dp, "layout.ep": ep}
                more: Case = {"train.micro_batch": 1 if dp == 8 else 2, "train.zero": (dp + ep) % 4}
                yield {**MODEL, **COMMON, **place, **more}


TWO_OF_FOUR: Case = {"layout.dp": 4, "layout.ep": 2}
TWO: Case = {"layout.dp": 2, "layout.ep": 2}
FAULTY: dict[str, tuple[Case, str]] = {
    "summed_over_all_replicas": ({"model.experts": "roomy", **TWO_OF_FOUR}, "gradients"),
    "divided_by_the_holders_only": ({"model.experts": "roomy", **TWO_OF_FOUR}, "gradients"),
    "dropped_tokens_get_gradient": ({"model.experts": "tight", **TWO}, "gradients"),
    "dropped_tokens_take_the_last_place": ({"model.experts": "tight", **TWO}, "loss"),
    "results_in_the_order_of_experts": ({"model.experts": "roomy", **TWO}, "loss"),
    "gates_left_out": ({"model.experts": "roomy", **TWO}, "loss"),
    "losses_counted_twice": ({"model.experts": "balanced", **TWO}, "gradients"),
    "losses_of_a_whole_micro_batch": (
        {"model.experts": "balanced", "train.micro_batch": 2, **TWO},
        "gradients",
    ),
    "samples_compete_for_places": ({"model.experts": "tight", "train.micro_batch": 2, **TWO}, "loss"),
    "first_experts_everywhere": ({"model.experts": "roomy", **TWO}, "loss"),
    "gradients_in_another_order": ({"model.experts": "roomy", **TWO}, "gradients"),
    "norm_counts_experts_of_one_rank": ({"model.experts": "roomy", "train.zero": 0, **TWO}, "norm"),
    "shares_of_the_own_positions": ({"model.experts": "heavy", CP: (2, "ring")}, "gradients"),
    "holders_of_one_part_of_the_positions": ({"model.experts": "heavy", CP: (2, "ring"), **TWO}, "gradients"),
    "expert_sum_left_out": ({"model.experts": "open", "layout.dp": 2, "layout.ep": 2, "layout.tp": 2}, "loss"),
}
"""Settings that expose each planted fault, and the quantity that differs."""


def make_sound_settings(settings: Case) -> Case:
    """Return settings of the run without a planted fault."""
    return {**MODEL, "train.bucket_mb": 1e-6, **settings}


def faulty_experts() -> Iterator[Comparison]:
    """Yield each run without a fault, and with its planted fault."""
    for name in dict.fromkeys(make_comparison(make_sound_settings(settings)).name for settings, _ in FAULTY.values()):
        yield next(case for s, _ in FAULTY.values() if (case := make_comparison(make_sound_settings(s))).name == name)
    for name, (settings, _) in FAULTY.items():
        yield make_comparison(make_sound_settings(settings), fault=name)


SUITES = {
    "": (lambda: select_once(experts()), lossless_experts, lossy_experts, overlapped_experts, faulty_experts),
    "rest": (lambda: select_rest(experts()),),
}
"""Suites by worker argument: the cases of `make test`, and the additional cases of `make test-long`."""
