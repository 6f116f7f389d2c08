"""A run as the worker reads it from run.json: every key is there, none is unknown."""

import json
import re
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from hpcbench.comm import rules as traffic
from hpcbench.errors import UserError
from hpcbench.parallel.layout import Layout
from hpcbench.parallel.schedule import SCHEDULES

T = TypeVar("T")

_FRACTION = re.compile(r"[0-9]+(/[1-9][0-9]*)?")


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
    """``stdlib``, ``file``, ``megatron`` or ``numpy``."""
    path: str | None
    valid_fraction: float
    tokenizer: str | None = None
    """A tokenizer.json; None trains on the bytes of a text."""
    dtype: str | None = None
    """Of a file of bare numbers."""


@dataclass(frozen=True)
class CommPrecision:
    """The number format of messages by what they hold: ``auto`` (that of the run), ``fp32``, ``bf16`` or ``fp16``."""

    activations: str = "auto"
    gradients: str = "auto"
    parameters: str = "auto"


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
    """ZeRO stage, 0 to 3."""
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
    overlap: bool
    """Reduce gradients while the backward pass goes on."""
    eval_every: int
    """Steps between evaluations; 0 evaluates at the end only."""
    eval_samples: int
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 writes one only on request."""
    schedule: str = "1f1b"
    """Of the pipeline: ``gpipe``, ``1f1b`` or ``interleaved``."""
    recompute: str | int = "none"
    """Activations: ``none``, ``selective``, ``full``, or of so many layers at a time."""
    sequence_parallel: bool = False
    """Between tensor-parallel regions each rank holds its part of the positions."""
    offload: bool = False
    """Master weights, moments and their update are the host's."""
    node_copy: bool = False
    """ZeRO-3 keeps a second copy of the parameters within each node, for the backward pass."""
    optimizer: str = "adamw"
    """``adamw`` or ``onebit-adam``, the scheme's where that names one."""
    freeze_step: int | None = None
    """Updates before 1-bit Adam freezes its variance; None for other optimizers."""
    loss_scale: float = 2.0**12
    """The first one, of fp16."""
    loss_scale_window: int = 1000
    """Clean steps before it doubles."""
    loss_scale_hysteresis: int = 2
    """It halves from the so manieth overflow on."""
    comm_precision: CommPrecision = CommPrecision()


@dataclass(frozen=True)
class SchemeRule:
    """A codec for the traffic that matches; None matches everything."""

    dimension: str | None
    phase: str | None
    kind: str | None
    codec: str
    feedback: bool = False
    """What each message lacks is added to the next one."""
    min_bytes: int = 0
    """Smaller messages travel as they are."""
    between_nodes: bool = False
    """Encode only what crosses nodes."""


@dataclass(frozen=True)
class Scheme:
    """Which codec on which traffic."""

    name: str
    algorithm: str
    default: str
    rules: list[SchemeRule]
    environment: dict[str, Any] = field(default_factory=dict)
    """Variables that every rank must have found set so."""
    optimizer: str | None = None
    """What the scheme trains with; None leaves it to the study."""


@dataclass(frozen=True)
class Shape:
    """How the ranks were to lie on the machine."""

    nodes: int
    ranks_per_node: int
    cores_per_rank: int
    gpus_per_rank: str
    """A fraction: ``0``, ``1``, or ``1/2`` where two ranks share one."""
    visibility: str
    """GPUs that a rank was to see: ``one`` (its own), ``socket`` or ``all``."""


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
    links: str | None
    """File with what the machine's links and codecs were measured to do; None for the defaults."""
    shape: Shape | None = None
    """None where nobody said: nothing is then compared with it."""
    peak_tflops: dict[str, Any] = field(default_factory=dict)
    """Precision -> dense peak of a GPU, where the site knows better than the report: it is for the report alone."""
    gpu_aware_mpi: bool | None = None
    """Whether the MPI library is given device pointers; None leaves it to the ranks to find out."""


def rules_of(scheme: Scheme) -> list[SchemeRule]:
    """The scheme's rules behind its default, which matches everything."""
    return [SchemeRule(None, None, None, scheme.default), *scheme.rules]


def setting(run: Run) -> traffic.Setting:
    """What decides which traffic the run has."""
    return traffic.Setting.of(run.layout, run.train, tied=run.model.tied)


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
    check(run, str(path))
    return run, raw


def _build(kind: type[T], raw: Any, where: str) -> T:
    if not isinstance(raw, dict):
        raise UserError(f"{where}: expected a mapping, found {raw!r}")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for problem, keys in (("missing", names - raw.keys()), ("unknown", raw.keys() - names)):
        if keys:
            raise UserError(f"{where}: {problem} key {min(keys)!r}: write the file with `hpcbench submit`")
    hints = get_type_hints(kind)
    return kind(**{name: _convert(hints[name], value, f"{where}: {name}") for name, value in raw.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    if is_dataclass(hint):
        return _build(hint, value, where)  # type: ignore[arg-type]
    if get_origin(hint) is list and isinstance(value, list):
        (item,) = get_args(hint)
        return [_convert(item, element, f"{where}[{i}]") for i, element in enumerate(value)]
    if hint is float and type(value) is int:
        return float(value)
    if isinstance(value, dict) and (kinds := [kind for kind in get_args(hint) if is_dataclass(kind)]):
        return _build(kinds[0], value, where)  # type: ignore[arg-type]
    allowed = get_args(hint) if isinstance(hint, UnionType) else (get_origin(hint) or hint,)
    if type(value) not in allowed:
        raise UserError(f"{where}: expected {getattr(hint, '__name__', hint)}, found {value!r}")
    return value


def check(run: Run, where: str) -> None:
    """Whether the settings fit each other.

    Raises
    ------
    UserError
        They do not; the words begin with `where`.
    """
    m, t, p = run.model, run.train, run.layout
    listed, there = rules_of(run.scheme), setting(run)
    unequal = traffic.wrong_gradients(listed, there) or traffic.drifting_copies(listed, there)
    rules = [
        (run.schema == 1, f"schema: {run.schema} is not known: this hpcbench reads schema 1"),
        (run.ranks == p.ranks, f"ranks: {run.ranks} is not dp x tp x pp = {p.ranks}"),
        (t.global_batch % (t.micro_batch * p.dp) == 0, "train.global_batch: not a multiple of micro_batch x dp"),
        (m.hidden % m.heads == 0, "model.hidden: not a multiple of model.heads"),
        (m.heads % p.tp == 0, "layout.tp: does not divide model.heads"),
        (m.layers >= p.pp, "layout.pp: more stages than layers"),
        (p.chunks == 1 or p.pp > 1 < p.chunks, "layout.chunks: 1 where there is one stage, and at least 1"),
        (m.layers >= p.parts, "layout.chunks: more parts (pp x chunks) than layers"),
        (not p.stages or p.fits(m.layers), "layout.stages: not the layers of pp x chunks parts, one at least in each"),
        (t.schedule in SCHEDULES, f"train.schedule: {t.schedule!r} is not known: use {', '.join(SCHEDULES)}"),
        (
            (t.schedule == "interleaved") == (p.chunks > 1),
            "train.schedule: interleaved has two layout.chunks or more, the others one",
        ),
        (
            t.schedule != "interleaved" or t.global_batch // (t.micro_batch * p.dp) % p.pp == 0,
            "train.global_batch: for schedule interleaved not a multiple of micro_batch x dp x pp",
        ),
        (
            t.recompute in ("none", "selective", "full") or (isinstance(t.recompute, int) and t.recompute > 0),
            f"train.recompute: {t.recompute!r} is not none, selective, full or a number of layers",
        ),
        (t.precision in ("fp64", "fp32", "bf16", "fp16"), f"train.precision: {t.precision!r} is not known"),
        (run.shape is None or _FRACTION.fullmatch(run.shape.gpus_per_rank), "shape.gpus_per_rank: not a fraction"),
        (not t.sequence_parallel or t.seq_len % p.tp == 0, "train.seq_len: sequence_parallel needs a multiple of tp"),
        (t.zero in (0, 1, 2, 3), f"train.zero: stage {t.zero} is not known: use 0, 1, 2 or 3"),
        (t.zero == 3 or not t.node_copy, "train.node_copy: a second copy is of stage 3's pieces: set zero to 3"),
        (
            run.data.source in ("stdlib", "file", "megatron", "numpy"),
            f"data.source: {run.data.source!r} is not known: use stdlib, file, megatron or numpy",
        ),
        (
            {*asdict(t.comm_precision).values()} <= {"auto", "fp32", "bf16", "fp16"},
            f"train.comm_precision: {t.comm_precision!r} is not known",
        ),
        (t.optimizer in ("adamw", "onebit-adam"), f"train.optimizer: {t.optimizer!r} is not known"),
        (run.scheme.optimizer in (None, t.optimizer), "scheme.optimizer: not that of train"),
        (t.optimizer != "onebit-adam" or t.zero == 0, "train.zero: 1-bit Adam averages whole momenta: use 0"),
        (t.optimizer != "onebit-adam" or not t.offload, "train.offload: 1-bit Adam's momenta are the device's: false"),
        (
            (t.optimizer == "onebit-adam") == bool(t.freeze_step),
            "train.freeze_step: 1 or more for 1-bit Adam, else null",
        ),
        (t.loss_scale >= 1, "train.loss_scale: below 1"),
        (t.loss_scale_window > 0 < t.loss_scale_hysteresis, "train.loss_scale_window, _hysteresis: not both 1 or more"),
        (unequal is None, f"scheme.rules: {unequal}"),
        (m.positions in ("rotary", "learned"), f"model.positions: {m.positions!r} is not rotary or learned"),
    ]
    for holds, message in rules:
        if not holds:
            raise UserError(f"{where}: {message}")
