"""The line that a run prints for each step: ``step k/N | name value unit | ... |``.

`Step` lists all quantities of a step. `format_step` writes the quantities that a run of hpcbench prints, and
`parse_step` reads them back. The closing vertical bar shows that the line is complete. Lines without this bar are
ignored.
"""

import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.text import make_printable

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_PLAIN = {"": 1.0}
_SECONDS = {"s": 1.0, "ms": 1e-3}
_BYTES = {"B": 1.0}
_FLOPS = {f"{prefix}FLOPS/{unit}": scale for prefix, scale in _PREFIX.items() for unit in ("rank", "GPU")}


@dataclass(frozen=True)
class PrintedForm:
    """The printed form of a quantity in the line."""

    word: str
    """Name of the quantity in the line."""
    form: str
    """Python format specification of the value."""
    unit: str = ""
    """Unit in which the value is printed."""
    units: dict[str, float] = field(default_factory=lambda: _PLAIN)
    """Factor of each unit that the parser accepts."""
    always: bool = True
    """Whether the quantity is required in each step."""


@dataclass(frozen=True)
class StepQuantity:
    """A quantity that is recorded for each step and exported as a column."""

    name: str
    """Name of the attribute of `Step`."""
    kind: Literal["real", "integer"]
    unit: str
    meaning: str
    printed: PrintedForm | None
    """The printed form, or None for a quantity that only other frameworks print."""


def _quantity(unit: str, meaning: str, printed: PrintedForm | None = None) -> Any:
    return field(default=None, kw_only=True, metadata={"unit": unit, "meaning": meaning, "printed": printed})


@dataclass(frozen=True)
class Step:
    """A step of a run. A value that the log does not contain is None.

    If a framework prints one line for several steps, the record has the number of the last step, and its values are
    means over all of these steps.
    """

    step: int
    steps: int | None = None
    """Number of planned steps, or None if the log does not contain it."""
    line: int = field(default=0, kw_only=True)
    """Line number in the log, starting at 1, or 0 if the step was not read from a log."""
    loss: float | None = _quantity("nat", "Mean training loss of the step", PrintedForm("loss", ".6f"))
    seconds: float | None = _quantity("s", "Wall time of one step", PrintedForm("time", ".6f", "s", _SECONDS))
    samples_per_s: float | None = _quantity(
        "1/s", "Sequences per second, all ranks together", PrintedForm("samples/s", ".2f")
    )
    tokens_per_s: float | None = _quantity("1/s", "Tokens per second, all ranks together, as logged")
    tokens_per_s_per_rank: float | None = _quantity("1/s", "Tokens per second of one rank, as logged")
    model_flops_per_rank: float | None = _quantity(
        "FLOP/s",
        "Operations that the model needs, without recomputation and dropped tokens of experts",
        PrintedForm("model", ".3f", "GFLOPS/rank", _FLOPS),
    )
    hardware_flops_per_rank: float | None = _quantity(
        "FLOP/s",
        "Executed operations, including recomputation and unused expert capacity",
        PrintedForm("hardware", ".3f", "GFLOPS/rank", _FLOPS),
    )
    unlabelled_flops_per_rank: float | None = _quantity(
        "FLOP/s", "Operations; the log does not specify whether recomputation counts"
    )
    mfu: float | None = _quantity("1", "Model FLOP/s over the chip's peak, as logged")
    hfu: float | None = _quantity("1", "Hardware FLOP/s over the chip's peak, as logged")
    lr: float | None = _quantity("1", "Learning rate", PrintedForm("lr", ".3E"))
    gradient_norm: float | None = _quantity(
        "1",
        "Global norm of the gradients before clipping; none after the freeze of 1-bit Adam",
        PrintedForm("grad-norm", ".4E", always=False),
    )
    loss_scale: float | None = _quantity(
        "1", "Factor of the loss in fp16", PrintedForm("loss-scale", ".17g", always=False)
    )
    message_bytes: int | None = _quantity(
        "B", "Before the codec, summed over all ranks", PrintedForm("message", "d", "B", _BYTES)
    )
    wire_bytes: int | None = _quantity(
        "B",
        "After the codec, summed over all ranks; absent if unknown",
        PrintedForm("wire", "d", "B", _BYTES),
    )
    memory_bytes: int | None = _quantity("B", "Peak memory of the device of the rank that printed the line")
    samples: int | None = _quantity("1", "Sequences of the step")
    consumed_samples: int | None = _quantity("1", "Sequences since the run began")
    consumed_tokens: int | None = _quantity("1", "Tokens since the run began")
    skipped: int | None = _quantity("1", "Steps skipped so far for overflow", PrintedForm("skipped", "d"))
    nan_steps: int | None = _quantity("1", "Steps so far whose loss was NaN")


QUANTITIES = tuple(
    StepQuantity(column.name, "real" if float in get_args(column.type) else "integer", **column.metadata)
    for column in fields(Step)
    if column.metadata
)
"""All quantities of a step, in the order in which they are printed and exported."""
TYPECODES = {column.name: "d" if float in get_args(column.type) else "q" for column in fields(Step)}
"""Type code of the `array` module for each attribute of `Step`: float64 or int64."""
FIELDS = {column.printed.word: (column.name, column.printed.units) for column in QUANTITIES if column.printed}
"""Attribute of `Step` and the factor of each unit, keyed by the name in the line."""

_STEP = re.compile(r"\s*step\s+([0-9]{1,18})/([0-9]{1,18})(.*)", re.DOTALL)
_CUT_HEAD = re.compile(r"\s*step(\s+([0-9]+(/[0-9]*)?)?)?$")
_NUMBERS = {
    "d": re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(?:nan|inf|NAN|INF)"),
    "q": re.compile(r"[0-9]{1,30}"),
}


def format_step(step: Step) -> str:
    """Return the line of a step, without a newline."""
    parts = [f"step {step.step:>{len(str(step.steps))}}/{step.steps}"]
    for quantity in QUANTITIES:
        value, printed = getattr(step, quantity.name), quantity.printed
        if printed is None or (value is None and not printed.always):
            continue
        if value is None:
            raise ValueError(f"step {step.step} has no {quantity.name}")
        worth = printed.units[printed.unit]
        unit = f" {printed.unit}" if printed.unit else ""
        parts.append(f"{printed.word} {value if worth == 1 else value / worth:{printed.form}}{unit}")
    return " | ".join(parts) + " |"


def parse_step(text: str, line: int) -> Step | DamagedLine | None:
    """Parse a line of a log.

    Returns
    -------
    Step, DamagedLine or None
        The result is None if the line is not a step line, and a `DamagedLine` if a step line violates the grammar. The
        numbers of such a line are not used, because a truncated number still looks like a number.
    """
    matched = _STEP.fullmatch(text)
    if not matched:
        return DamagedLine(line, "a step line is truncated") if _CUT_HEAD.fullmatch(text) else None
    step, steps, columns = int(matched[1]), int(matched[2]), matched[3]
    if not columns.strip():
        return DamagedLine(line, "a step line is truncated")
    if not columns.startswith(" |"):
        return None
    if not columns.endswith(" |") or len(columns) < 4:
        return DamagedLine(line, f"the line of step {step} is truncated")
    if not 1 <= step <= steps:
        return DamagedLine(line, f"step {step} of {steps} is impossible")
    values: dict[str, Any] = {}
    for part in columns[2:-2].split(" | "):
        tokens = part.split()
        if len(tokens) not in (2, 3):
            return DamagedLine(line, f"the line of step {step} is damaged at '{make_printable(part, 40)}'")
        if tokens[0] not in FIELDS:
            continue
        name, units = FIELDS[tokens[0]]
        unit = tokens[2] if len(tokens) == 3 else ""
        if unit not in units or not _NUMBERS[TYPECODES[name]].fullmatch(tokens[1]):
            return DamagedLine(line, f"the line of step {step} is damaged at '{make_printable(part, 40)}'")
        if name in values:
            return DamagedLine(line, f"the line of step {step} gives {tokens[0]} twice")
        values[name] = int(tokens[1]) if TYPECODES[name] == "q" else float(tokens[1]) * units[unit]
    return Step(step, steps, line=line, **values)
