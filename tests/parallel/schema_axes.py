"""Axes for the study settings that affect training, and the reasons for omitting other settings.

An axis value sets one field of the schema, or several fields that depend on each other. If a field has only a few
values, the axis takes them from the schema. test_pairs.py fails if a field or value of the schema is not listed here.
"""

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hpcbench.contract.rule import Rule
from hpcbench.study.schema import SchemeEntry, Study

Setting = dict[str, Any]
"""Values of fields by dotted name."""


@dataclass(frozen=True)
class Axis:
    """A setting, or a group of related settings.

    Attributes
    ----------
    values
        Settings by label. The first setting is compatible with most values of the other axes.
    rounding
        Labels whose runs only approximate one process: number formats, lossy codecs, stale weights.
    mathematics
        Whether the single-process reference uses the same value.
    """

    values: dict[str, Setting]
    rounding: tuple[str, ...] = ()
    mathematics: bool = False


def leaves(section: type[BaseModel], name: str) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a schema section. Fields of nested sections have dotted names."""
    for key, field in section.model_fields.items():
        parts = [part for part in types_of(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        if parts:
            yield from leaves(parts[0], f"{name}.{key}")
        else:
            yield f"{name}.{key}", field


def types_of(annotation: Any) -> Iterator[Any]:
    """Yield the member types of a union."""
    if get_origin(annotation) is Annotated:
        yield from types_of(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from types_of(part)
    else:
        yield annotation


def few(annotation: Any) -> list[Any]:
    """Return all values of an enumerable type. If a union also contains numbers, only the literals are returned."""
    values: list[Any] = []
    for part in types_of(annotation):
        if part is bool:
            values += [False, True]
        elif get_origin(part) is Literal:
            values += get_args(part)
    return values


def fields() -> Iterator[tuple[str, FieldInfo]]:
    """Yield every field of a study, scheme and rule, with its dotted name."""
    for name, field in Study.model_fields.items():
        section: Any = field.annotation
        if name in ("model", "data", "train", "layout"):
            yield from leaves(section, name)
        else:
            yield name, field
    yield from leaves(SchemeEntry, "schemes")
    yield from leaves(Rule, "rules")


FIELDS = {name: field.annotation for name, field in fields()}
DEFAULTS = {name: field.default for name, field in fields()}


def of(name: str, *more: Any, first: Any = None) -> dict[str, Setting]:
    """Return the schema's values of a field, and additional values. `first` comes first."""
    values = [*few(FIELDS[name]), *more]
    values.sort(key=lambda value: value != first)
    return {str(value): {name: value} for value in values}


def product_of(**axes: dict[str, Setting]) -> dict[str, Setting]:
    """Return all combinations of the values of several fields."""
    return {
        " ".join(label for label, _ in chosen if label): {
            key: value for _, part in chosen for key, value in part.items()
        }
        for chosen in product(*(axis.items() for axis in axes.values()))
    }


def layout(tensor: str, tp: int, depth: int = 1, *, spread: bool = False) -> Setting:
    """Return the settings of a tensor grid."""
    return {
        "layout.tensor": tensor,
        "layout.tp": tp,
        "layout.depth": depth,
        "train.sequence_parallel": spread,
    }


def experts(drop: str, ep: int, **others: Any) -> Setting:
    """Return the settings of a model with two experts per layer, and the expert-parallel size."""
    places = {} if drop == "none" else {"capacity": 0.75, "min_capacity": 1}
    chosen = {"count": 2, "drop": drop, **places, **others}
    return {"layout.ep": ep, **{f"model.experts.{key}": value for key, value in chosen.items()}}


def pruned(pattern: str, **others: Any) -> Setting:
    """Return settings that prune weights after the first update."""
    return {f"train.prune.{key}": value for key, value in {"pattern": pattern, "begin": 1, **others}.items()}


def scheme(algorithm: str, codec: str = "none", **rule: Any) -> Setting:
    """Return a scheme with one codec for all traffic, or with a rule."""
    if rule:
        return {"schemes.algorithm": algorithm, "schemes.rules": [{"codec": codec, **rule}]}
    return {"schemes.algorithm": algorithm, "schemes.default": codec}


FUSED, UNFUSED = 0.05, 1e-6
"""Bucket sizes in MB: a bucket of several parameters, and a bucket of a single parameter."""

AXES: dict[str, Axis] = {
    "tensor": Axis(
        {
            "1d tp1": layout("1d", 1),
            "1d tp2": layout("1d", 2),
            "1d tp2 spread": layout("1d", 2, spread=True),
            "2d tp4": layout("2d", 4),
            "2.5d tp2": layout("2.5d", 2, 2),
            "2.5d tp8": layout("2.5d", 8, 2),
            "3d tp8": layout("3d", 8),
        }
    ),
    "schedule": Axis(
        product_of(
            schedule=of("train.schedule", first="1f1b"),
            vertical={"": {}, "vertical": {"train.vertical_sync": True}},
            pp={"pp1": {"layout.pp": 1}, "pp2": {"layout.pp": 2}},
            chunks={"": {}, "chunks2": {"layout.chunks": 2}},
        )
    ),
    "stages": Axis({"even": {}, "uneven": {"layout.stages": "uneven"}}),
    "dp": Axis({"2": {"layout.dp": 2}, "1": {"layout.dp": 1}, "4": {"layout.dp": 4}}),
    "context": Axis(
        {"cp1": {}} | {f"cp2 {way}": {"layout.cp": 2, "layout.context": way} for way in few(FIELDS["layout.context"])}
    ),
    "zero": Axis(
        product_of(
            zero=of("train.zero", first=1),
            optimizer=of("train.optimizer", first="adamw"),
            copy={"": {}, "copy": {"train.node_copy": True}},
        ),
    ),
    "sync": Axis(
        of("train.sync", first="all-reduce") | {"ssp": {"train.sync": "ssp", "train.staleness": 1}},
        rounding=("ssp", "asp"),
    ),
    "experts": Axis(
        {
            "none": {},
            "position": experts("position", 1),
            "position ep2": experts("position", 2),
            "probability ep2": experts("probability", 2, shared=True, shared_width=64, width=32),
            "open": experts("none", 1, every=2),
            "open ep2": experts("none", 2, top=2, first=1),
        },
        mathematics=True,
    ),
    "prune": Axis(
        {
            "none": {},
            "2:4": pruned("2:4"),
            "unstructured": pruned("unstructured", sparsity=0.6),
            "rows": pruned("rows", sparsity=0.3),
            "heads": pruned("heads", sparsity=0.25),
        },
        mathematics=True,
    ),
    "recompute": Axis(of("train.recompute", 2, first="none")),
    "sparse_gradients": Axis(of("train.sparse_gradients", first="never")),
    "overlap": Axis(of("train.overlap", first=True)),
    "offload": Axis(of("train.offload", first=False)),
    "buckets": Axis({"flat": {"train.bucket_mb": FUSED}, "one each": {"train.bucket_mb": UNFUSED}}),
    "micro_batch": Axis({"few": {"train.micro_batch": 1}, "more": {"train.micro_batch": 2}}),
    "clip": Axis({"0": {"train.clip": 0.0}, "1": {"train.clip": 1.0}}, mathematics=True),
    "positions": Axis(of("model.positions", first="rotary"), mathematics=True),
    "residual": Axis(of("model.parallel_residual", first=True), mathematics=True),
    "tied": Axis(of("model.tied", first=False), mathematics=True),
    "kv_heads": Axis({"all": {}, "2": {"model.kv_heads": 2}}, mathematics=True),
    "activation": Axis(
        of("model.activation", first="gelu") | {"swiglu 48": {"model.activation": "swiglu", "model.mlp_width": 48}},
        mathematics=True,
    ),
    "norm": Axis(of("model.norm", first="layernorm"), mathematics=True),
    "bias": Axis(of("model.bias", first=True), mathematics=True),
    "vocab": Axis({"256": {"model.vocab": 256}, "259": {"model.vocab": 259}}, mathematics=True),
    "checkpoint": Axis({"none": {}, "resumed": {"train.checkpoint_every": 1}}),
    "trace": Axis({"none": {}, "traced": {"train.trace.steps": [1, 2]}}),
    "messages": Axis({"none": {}, "sampled": {"train.keep_messages.steps": [2]}}),
    "scheme": Axis(
        {algorithm: scheme(algorithm) for algorithm in ("encoded", "native", "two-shot")}
        | {"mpc": scheme("encoded", "mpc"), "mpc between nodes": scheme("hierarchical", "mpc", between_nodes=True)}
        | {"int8": scheme("encoded", "int8:256"), "int8 homomorphic": scheme("homomorphic", "int8:256")}
        | {"signs": scheme("encoded", "sign:1024", dimension="DP", feedback=True)},
        rounding=("int8", "int8 homomorphic", "signs"),
    ),
    "precision": Axis(of("train.precision", first="fp64"), ("fp32", "bf16", "fp16"), mathematics=True),
    **{
        content: Axis(of(name, first="auto"), ("fp32", "bf16", "fp16"))
        for content in ("activations", "gradients", "parameters")
        for name in (f"train.comm_precision.{content}",)
    },
}

DERIVED = {
    "model.layers": "one for each part of the pipeline, and two at least",
    "train.global_batch": "enough micro-batches to fill the pipeline",
    "train.eval_samples": "a number that replicas share out unevenly, where that is allowed",
}
"""Fields whose values follow from the axes."""

_SIZE = "a size: other sizes do the same work"
_NUMBER = "a number in a formula that every layout has"
_LOG = "says what is written or evaluated between steps"
_STUDY = "of the study or its jobs: no run has it"
_TEXT = "the text is the same for every way to train"
NO_AXIS = {
    **dict.fromkeys(("model.name", "train.seed"), "changes no work"),
    **dict.fromkeys(("model.hidden", "model.heads", "train.seq_len", "train.steps", "train.warmup_steps"), _SIZE),
    **dict.fromkeys(("model.experts.balance", "model.experts.z_loss", "model.rotary_fraction"), _NUMBER),
    "model.rotary_base": _NUMBER,
    **dict.fromkeys((f"train.{name}" for name in ("lr", "min_lr", "beta1", "beta2", "eps", "weight_decay")), _NUMBER),
    **dict.fromkeys((f"train.loss_scale{end}" for end in ("", "_window", "_hysteresis")), _NUMBER),
    **dict.fromkeys((name for name in FIELDS if name.startswith("data.")), _TEXT),
    **dict.fromkeys(("train.prune.end", "train.prune.every"), "the curve of growing sparsity (test_masks.py)"),
    "train.freeze_step": "the first step, by default, which is the only one that two steps have",
    "train.eval_every": _LOG,
    **dict.fromkeys(
        (f"train.keep_messages.{name}" for name in ("each", "ranks", "message_mb", "mb")),
        "how much is written (tests/features/messages/test_message_samples.py)",
    ),
    **dict.fromkeys(
        (f"train.codec_effects.{name}" for name in ("steps", "codecs")),
        "repeats steps and changes no value (tests/features/effects/test_codec_effects.py)",
    ),
    **dict.fromkeys(("train.slow_factor", "train.slow_rank"), "lets a rank sleep, and changes no value"),
    "train.transport": "NCCL needs GPUs (tests/comm/test_nccl_transport.py)",
    "schemes.environment": "variables for the MPI library",
    "schemes.arguments": "for programs, which the engine refuses",
    **dict.fromkeys(("schemes.preload", "schemes.setup"), "before the engine starts (test_process_start.py)"),
    "schemes.system": "values for the other fields (test_systems.py)",
    "schemes.optimizer": "another place for train.optimizer",
    "schemes.description": "a comment",
    **dict.fromkeys(
        ("rules.dimension", "rules.phase", "rules.kind", "rules.axis", "rules.codec", "rules.min_bytes"),
        "which messages a codec is for, and which codec (test_rules_in_training.py, tests/comm)",
    ),
    "rules.sample_changes": "sends changes of activations (test_sample_changes.py)",
    "rules.low_rank": "approximates gradients (test_gradient_schemes.py)",
    "rules.mixed_bits": "splits gradients by width (test_mixed_widths.py)",
    **dict.fromkeys(("rules.feedback_average", "rules.feedback_reset"), "averages errors (test_gradient_schemes.py)"),
    "rules.differences": "the content of gathers (test_weight_differences.py)",
    **dict.fromkeys(("rules.from_step", "rules.until_step"), "the steps of a codec (test_gradient_schemes.py)"),
    **dict.fromkeys(
        (name for name in FIELDS if "." not in name and name not in ("nodes", "ranks_per_node", "scheme", "schemes")),
        _STUDY,
    ),
    **dict.fromkeys(("nodes", "ranks_per_node"), "the place of ranks on nodes: a test has one node"),
    **dict.fromkeys(("scheme", "schemes"), "a name for the fields of a scheme"),
}
"""Reasons why a field is not an axis."""

OUTSIDE = {
    "schemes.algorithm": (
        ("auto", "hierarchical-encoded", "ring", "doubling"),
        "other messages for the same call: tests/comm has each with every operation",
    ),
    "layout.stages": (("auto",), "a list when a run begins"),
}
"""Values of axis fields that no case contains, with the reason."""


def set_by(settings: Iterable[Setting]) -> dict[str, set[Any]]:
    """Collect the values that the settings assign to each field, including fields of rules."""
    values: dict[str, set[Any]] = {}
    for setting in settings:
        for name, value in setting.items():
            if name != "schemes.rules":
                values.setdefault(name, set()).add(None if isinstance(value, list) else value)
                continue
            values.setdefault(name, set()).add(None)
            for key, part in ((key, part) for rule in value for key, part in rule.items()):
                values.setdefault(f"rules.{key}", set()).add(part)
    return values


def unlisted(schema: dict[str, Any], accepted: Iterable[Setting]) -> list[str]:
    """Return the schema fields that are not listed here, and the values that no accepted setting contains.

    If some settings omit a field, its default counts as covered.
    """
    values = set_by(accepted)
    fields = [name for name in schema if name not in values and name not in DERIVED and name not in NO_AXIS]
    missing = [
        f"{name}: {value}"
        for name in (schema.keys() & values.keys()) - NO_AXIS.keys()
        for value in few(schema[name])
        if value not in {*values[name], DEFAULTS[name], *OUTSIDE.get(name, ((), ""))[0]}
    ]
    return sorted([*fields, *missing])
