"""Report quantities for speed and loss.

`hpcbench.contract.step_line` defines units and meanings of step-line quantities.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hpcbench.contract import step_line
from hpcbench.report.measures import Measures, select_completed
from hpcbench.report.quantities import (
    COUNT,
    FLOPS,
    GEOMETRIC,
    HIGHEST,
    LOSS,
    PERCENT,
    SECONDS,
    Average,
    Quantity,
    Value,
)
from hpcbench.report.statistics import average_known

_LINE = {quantity.name: quantity for quantity in step_line.QUANTITIES}


def _declare_of_line(name: str) -> Quantity:
    """Declare a step-line quantity, without the part of its description that applies only to step lines."""
    declared = _LINE[name]
    return Quantity(key=name, head=name, unit=declared.unit, meaning=declared.meaning.replace(" so far", ""))


def _declare_rate(name: str) -> Quantity:
    """Declare a step-line quantity for which higher is better."""
    quantity = _declare_of_line(name)
    return replace(
        quantity,
        meaning=quantity.meaning.partition(", as the log")[0],  # reports recompute rates where possible
        over_steps="work over time",
        over_runs=GEOMETRIC,
        better="higher",
        table="speed",
        group=1,
    )


STEP_SECONDS = replace(
    _declare_of_line("seconds"),
    key="step_seconds",
    head="step time ({unit})",
    scale=SECONDS,
    run=lambda run: run.step_seconds,
    over_steps="mean of the steps",
    over_runs=GEOMETRIC,
    better="lower",
)
STEP_MEDIAN = replace(
    STEP_SECONDS,
    key="step_seconds_median",
    head="median ({unit})",
    run=lambda run: run.step_seconds_median,
    over_steps="median of the steps",
)
STEP_P95 = replace(
    STEP_SECONDS,
    key="step_seconds_p95",
    head="p95 ({unit})",
    run=lambda run: run.step_seconds_p95,
    over_steps="95th percentile of the steps",
)
STEP_P99 = replace(
    STEP_P95,
    key="step_seconds_p99",
    head="p99 ({unit})",
    run=lambda run: run.step_seconds_p99,
    over_steps="99th percentile of the steps",
)
SAMPLES = replace(
    _declare_rate("samples_per_s"), head="samples/s", label="samples/s", run=lambda run: run.samples_per_s, table=""
)
MODEL_FLOPS = replace(
    _declare_rate("model_flops_per_rank"), head="{unit}", scale=FLOPS, run=lambda run: run.model_flops_per_rank
)
HARDWARE_FLOPS = replace(
    _declare_rate("hardware_flops_per_rank"),
    head="{unit} executed",
    scale=FLOPS,
    run=lambda run: run.hardware_flops_per_rank,
)
UNLABELLED_FLOPS = replace(
    _declare_rate("unlabelled_flops_per_rank"),
    head="{unit} unlabelled",
    scale=FLOPS,
    run=lambda run: run.unlabelled_flops_per_rank,
)
NEOX_FLOPS = replace(
    HARDWARE_FLOPS,
    key="neox_flops_per_rank",
    head="{unit} by NeoX",
    meaning="FLOP/s according to GPT-NeoX's formula, as printed in its logs; includes recomputation",
    run=lambda run: run.neox_flops_per_rank,
)
MFU = replace(_declare_rate("mfu"), head="MFU", scale=PERCENT, run=lambda run: run.mfu)
HFU = replace(_declare_rate("hfu"), head="HFU", scale=PERCENT, run=lambda run: run.hfu)
TOKENS = replace(_declare_rate("tokens_per_s"), head="tokens/s", run=lambda run: run.tokens_per_s)
TOKENS_EACH = replace(
    _declare_rate("tokens_per_s_per_rank"), head="tokens/s/{each}", run=lambda run: run.tokens_per_s_per_rank
)
RATES = (SAMPLES, TOKENS, TOKENS_EACH, STEP_SECONDS)
"""Quantities that show the `Rates`: step times stand for steps per second."""
SPEED = (
    *(STEP_SECONDS, SAMPLES, MODEL_FLOPS, HARDWARE_FLOPS, UNLABELLED_FLOPS, NEOX_FLOPS, MFU, HFU, TOKENS, TOKENS_EACH),
    *(STEP_MEDIAN, STEP_P95, STEP_P99),
)


def _average_last_loss(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
    """Average the last validation loss of the completed runs. The result is NaN if a run diverged."""
    if any(run.run.state == "nan" for run in runs):
        return math.nan
    return average_known(run.loss_valid for run in select_completed(runs))


LOSS_TRAIN = replace(
    _declare_of_line("loss"),
    key="loss_train",
    head="loss",
    label="loss",
    scale=LOSS,
    run=lambda run: run.loss_train,
    over_steps="last step",
    better="lower",
    table="loss",
)
LOSS_VALID = replace(
    LOSS_TRAIN,
    key="loss_valid",
    head="loss (valid)",
    meaning="Validation loss after the last step",
    run=lambda run: run.loss_valid,
    over_runs=Average("mean of the runs", _average_last_loss),
    over_steps="",
)
SKIPPED = replace(
    _declare_of_line("skipped"),
    head="skipped steps",
    scale=COUNT,
    run=lambda run: run.skipped,
    over_runs=HIGHEST,
    better="lower",
    table="loss",
    group=2,
)
NAN_STEPS = replace(
    SKIPPED,
    key="nan_steps",
    head="NaN steps",
    meaning=_declare_of_line("nan_steps").meaning,
    run=lambda run: run.nan_steps,
)
LOSSES = (LOSS_TRAIN, LOSS_VALID, SKIPPED, NAN_STEPS)
