"""Detection of idle settings, which change nothing in any run. A study with idle settings is refused.

A setting may be idle in some cells of a matrix, such as `sequence_parallel` if ``layout.tp`` is 1. A value is refused
only if it is idle in all of its cells.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel

from hpcbench.contract.layout import Layout
from hpcbench.contract.problems import FieldPath, Locator
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.section import Misfit
from hpcbench.contract.traffic import TrafficSettings, find_content, list_live_traffic
from hpcbench.contract.training import CONTENTS
from hpcbench.errors import UserError
from hpcbench.features.rules import RULES
from hpcbench.study.schema import Study

_LOSS_SCALES = ("loss_scale", "loss_scale_window", "loss_scale_hysteresis")


class _Use(NamedTuple):
    """A setting's value, and whether it is idle in all cells so far."""

    where: str
    idle: Misfit | None
    """Reason why the value changes nothing in the cells so far, or None if it changes something in one of them."""


class IdleSettings:
    """The explicit settings of a study, and whether each of them changes something in any run."""

    def __init__(self) -> None:
        self._uses: dict[tuple[FieldPath, str], _Use] = {}

    def add(
        self,
        study: Study,
        scheme: Scheme,
        layout: Layout,
        *,
        writes: Callable[[FieldPath], bool],
        where: Locator,
    ) -> None:
        """Add a cell.

        Parameters
        ----------
        study
            Study with the cell's values, before the scheme's optimizer is applied.
        writes
            Function that returns whether a setting is explicit, not from a preset or default.
        """
        idle = dict(_idle(study, scheme, layout))
        for path in _CAN_BE_IDLE:
            if writes(path) and not _is_default(study, path):
                key = path, repr(_value(study, path))
                earlier = self._uses.get(key)
                misfit = Misfit(tuple(map(str, path)), idle[path]) if path in idle else None
                if earlier is None or misfit is None:
                    self._uses[key] = _Use(where(path), misfit)

    def check(self) -> None:
        """Refuse a setting that changes nothing in any run."""
        for (path, _), use in self._uses.items():
            if use.idle is not None:
                name = ".".join(map(str, path))
                raise UserError(f"{use.where}: {name}: changes nothing in any run: {use.idle.problem}")


def _idle(study: Study, scheme: Scheme, layout: Layout) -> Iterator[tuple[FieldPath, str]]:
    """Yield the settings that have no effect in a cell, whatever their value, with reason and remedy."""
    model, train = study.model, study.train
    setting = TrafficSettings(layout, train.changed(optimizer=scheme.optimizer or train.optimizer), model.tied)
    sent = list_live_traffic(setting)
    micro_batches = train.global_batch // (layout.dp * train.micro_batch)
    if model.positions == "learned":
        for name in ("rotary_fraction", "rotary_base"):
            yield ("model", name), f"learned positions have no rotation: leave {name} out, or set positions to rotary"
    if model.experts is not None and model.experts.drop == "none":
        for name in ("capacity", "min_capacity"):
            yield (
                ("model", "experts", name),
                f"with `drop: none`, experts have no capacity: leave {name} out, or set drop to position or "
                "probability",
            )
    idle_contents = [content for content in CONTENTS if content not in map(find_content, sent)]
    for content in idle_contents:
        yield (
            ("train", "comm_precision", content),
            f"a run with {_sizes(layout)} and zero {train.zero} sends no {content}: leave this format out, or set it "
            "to auto",
        )
    if all(dtype == "auto" or content in idle_contents for content, dtype in train.comm_precision):
        yield (
            ("train", "comm_precision"),
            f"a run with {_sizes(layout)} and zero {train.zero} sends no messages with these formats: leave "
            "comm_precision out",
        )
    if layout.replicas == 1:
        alone = "with layout.dp 1, a replica has no other replica to"
        yield ("train", "sparse_gradients"), f"{alone} send rows to: leave sparse_gradients out, or use more replicas"
        yield ("train", "node_copy"), f"{alone} gather weights from: leave node_copy out, or use more replicas"
    if layout.ranks == 1:
        yield ("train", "overlap"), "a run with a single rank sends no gradients: leave overlap out, or use more ranks"
        for name in ("keep_messages", "codec_effects"):
            yield ("train", name), f"a run with a single rank sends no messages: leave {name} out, or use more ranks"
    if (study.data.samples or 0) >= train.steps * train.global_batch:
        reason = (
            f"no sample recurs in {train.steps} steps of {train.global_batch} samples: lower samples, or leave it out"
        )
        yield ("data", "samples"), reason
    if train.slow_factor == 1:
        yield ("train", "slow_rank"), "slow_factor 1 does not slow any rank: set slow_factor, or leave slow_rank out"
    if layout.tp == 1:
        reason = "layout.tp 1 does not split layers: leave this setting out, or set layout.tp to 2 or more"
        yield ("train", "sequence_parallel"), reason
        yield ("layout", "tensor"), reason
    if layout.cp == 1:
        yield (
            ("layout", "context"),
            "layout.cp 1 does not split positions: leave context out, or set layout.cp to 2 or more",
        )
    if layout.parts == 1:
        yield (
            ("layout", "stages"),
            "with layout.pp 1 there is only one stage: leave stages out, or set layout.pp to 2 or more",
        )
    if micro_batches == 1 and train.schedule == "gpipe":
        yield (
            ("train", "schedule"),
            "with one micro-batch per step, gpipe and 1f1b are the same: leave schedule out, or lower micro_batch",
        )
    if (scheme.optimizer or train.optimizer) != "onebit-adam":
        yield (
            ("train", "freeze_step"),
            "adamw does not freeze its variance: leave freeze_step out, or set optimizer to onebit-adam here or in a "
            "scheme",
        )
    if scheme.optimizer not in (None, train.optimizer):
        yield (
            ("train", "optimizer"),
            f"each scheme sets optimizer {scheme.optimizer}: leave train.optimizer out, or remove optimizer from a "
            "scheme",
        )
    if train.precision != "fp16":
        for name in _LOSS_SCALES:
            yield (
                ("train", name),
                f"precision {train.precision} needs no loss scale: leave {name} out, or set precision to fp16",
            )
    for rules in RULES:
        yield from rules.idle(train)


_CAN_BE_IDLE: tuple[FieldPath, ...] = (
    *(("model", name) for name in ("rotary_fraction", "rotary_base")),
    *(("model", "experts", name) for name in ("capacity", "min_capacity")),
    *(("train", "comm_precision", content) for content in CONTENTS),
    *(
        ("train", name)
        for name in (
            *(
                "comm_precision",
                "sparse_gradients",
                "node_copy",
                "overlap",
                "keep_messages",
                "codec_effects",
                "slow_rank",
            ),
            *("sequence_parallel", "schedule", "freeze_step", "optimizer", *_LOSS_SCALES),
        )
    ),
    *(path for rules in RULES for path in rules.can_be_idle),
    ("data", "samples"),
    *(("layout", name) for name in ("tensor", "context", "stages")),
)
"""Settings that `_idle` may yield."""


def _value(study: Study, path: FieldPath) -> Any:
    """Return the value of a setting, or None if its section is omitted."""
    value: Any = study
    for name in path:
        value = None if value is None else getattr(value, str(name))
    return value


def _is_default(study: Study, path: FieldPath) -> bool:
    section = _value(study, path[:-1])
    if not isinstance(section, BaseModel):
        return True
    default = type(section).model_fields[str(path[-1])].get_default(call_default_factory=True)
    return bool(_value(study, path) == default)


def _sizes(layout: Layout) -> str:
    names = [name for name in ("dp", "tp", "cp", "pp", "ep") if getattr(layout, name) > 1]
    return " x ".join(f"{name} {getattr(layout, name)}" for name in names) or "one rank"
