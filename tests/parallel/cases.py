"""Cases of the parity tests, as data. Each case maps field names to the settings of two runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import small_runs
from covering import Case, cover_sample, every_case, select_new
from faults import FAULTS
from small_runs import BASELINE, NEOX, RUN, TRAIN

from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run, check
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Train
from hpcbench.errors import UserError

MOST_RANKS = 8
STEPS = 3
FEWER_STEPS = 2
"""Number of steps. The second step covers updated weights and nonzero Adam moments."""

GPT2 = small_runs.GPT2.changed(vocab=259)

IDENTITY = NamedScheme(name="identity", algorithm="two-shot", default="none")
NAIVE_MPC = NamedScheme(name="naive-mpc", algorithm="two-shot", default="mpc")
HYBRID = NamedScheme(
    name="zhybrid-16-8", algorithm="two-shot", default="zfp:16", rules=[Rule(dimension="DP", codec="zfp:8")]
)
INT8 = NamedScheme(name="naive-int8", algorithm="encoded", default="int8:256")
SIGNS = NamedScheme(
    name="sign-feedback",
    algorithm="encoded",
    default="none",
    rules=[Rule(dimension="DP", codec="sign:1024", feedback=True)],
)
EXACT_FEEDBACK = NamedScheme(
    name="mpc-feedback",
    algorithm="two-shot",
    default="none",
    rules=[Rule(dimension="DP", codec="mpc", feedback=True)],
)
"""Scheme with error feedback for a lossless codec."""

NAMED: dict[str, dict[str, Any]] = {
    "model": {model.name: model for model in (NEOX, GPT2)},
    "scheme": {scheme.name: scheme for scheme in (BASELINE, IDENTITY, NAIVE_MPC, HYBRID, INT8, SIGNS, EXACT_FEEDBACK)},
}
"""Models and schemes that settings refer to by name."""

LOSSY = ("zhybrid-16-8", "naive-int8", "sign-feedback")

FUSED, UNFUSED = 0.05, 1e-6
"""Bucket sizes in MB: one that holds several parameters, and one that holds a single parameter."""

AXES: dict[str, Sequence[Any]] = {
    "layout.dp": range(1, MOST_RANKS + 1),
    "layout.tp": range(1, MOST_RANKS + 1),
    "layout.pp": range(1, MOST_RANKS + 1),
    "train.micro_batch": (1, 2, 3),
    "train.sequence_parallel": (False, True),
    "layout.chunks+train.schedule": ((1, "1f1b"), (1, "gpipe"), (2, "interleaved")),
    "layout.stages": ((), (1, 3), (1, 2, 1)),
}
"""Axes of the case grid that restrict each other.

Settings that belong together are joined by a plus sign, and their values are tuples. A combination is excluded if a run
rejects it when the later axes have their defaults.
"""

FREE: dict[str, Sequence[Any]] = {
    "model": tuple(NAMED["model"]),
    "model.tied": (False, True),
    "train.zero": (0, 1, 2, 3),
    "train.overlap": (True, False),
    "train.bucket_mb": (FUSED, UNFUSED),
    "train.recompute": ("none", "selective", "full", 2),
    "train.offload": (False, True),
}
"""Axes of the case grid that can be combined with every case."""

FILLS = 28
"""Number of random draws of `FREE` per case of `AXES`. The cover is selected from these draws."""

TOGETHER = [("layout.dp", "layout.tp", "layout.pp", "model.tied")]
"""Every layout, with tied and untied embeddings."""

BASE = RUN.changed(
    study="parity",
    run="parity",
    model=NEOX,
    train=TRAIN.changed(
        steps=STEPS, global_batch=24, seq_len=12, precision="fp64", seed=7, bucket_mb=FUSED, eval_samples=5
    ),
)


def run_of(settings: Case) -> Run:
    """Return a run of a few steps: `BASE` with these settings, and enough samples to fill its pipeline."""
    run = _changed(tuple(settings.items()))
    run = run.changed(ranks=run.layout.ranks)
    return run if "train.global_batch" in settings else run.changed(train=fill_pipeline(run))


@cache
def _changed(settings: tuple[tuple[str, Any], ...]) -> Run:
    """Return `BASE` with the settings.

    A search adds settings one at a time, so the results for all settings but the last are cached.
    """
    if not settings:
        return BASE
    *before, (name, value) = settings
    run = _changed(tuple(before))
    values = value if "+" in name else (value,)
    for part, each in zip(name.split("+"), values, strict=True):
        run = _with(run, part, each)
    return run


def fill_pipeline(run: Run) -> Train:
    """Return the training settings with the fewest samples that exercise the pipeline.

    Gradients must accumulate over at least two micro-batches, and the first stage must start a micro-batch after it has
    received a gradient. This requires more micro-batches than stages. With interleaved stages, even twice the number of
    stages is not enough.
    """
    pp = run.layout.pp
    micro_batches = 2 * pp if run.train.schedule == "interleaved" else pp + 1
    return run.train.changed(global_batch=micro_batches * run.train.micro_batch * run.layout.dp)


def _with(run: Run, name: str, value: Any) -> Run:
    section, _, last = name.rpartition(".")
    if section:
        value = list(value) if isinstance(value, tuple) else NAMED.get(name, {}).get(value, value)
        return run.changed(**{section: getattr(run, section).changed(**{last: value})})
    return run.changed(**{name: NAMED[name][value]})


def is_valid(settings: Case) -> bool:
    """Return whether the run fits the available ranks and the engine accepts it."""
    run = run_of(settings)
    try:
        check(run, "")
    except UserError:
        return False
    return run.ranks <= MOST_RANKS


def label(settings: Case) -> str:
    """Format the settings for use in a test name."""

    def short(name: str) -> str:
        return "+".join(part.rpartition(".")[2] for part in name.split("+"))

    return "-".join(f"{short(name)}={value}" for name, value in settings.items())


@dataclass(frozen=True)
class Comparison:
    """Two runs to compare. `settings` describes the tested run, in which a fault may be planted."""

    settings: Case
    against: Case
    fault: str | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", label({**self.settings, **({"fault": self.fault} if self.fault else {})}))

    @cached_property
    def run(self) -> Run:
        return run_of(self.settings)

    @cached_property
    def reference(self) -> Run:
        """Return the reference run, which uses the same samples.

        If the reference has no layout, one micro-batch contains all samples of a step.
        """
        batch = self.run.train.global_batch
        at_once = {"train.micro_batch": batch} if self.against == one_process(self.against) else {}
        return run_of({**self.against, **at_once, "train.global_batch": batch})

    @property
    def ranks(self) -> int:
        return self.run.ranks


def select_once(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons for `make test`: those that introduce a new value of some setting."""
    taken = select_new([comparison.settings for comparison in comparisons])
    return [comparison for comparison in comparisons if comparison.settings in taken]


def select_rest(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the remaining comparisons, which only `make test-long` runs."""
    taken = {comparison.name for comparison in select_once(comparisons)}
    return [comparison for comparison in comparisons if comparison.name not in taken]


def one_process(settings: Case) -> Case:
    """Return settings for the same model in one process."""
    return {name: value for name, value in settings.items() if name.startswith("model")}


@cache
def grid() -> list[Comparison]:
    """Return cases that cover all valid pairs of values."""
    fixed = [case for case in every_case(AXES, is_valid) if run_of(case).ranks > 1]
    return [Comparison(case, one_process(case)) for case in cover_sample(fixed, FREE, FILLS, together=TOGETHER)]


PLACES: list[Case] = [
    {"layout.dp": 2},
    {"layout.dp": 4, "layout.tp": 2},
    {"layout.dp": 2, "layout.tp": 2, "layout.pp": 2},
]
WHOLE = PLACES[-1]
TWO_LAYERS: Case = {"model.layers": 2}
"""Settings of models with one layer per stage.

Both layers have the same settings. The case grid contains larger models.
"""
PADDED: Case = {"layout.dp": 2, "layout.tp": 4, "train.bucket_mb": UNFUSED}
"""A codec block that contains both parameter values and padding."""

RUN_FOR_RESIDUALS: Case = {
    "layout.dp": 4,
    "layout.tp": 2,
    "scheme": "sign-feedback",
    "train.precision": "fp32",
    "train.zero": 0,
}


def bit_equal() -> Iterator[Comparison]:
    """Return settings that preserve the summation order, so results must be bitwise identical.

    Gradients are not clipped, because the norm is summed over pieces, and piece boundaries differ.
    """
    common = {"scheme": "identity", "train.clip": 0.0}
    for model in NAMED["model"]:
        for place in PLACES:
            plain = {"model": model, **TWO_LAYERS, **common, **place, "train.zero": 0, "train.overlap": False}
            for name, value in (
                ("train.zero", 1),
                ("train.overlap", True),
                ("train.bucket_mb", UNFUSED),
                ("train.recompute", "full"),
                ("train.offload", True),
            ):
                yield Comparison({**plain, name: value}, plain)
    for pp in (2, 4):  # the gradients of tied weights are added per pass, not per micro-batch
        for dp in (1, 2):
            plain = {"model": "neox", **common, "layout.dp": dp, "train.micro_batch": 2}
            yield Comparison({**plain, "layout.pp": pp}, plain)


def lossless() -> Iterator[Comparison]:
    """Compare a lossless codec with the same algorithm without a codec."""
    for precision in ("fp32", "fp64"):
        for model in NAMED["model"]:
            common = {"model": model, **TWO_LAYERS, "train.precision": precision, **WHOLE}
            yield Comparison({**common, "scheme": "naive-mpc"}, {**common, "scheme": "identity"})
        for zero in (0, 1):
            common = {"model": "neox", **TWO_LAYERS, "train.precision": precision, "layout.dp": 2, "train.zero": zero}
            yield Comparison({**common, "scheme": "mpc-feedback"}, {**common, "scheme": "identity"})


def lossy() -> Iterator[Comparison]:
    """Yield lossy schemes, which cause large errors but keep replicas identical."""
    by_positions = {"layout.dp": 2, "layout.tp": 2, "train.sequence_parallel": True}
    for place in (WHOLE, PADDED, by_positions):
        for model in NAMED["model"]:
            common = {"model": model, **TWO_LAYERS, "train.precision": "fp32", **place}
            for scheme in LOSSY:
                yield Comparison({**common, "scheme": scheme}, {**common, "scheme": "identity"})


def overlapped() -> Iterator[Comparison]:
    """Compare gradient reduction during the backward pass with reduction after the pass."""
    for model, scheme in (("neox", "baseline"), ("gpt2", "zhybrid-16-8"), ("neox", "sign-feedback")):
        common = {"model": model, **TWO_LAYERS, "scheme": scheme, "train.precision": "fp32", **WHOLE}
        yield Comparison({**common, "train.overlap": True}, {**common, "train.overlap": False})


def faulty() -> Iterator[Comparison]:
    """Yield each faulty run and the same run without the fault."""
    sound = set()
    for name, fault in FAULTS.items():
        if fault.settings is None:
            continue
        settings = {**TWO_LAYERS, **WHOLE, **fault.settings}
        exact = settings.get("scheme", "baseline") == "baseline"
        against = one_process(settings) if exact else {**settings, "scheme": "identity"}
        for comparison in (Comparison(settings, against), Comparison(settings, against, name)):
            if comparison.name not in sound:
                sound.add(comparison.name)
                yield comparison


SUITES: dict[str, Callable[..., Iterable[Comparison]]] = {
    suite.__name__: suite for suite in (grid, bit_equal, lossless, lossy, overlapped, faulty)
}
COVERS = ("grid",)
"""Suites that run `STEPS` steps. Other suites run fewer steps."""
