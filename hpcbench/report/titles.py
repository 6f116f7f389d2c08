"""Titles: what was run, and where."""

from collections.abc import Mapping
from typing import Any

from hpcbench.collect.submission import RunResult
from hpcbench.contract.events import Configuration
from hpcbench.contract.text import printable
from hpcbench.contract.values import integer, member, text
from hpcbench.present.notation import parameters
from hpcbench.report.compare import Cell
from hpcbench.report.measures import is_gpu, is_uncompressed

_LONGEST = 60
"""Most characters of a command in a title."""


def title(cell: Cell) -> tuple[str, str]:
    """The title of a cell: what was run, where, and what it is compared with."""
    run = example(cell)
    parts = [_model(run), _layout(run), cell_words(run.cell)]
    ranks, steps = integer(run.settings, "ranks"), _steps(run)
    if ranks is not None:
        parts.append(f"{ranks} ranks" if not is_gpu(run) else f"{ranks} GPUs")
    repeats = len({measures.run.pairing for measures in cell.runs})
    if steps is not None:
        parts.append(f"{steps} steps x {repeats} repeat{'s' if repeats != 1 else ''}")
    what = ", ".join(part for part in parts if part)
    where = place_words(run)
    return printable(f"{where}: {what}" if what else where), f"baseline: {baseline_words(cell)}"


def place_words(run: RunResult) -> str:
    """Study and site of a run, with the label of a submission that stays apart from others of the study."""
    apart = f" ({run.submission})" if run.submission and not run.pairing.startswith(f"{run.submission}:") else ""
    return printable(f"{run.study} on {run.site}{apart}")


def size_words(cell: Cell) -> str:
    """Model, parameters and steps of a cell, without which a finding about it says too much."""
    run = example(cell)
    steps = _steps(run) or (run.log.planned_steps if run.log else None)
    parts = [_model(run) or "unknown model", f"{steps} steps" if steps is not None else "unknown steps"]
    return printable(", ".join(parts))


def cell_words(values: Mapping[str, Any]) -> str:
    """The values of a cell in words; empty if the study has only one cell."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def baseline_words(cell: Cell) -> str:
    """The baseline in words."""
    base = cell.row(cell.baseline)
    if base is None:
        return "none"
    run = base.runs[0].run
    if run.given:
        return printable(base.scheme, 40)
    native = text(run.settings, "scheme", "algorithm") == "native"
    codec = "uncompressed" if is_uncompressed(run) else printable(base.scheme, 40)
    if not native and text(run.settings, "scheme", "algorithm") is None:
        return printable(base.scheme, 40)
    library = "MPI library's" if text(run.settings, "program", "command") is None else "PyTorch's own"
    collectives = f"{library} collectives" if native else "two-shot collectives"
    return f"{codec}, {collectives}"


def example(cell: Cell) -> RunResult:
    """A run whose settings are known, preferably one that began."""
    runs = [measures.run for measures in cell.runs]
    return next((run for run in runs if run.settings and run.log), next((run for run in runs if run.settings), runs[0]))


def _steps(run: RunResult) -> int | None:
    return integer(run.settings, "train", "steps") or integer(run.settings, "program", "steps")


def _model(run: RunResult) -> str:
    command = text(run.settings, "program", "command")
    if command is not None:
        return command if len(command) <= _LONGEST else f"{command[: _LONGEST - 3]}..."
    name = text(run.settings, "model", "name")
    count = run.log.said(Configuration).parameters if run.log else None
    if name is None:
        return ""
    return name if count is None else f"{name} {parameters(count)} parameters"


def _layout(run: RunResult) -> str:
    """Sizes of the dimensions, and the cut of pipeline stages if it was chosen."""
    layout = member(run.settings, "layout")
    if not isinstance(layout, dict):
        return ""
    sizes = {"chunks": 1, "stages": [], **layout}
    chunks, stages = sizes.pop("chunks"), sizes.pop("stages")
    tensor, depth = sizes.pop("tensor", "1d"), sizes.pop("depth", 1)
    context, ep = sizes.pop("context", "ring"), sizes.pop("ep", 1)
    shares = sizes.get("cp", 1) != 1
    words = [" x ".join(f"{name}{size}" for name, size in sizes.items() if shares or name != "cp")]
    if shares:
        words.append(f"with context {context}")
    if tensor != "1d":
        words.append(f"with tensor {tensor}" + (f" of depth {depth}" if depth != 1 else ""))
    if ep != 1:
        words.append(f"with ep{ep} in dp")
    if chunks != 1:
        words.append(f"in {chunks} chunks")
    if isinstance(stages, list) and stages:
        words.append(f"of {'+'.join(map(str, stages))} layers")
    return " ".join(words)
