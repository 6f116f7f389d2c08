"""A run as the worker reads it from run.json: every key is there, none is unknown."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from hpcbench.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """A GPT in the manner of GPT-NeoX."""

    name: str
    layers: int
    hidden: int
    heads: int
    vocab: int
    positions: str
    """``rotary`` or ``learned``."""
    rotary_fraction: float
    """Part of each head that is rotated."""
    parallel_residual: bool
    tied: bool
    """The head shares the embedding's weight."""


@dataclass(frozen=True)
class Data:
    """The text."""

    source: str
    """``stdlib`` or ``file``."""
    path: str | None
    valid_fraction: float


@dataclass(frozen=True)
class Train:
    """How to train."""

    steps: int
    warmup_steps: int
    global_batch: int
    micro_batch: int
    seq_len: int
    precision: str
    """``fp64``, ``fp32``, ``bf16`` or ``fp16``."""
    zero: int
    """ZeRO stage, 0 or 1."""
    seed: int
    lr: float
    min_lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip: float
    """Largest global gradient norm; 0 does not clip."""
    bucket_mb: float
    eval_every: int
    """Steps between evaluations; 0 evaluates at the end only."""
    eval_samples: int


@dataclass(frozen=True)
class Layout:
    """Sizes of the parallel dimensions."""

    dp: int
    tp: int
    pp: int

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp


@dataclass(frozen=True)
class SchemeRule:
    """A codec for the traffic that matches; None matches everything."""

    dimension: str | None
    phase: str | None
    kind: str | None
    codec: str


@dataclass(frozen=True)
class Scheme:
    """Which codec on which traffic."""

    name: str
    algorithm: str
    default: str
    rules: list[SchemeRule]


@dataclass(frozen=True)
class Run:
    """One cell of a study."""

    schema: int
    study: str
    site: str
    run: str
    repeat: int
    pairing: str
    cell: dict[str, Any]
    model: Model
    data: Data
    train: Train
    layout: Layout
    scheme: Scheme
    ranks: int
    threads: int
    oversubscribe: bool
    device: str


def load(path: Path) -> tuple[Run, dict[str, Any]]:
    """Read a run file; returns the run and the JSON as it stands.

    Raises
    ------
    UserError
        The file is missing, is no JSON, or has a missing or unknown key.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: run files are written by `hpcbench submit`") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}: run files are written by `hpcbench submit`") from None
    run = _build(Run, raw, str(path))
    run = _nested(run, raw, str(path))
    _check(run, str(path))
    return run, raw


def _build(kind: type[T], raw: Any, where: str) -> T:
    if not isinstance(raw, dict):
        raise UserError(f"{where}: expected a mapping, found {type(raw).__name__}")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for problem, keys in (("missing", names - raw.keys()), ("unknown", raw.keys() - names)):
        if keys:
            raise UserError(f"{where}: {problem} key {sorted(keys)[0]!r}: write the file with `hpcbench submit`")
    hints = get_type_hints(kind)
    values = {}
    for name, value in raw.items():
        if hints[name] is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if isinstance(hints[name], type) and hints[name] in (int, float, str, bool) and type(value) is not hints[name]:
            raise UserError(f"{where}: {name}: expected {hints[name].__name__}, found {value!r}")
        values[name] = value
    return kind(**values)


def _nested(run: Run, raw: dict[str, Any], where: str) -> Run:
    parts: dict[str, Any] = {
        name: _build(kind, raw[name], f"{where}: {name}")
        for name, kind in (("model", Model), ("data", Data), ("train", Train), ("layout", Layout))
    }
    scheme = _build(Scheme, raw["scheme"], f"{where}: scheme")
    rules = [_build(SchemeRule, rule, f"{where}: scheme.rules[{i}]") for i, rule in enumerate(scheme.rules)]
    parts["scheme"] = Scheme(scheme.name, scheme.algorithm, scheme.default, rules)
    return Run(**{**{field.name: getattr(run, field.name) for field in fields(run)}, **parts})


def _check(run: Run, where: str) -> None:
    m, t, p = run.model, run.train, run.layout
    rules = [
        (run.schema == 1, f"schema: {run.schema} is not known: this hpcbench reads schema 1"),
        (run.ranks == p.ranks, f"ranks: {run.ranks} is not dp x tp x pp = {p.ranks}"),
        (t.global_batch % (t.micro_batch * p.dp) == 0, "train.global_batch: not a multiple of micro_batch x dp"),
        (m.hidden % m.heads == 0, "model.hidden: not a multiple of model.heads"),
        (m.heads % p.tp == 0, "layout.tp: does not divide model.heads"),
        (m.layers >= p.pp, "layout.pp: more stages than layers"),
        (t.precision in ("fp64", "fp32", "bf16", "fp16"), f"train.precision: {t.precision!r} is not known"),
        (t.zero in (0, 1), f"train.zero: stage {t.zero} is not known: use 0 or 1"),
        (m.positions in ("rotary", "learned"), f"model.positions: {m.positions!r} is not rotary or learned"),
    ]
    for holds, message in rules:
        if not holds:
            raise UserError(f"{where}: {message}")
