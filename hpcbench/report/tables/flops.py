"""The kinds of FLOP/s, which no column mixes."""

from collections.abc import Callable

from hpcbench.report.measures import Measures

Kind = tuple[str, str, str, Callable[[Measures], float | None]]
"""Name of the column, its mark behind the unit, what it means, and the value of a run."""

KINDS: tuple[Kind, ...] = (
    (
        "model_flops_per_rank",
        "",
        "FLOP/s that the model needs, recomputation not counted.",
        lambda run: run.model_flops_per_rank,
    ),
    (
        "hardware_flops_per_rank",
        " executed",
        "FLOP/s that were executed, recomputation counted.",
        lambda run: run.hardware_flops_per_rank,
    ),
    (
        "unlabelled_flops_per_rank",
        " unlabelled",
        "FLOP/s of which the log does not say whether recomputation counts.",
        lambda run: run.unlabelled_flops_per_rank,
    ),
)
