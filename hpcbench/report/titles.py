"""Titles of cells: what was run, and where."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hpcbench.collect.submission import RunResult
from hpcbench.contract.events import Configuration
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.text import make_printable
from hpcbench.present.notation import parameters
from hpcbench.report.compare import Cell
from hpcbench.report.measures import is_gpu
from hpcbench.report.transport import find_transport

_LONGEST = 60
"""Maximum length of a command in a title, in characters."""


def write_title(cell: Cell) -> tuple[str, str]:
    """Return the title of a cell (what was run, and where) and the subtitle (the baseline)."""
    run = find_example(cell)
    parts = [_describe_model(run), _describe_layout(run), describe_cell(run.cell)]
    ranks, steps = run.settings.ranks, run.settings.work.steps
    if ranks is not None:
        parts.append(f"{ranks} ranks" if not is_gpu(run) else f"{ranks} GPUs")
    repeats = len({measures.run.pairing for measures in cell.runs})
    if steps is not None:
        parts.append(f"{steps} steps x {repeats} repeat{'s' if repeats != 1 else ''}")
    what = ", ".join(part for part in parts if part)
    where = describe_place(run)
    return make_printable(f"{where}: {what}" if what else where), f"baseline: {describe_baseline(cell)}"


def describe_place(run: RunResult) -> str:
    """Return the study and site of a run, and the label of a submission that was not merged."""
    apart = f" ({run.submission})" if run.submission and not run.pairing.startswith(f"{run.submission}:") else ""
    return make_printable(f"{run.study} on {run.site}{apart}")


def describe_size(cell: Cell) -> str:
    """Describe the model, parameters and steps of a cell, which limit the scope of the findings."""
    run = find_example(cell)
    steps = run.settings.work.steps or (run.log.planned_steps if run.log else None)
    parts = [_describe_model(run) or "unknown model", f"{steps} steps" if steps is not None else "unknown steps"]
    return make_printable(", ".join(parts))


def describe_cell(values: Mapping[str, Any]) -> str:
    """Describe the matrix values of a cell. The result is empty if the study has only one cell."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def describe_baseline(cell: Cell) -> str:
    """Describe the baseline."""
    base = cell.row(cell.baseline)
    if base is None:
        return "none"
    run = base.runs[0].run
    scheme = run.settings.scheme
    if run.given or scheme.algorithm is None:
        return make_printable(base.scheme, 40)
    native = scheme.algorithm == "native"
    codec = "uncompressed" if scheme.is_uncompressed else make_printable(base.scheme, 40)
    over_nccl = find_transport(run) == "nccl"
    library = (
        "NCCL's own" if over_nccl else "MPI library's" if run.settings.program.command is None else "PyTorch's own"
    )
    collectives = f"{library} collectives" if native else f"two-shot collectives{' over NCCL' if over_nccl else ''}"
    return f"{codec}, {collectives}"


def find_example(cell: Cell) -> RunResult:
    """Return a run with known settings, preferably a run that has started."""
    runs = [measures.run for measures in cell.runs]
    stated = [run for run in runs if run.settings.raw] or runs
    return next((run for run in stated if run.log and run.settings.raw), stated[0])


def write_settings(settings: LoggedSettings, names: Iterable[str], without: Mapping[str, Collection[str]]) -> str:
    """Return settings as JSON, to group runs with the same settings. `without` names fields to omit, by section."""
    same = {name: settings.raw.get(name) for name in names}
    for section, fields in without.items():
        if isinstance(values := same[section], dict):
            same[section] = {key: value for key, value in values.items() if key not in fields}
    return json.dumps(same, sort_keys=True)


def _describe_model(run: RunResult) -> str:
    command = run.settings.program.command
    if command is not None:
        return command if len(command) <= _LONGEST else f"{command[: _LONGEST - 3]}..."
    name = run.settings.model.name
    count = run.log.read_event(Configuration).parameters if run.log else None
    if name is None:
        return ""
    return name if count is None else f"{name} {parameters(count)} parameters"


def _describe_layout(run: RunResult) -> str:
    """Describe the sizes of the parallel dimensions, and the pipeline partition if it was set explicitly."""
    layout = run.settings.layout
    shares = layout.cp not in (None, 1)
    sizes = {"dp": layout.dp, "tp": layout.tp, "cp": layout.cp if shares else None, "pp": layout.pp}
    parts = [" x ".join(f"{name}{size}" for name, size in sizes.items() if size is not None)]
    if shares:
        parts.append(f"with context {layout.context}")
    if layout.tensor != "1d":
        parts.append(f"with tensor {layout.tensor}" + (f" of depth {layout.depth}" if layout.depth != 1 else ""))
    if layout.ep != 1:
        parts.append(f"with ep{layout.ep} in dp")
    if layout.chunks != 1:
        parts.append(f"in {layout.chunks} chunks")
    if layout.stages:
        parts.append(f"of {'+'.join(map(str, layout.stages))} layers")
    return " ".join(parts)
