"""What a run's numbers rest on: how much work a step was to be, on how many ranks, on which chips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from hpcbench.collect.lines import integer, member, number, text
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.contract.measured import first_measured
from hpcbench.predict import chips, flops


@dataclass(frozen=True)
class Basis:
    """Taken from a run's settings and its first events; None where they do not say, as in foreign logs."""

    first: int
    """Number of the first step after the warm-up: those before it fill caches and buffers, and would slow the faster
    scheme most."""
    batch: int | None
    """Sequences of a step, all ranks together."""
    seq_len: int | None
    """Tokens of a sequence."""
    ranks: int | None
    shape: dict[str, int] | None
    """``layers``, ``hidden``, ``vocab`` and ``seq_len``, as the formulas of `hpcbench.predict.flops` take them."""
    model_flops: float | None
    """That one sequence needs, as the run's configuration says."""
    hardware_flops: float | None
    """That one sequence costs, as the run's configuration says."""
    neox_flops: float | None
    """That one sequence costs by GPT-NeoX's formula, as the run's configuration says."""
    recompute: str | int | None
    """What the backward pass was to compute again: ``none``, ``selective``, ``full``, or so many layers at a time."""
    chip: str | None
    """What the ranks compute on; None for a CPU, and where they differ."""
    peak: float | None
    """Dense peak in FLOP/s of a rank's share of its GPU, in the precision of the run."""


def basis(run: RunResult, log: RunLog) -> Basis:
    """Read what the run's numbers rest on."""
    train = member(run.settings, "train")
    ranks = _positive(integer(run.settings, "ranks"))
    warmup = max(integer(train, "warmup_steps") or 0, 0)
    configuration = log.data("configuration")
    return Basis(
        first=first_measured(warmup, log.planned_steps or 0, log.resumed_from),
        batch=_positive(integer(train, "global_batch")),
        seq_len=_positive(integer(train, "seq_len")),
        ranks=ranks,
        shape=_shape(run.settings),
        model_flops=_finite(number(configuration, "model_flops_per_sample")),
        hardware_flops=_finite(number(configuration, "hardware_flops_per_sample")),
        neox_flops=_finite(number(configuration, "neox_flops_per_sample")),
        recompute=_recompute(train),
        chip=_chip(log.ranks),
        peak=_peak(log.ranks, text(train, "precision"), member(run.settings, "peak_tflops")),
    )


def _recompute(train: Any) -> str | int | None:
    words = text(train, "recompute")
    return words if words in ("none", "selective", "full") else _positive(integer(train, "recompute"))


def _shape(settings: Mapping[str, Any]) -> dict[str, int] | None:
    sizes = {name: _positive(integer(settings, "model", name)) for name in ("layers", "hidden", "vocab")}
    sizes["seq_len"] = _positive(integer(settings, "train", "seq_len"))
    known = {name: size for name, size in sizes.items() if size is not None}
    return known if len(known) == len(sizes) else None


def _gpu(rank: Mapping[str, Any]) -> str | None:
    """The name that PyTorch has for a rank's GPU."""
    device, _, name = (text(rank, "device") or "").partition(" ")
    return name if device.startswith("cuda") and name else None


def _chip(ranks: Sequence[Mapping[str, Any]]) -> str | None:
    names = {_gpu(rank) for rank in ranks}
    return names.pop() if len(names) == 1 else None


def _peak(ranks: Sequence[Mapping[str, Any]], precision: str | None, site: Any) -> float | None:
    """Of all GPUs over the number of ranks: two ranks that share a GPU have half of it each."""
    if not ranks or precision is None:
        return None
    own = number(site, precision)
    peaks: dict[Any, float] = {}
    for place, rank in enumerate(ranks):
        name = _gpu(rank)
        chip = chips.find(name) if name else None
        peak = own * 1e12 if own and name else chip.peak(precision) if chip else None
        if peak is None:
            return None
        peaks[text(rank, "gpu", "uuid") or text(rank, "gpu", "pci") or place] = peak
    return sum(peaks.values()) / len(ranks)


def _positive(value: int | None) -> int | None:
    """None for what no run can have: products of what is left fit into a float."""
    return value if value is not None and 0 < value < 1 << 53 else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) and value > 0 else None


def flops_of(shape: Mapping[str, int]) -> dict[str, float]:
    """Operations of one sequence of this shape by each convention in use, the one that hpcbench prints first.

    GPT-NeoX's formula with recomputation is Megatron-LM's.
    """
    return {
        "Megatron-LM's formula": flops.model_flops_per_sample(**shape),
        "Megatron-LM's formula with recomputation": flops.hardware_flops_per_sample(**shape, recompute="full"),
        "Megatron-LM's formula with selective recomputation": flops.hardware_flops_per_sample(
            **shape, recompute="selective"
        ),
        "GPT-NeoX's formula without recomputation": flops.neox_flops_per_sample(**shape, recompute="none"),
    }
