"""The facts that a run's numbers rest on: the work of a step, the number of ranks, and the chips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.contract.events import Configuration, Rank
from hpcbench.contract.measured import first_measured
from hpcbench.contract.values import integer, member, number, text
from hpcbench.predict import chips, flops


@dataclass(frozen=True)
class Basis:
    """The facts from a run's settings and its first events.

    A fact is None if they do not give it, as in foreign logs.
    """

    first: int
    """Number of the first step after the warm-up.

    Earlier steps fill caches and buffers, and would slow the faster scheme most.
    """
    batch: int | None
    """Number of sequences in a step, all ranks together."""
    seq_len: int | None
    """Number of tokens in a sequence."""
    ranks: int | None
    shape: dict[str, Any] | None
    """Sizes ``layers``, ``hidden``, ``vocab`` and ``seq_len``, for the formulas of `hpcbench.predict.flops`."""
    model_flops: float | None
    """Operations that one sequence needs, by the run's configuration."""
    hardware_flops: float | None
    """Operations that are executed for one sequence, by the run's configuration."""
    neox_flops: float | None
    """Operations of one sequence by GPT-NeoX's formula, by the run's configuration."""
    recompute: str | int | None
    """The part that the backward pass computes again: ``none``, ``selective``, ``full``, or a number of layers at a
    time.
    """
    chip: str | None
    """Chip of the ranks; None for a CPU, and if the ranks have different chips."""
    peak: float | None
    """Dense peak in FLOP/s of a rank's share of its GPU, in the precision of the run."""


def basis(run: RunResult, log: RunLog) -> Basis:
    """Read the facts that the run's numbers rest on."""
    train = member(run.settings, "train") or member(run.settings, "program")
    ranks = _positive(integer(run.settings, "ranks"))
    warmup = max(integer(train, "warmup_steps") or 0, 0)
    configuration = log.said(Configuration)
    return Basis(
        first=first_measured(warmup, log.planned_steps or 0, log.resumed_from),
        batch=_positive(integer(train, "global_batch")),
        seq_len=_positive(integer(train, "seq_len")),
        ranks=ranks,
        shape=_shape(run.settings),
        model_flops=_finite(configuration.model_flops_per_sample),
        hardware_flops=_finite(configuration.hardware_flops_per_sample),
        neox_flops=_finite(configuration.neox_flops_per_sample),
        recompute=_recompute(train),
        chip=_chip(log.ranks),
        peak=_peak(log.ranks, text(train, "precision"), member(run.settings, "peak_tflops")),
    )


def _recompute(train: Any) -> str | int | None:
    words = text(train, "recompute")
    return words if words in ("none", "selective", "full") else _positive(integer(train, "recompute"))


def _shape(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    sizes = {name: _positive(integer(settings, "model", name)) for name in ("layers", "hidden", "vocab")}
    sizes["seq_len"] = _positive(integer(settings, "train", "seq_len"))
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(known) != len(sizes):
        return None
    experts = _experts(member(settings, "model"), known["layers"])
    return known if experts is None else {**known, "experts": experts}


def _experts(model: Any, layers: int) -> flops.ExpertShape | None:
    """The experts of the model; None where it has none."""
    settings = member(model, "experts")
    count, top, every = (_positive(integer(settings, name)) for name in ("count", "top", "every"))
    if not isinstance(settings, dict) or count is None or top is None or every is None:
        return None
    shared = settings.get("shared") is True
    return flops.ExpertShape(layers // every, count + shared, top + shared, count)


def _gpu(rank: Rank) -> str | None:
    """PyTorch's name of a rank's GPU."""
    device, _, name = (rank.device or "").partition(" ")
    return name if device.startswith("cuda") and name else None


def _chip(ranks: Sequence[Rank]) -> str | None:
    names = {_gpu(rank) for rank in ranks}
    return names.pop() if len(names) == 1 else None


def _peak(ranks: Sequence[Rank], precision: str | None, site: Any) -> float | None:
    """Peak of a rank: the sum over all GPUs divided by the number of ranks.

    Two ranks that share a GPU have half of it each.
    """
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
        peaks[(rank.gpu.uuid or rank.gpu.pci if rank.gpu else None) or place] = peak
    return sum(peaks.values()) / len(ranks)


def _positive(value: int | None) -> int | None:
    """The value; None if no run can have it. Products of other values fit into a float."""
    return value if value is not None and 0 < value < 1 << 53 else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) and value > 0 else None


def flops_of(shape: Mapping[str, Any]) -> dict[str, float]:
    """Operations of one sequence of this shape by each formula in use, with the one that hpcbench prints first.

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
