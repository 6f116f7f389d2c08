"""Inputs for a run's derived numbers: work per step, number of ranks, and chips."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import isfinite
from typing import Any

from pydantic import ValidationError

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.contract.events import Configuration, Rank
from hpcbench.contract.experts import Experts
from hpcbench.contract.measured import find_first_counted
from hpcbench.contract.settings import LoggedSettings, ModelSettings
from hpcbench.contract.values import get_number
from hpcbench.predict import chips, flops
from hpcbench.predict.experts import shape_of_experts
from hpcbench.report.expert_layers import read_expert_loads


@dataclass(frozen=True)
class Basis:
    """Facts from a run's settings and first events.

    Missing facts, which are common in logs of other programs, are None.
    """

    first: int
    """First step that is included in the speed.

    During earlier steps, code is compiled, and caches and buffers are filled. Including these steps would penalize the
    faster scheme most.
    """
    batch: int | None
    """Number of sequences per step, over all ranks."""
    seq_len: int | None
    """Number of tokens per sequence."""
    ranks: int | None
    shape: dict[str, Any] | None
    """Sizes ``layers``, ``hidden``, ``vocab``, ``seq_len``, and optionally ``block`` and ``experts``.

    The sizes are inputs of `predict.flops`. Experts are assumed to keep all rows within their capacity, as in
    predictions before a run.
    """
    model_flops: float | None
    """Required operations per sequence, excluding tokens that the run's experts dropped."""
    hardware_flops: float | None
    """Executed operations per sequence."""
    neox_flops: float | None
    """Operations per sequence according to GPT-NeoX's formula."""
    recompute: str | int | None
    """Recomputation in the backward pass: ``none``, ``selective``, ``full``, or a number of layers at a time."""
    chip: str | None
    """GPU model of the ranks, or None for CPUs, or if the ranks use different GPU models."""
    peak: float | None
    """Peak dense FLOP/s of a rank's share of its GPU, at the run's precision."""

    @property
    def work_varies(self) -> bool:
        """Whether the operations per step vary because experts may drop tokens."""
        return self.shape is not None and _can_drop_tokens(self.shape)


def read_basis(run: RunResult, log: RunLog) -> Basis:
    """Read the basis of a run from its settings and log."""
    work = run.settings.work
    configuration = log.read_event(Configuration)
    shape, recompute = _read_shape(run.settings), _read_recompute(work.recompute)
    kept_shape = _replace_kept_rows(shape, log)

    executed = {"recompute": "none" if recompute is None else recompute}

    def without_dropped(name: str, formula: Callable[..., float], **mode: Any) -> float | None:
        stated = keep_finite(getattr(configuration, f"{name}_flops_per_sample"))
        if stated is None or kept_shape == shape:
            return stated
        return (
            keep_finite(stated - formula(**shape, **mode) + formula(**kept_shape, **mode))
            if shape and kept_shape
            else None
        )

    return Basis(
        first=find_first_step(run, log),
        batch=_keep_positive(work.global_batch),
        seq_len=_keep_positive(work.seq_len),
        ranks=_keep_positive(run.settings.ranks),
        shape=shape,
        model_flops=without_dropped("model", flops.count_model_flops),
        hardware_flops=without_dropped("hardware", flops.count_hardware_flops, **executed),
        neox_flops=without_dropped("neox", flops.count_neox_flops, **executed),
        recompute=recompute,
        chip=_find_chip(log.ranks),
        peak=_compute_peak(log.ranks, work.precision, run.settings.peak_tflops),
    )


def find_first_step(run: RunResult, log: RunLog) -> int:
    """Return the number of the first step that is included in the speed.

    Speed is measured after the stated warm-up. If no warm-up is stated, the log's first step line is excluded, unless
    it is the only step line. This rule does not depend on how the framework numbers its steps.
    """
    warmup = run.settings.work.warmup_steps
    if warmup is None:
        return max(nsmallest(2, log.steps), default=1)
    return find_first_counted(max(warmup, 0), log.planned_steps or 0, log.resumed_from)


def _read_recompute(stated: str | int | None) -> str | int | None:
    if isinstance(stated, str):
        return stated if stated in ("none", "selective", "full") else None
    return _keep_positive(stated)


def _read_shape(settings: LoggedSettings) -> dict[str, Any] | None:
    model, layout = settings.model, settings.layout
    stated = {"layers": model.layers, "hidden": model.hidden, "vocab": model.vocab, "seq_len": settings.train.seq_len}
    sizes = {name: _keep_positive(size) for name, size in stated.items()}
    positive: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    if len(positive) != len(sizes):
        return None
    if (block := _read_block(model)) != flops.GPT:
        positive["block"] = block
    if model.experts is None:
        return positive
    ep, tp = _keep_positive(layout.ep) or 1, _keep_positive(layout.tp) or 1
    try:
        settled = Experts.model_validate(model.experts)
    except ValidationError:
        return None
    return {
        **positive,
        "experts": shape_of_experts(settled, layers=positive["layers"], seq_len=positive["seq_len"], ep=ep, tp=tp),
    }


def _read_block(model: ModelSettings) -> flops.BlockShape:
    """Return the layer sizes that determine the number of operations."""
    hidden, heads, groups = (_keep_positive(size) for size in (model.hidden, model.heads, model.kv_heads))
    return flops.BlockShape(
        kv_width=groups * (hidden // heads) if hidden and heads and groups else None,
        mlp_width=_keep_positive(model.mlp_width),
        gated=model.activation == "swiglu",
    )


def _replace_kept_rows(shape: dict[str, Any] | None, log: RunLog) -> dict[str, Any] | None:
    """Return the model shape, completed with the number of rows that the experts kept.

    The result is None if the log does not count dropped rows.
    """
    if shape is None or not _can_drop_tokens(shape):
        return shape
    counts = read_expert_loads(log)
    if counts is None:
        return None
    layer: flops.ExpertShape = shape["experts"]
    return {**shape, "experts": layer._replace(kept_rows=layer.chosen * (1 - counts.dropped_part))}


def _can_drop_tokens(shape: Mapping[str, Any]) -> bool:
    """Return whether experts of this shape may drop tokens."""
    return "experts" in shape and shape["experts"].places is not None


def _read_gpu(rank: Rank) -> str | None:
    """Return the name that PyTorch reports for a rank's GPU."""
    device, _, name = (rank.device or "").partition(" ")
    return name if device.startswith("cuda") and name else None


def _find_chip(ranks: Sequence[Rank]) -> str | None:
    names = {_read_gpu(rank) for rank in ranks}
    return names.pop() if len(names) == 1 else None


def _compute_peak(ranks: Sequence[Rank], precision: str | None, site: Any) -> float | None:
    """Return the peak FLOP/s per rank: the sum over all GPUs divided by the number of ranks.

    Ranks that share a GPU also share its peak equally.
    """
    if not ranks or precision is None:
        return None
    of_site = get_number(site, precision)
    peaks: dict[Any, float] = {}
    for place, rank in enumerate(ranks):
        name = _read_gpu(rank)
        chip = chips.find_chip(name) if name else None
        peak = of_site * 1e12 if of_site and name else chip.peak(precision) if chip else None
        if peak is None:
            return None
        peaks[(rank.gpu.uuid or rank.gpu.pci if rank.gpu else None) or place] = peak
    return sum(peaks.values()) / len(ranks)


def _keep_positive(value: int | None) -> int | None:
    """Return the value, or None if it is implausible. Products of accepted values do not overflow a float."""
    return value if value is not None and 0 < value < 1 << 53 else None


def keep_finite(value: float | None) -> float | None:
    """Return the value, or None if it is not a valid number of operations."""
    return value if value is not None and isfinite(value) and value > 0 else None


def compute_flops_by_formula(shape: Mapping[str, Any]) -> dict[str, float]:
    """Return the operations per sequence for each formula. The first formula is hpcbench's own.

    With recomputation, GPT-NeoX's formula equals Megatron-LM's.
    """
    return {
        "Megatron-LM's formula": flops.count_model_flops(**shape),
        "Megatron-LM's formula with recomputation": flops.count_hardware_flops(**shape, recompute="full"),
        "Megatron-LM's formula with selective recomputation": flops.count_hardware_flops(
            **shape, recompute="selective"
        ),
        "GPT-NeoX's formula without recomputation": flops.count_neox_flops(**shape, recompute="none"),
    }
