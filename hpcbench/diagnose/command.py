"""``hpcbench diagnose``: reads traces, prints the diagnosis, and writes it as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from hpcbench.bench.progress import Show, progress
from hpcbench.console import show_table
from hpcbench.contract.interpose import GroupPattern, Groups, Meaning
from hpcbench.diagnose.diagnosis import Diagnosis, diagnose
from hpcbench.diagnose.gains import CODECS, FREE
from hpcbench.diagnose.kineto import RankTrace, read_rank
from hpcbench.diagnose.show import COLUMNS, gain_cells, sentences, table_cells
from hpcbench.errors import UserError

VERSION = 1
"""Version of the JSON document."""


def diagnose_files(
    paths: Sequence[Path], patterns: Sequence[str] = (), output: Path | None = None, codec_speed: float | None = None
) -> int:
    """Diagnose traces; return the exit status.

    Parameters
    ----------
    paths
        Traces of the ranks of one job, or directories of them.
    patterns
        ``REGEX=DIMENSION`` for groups whose description matches.
    output
        JSON file to write in addition.
    codec_speed
        GB/s of values at which codecs run.

    Raises
    ------
    UserError
        A trace cannot be read, the traces do not fit together, or an option is wrong.
    """
    groups = check_options(patterns, output, codec_speed)
    diagnosis = diagnose(_read(find_traces(paths)), groups, codec_speed)
    _show(diagnosis)
    if output is not None:
        output.write_text(json.dumps(to_json(diagnosis), indent=1) + "\n", encoding="utf-8")
    return 0


def check_options(patterns: Sequence[str], output: Path | None, codec_speed: float | None) -> Groups:
    """Check the options; return the dimensions that the user gives to groups.

    Raises
    ------
    UserError
        An option is wrong.
    """
    if codec_speed is not None and not codec_speed > 0:
        raise UserError(f"--codec-speed {codec_speed:g}: give GB/s of values, more than 0")
    if output is not None and output.suffix != ".json":
        raise UserError(f"--output {output}: use .json")
    return read_groups(patterns)


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """Return the files of traces: those given, and the JSON files in the directories given."""
    traces = []
    for path in paths:
        if not path.is_dir():
            traces.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
        if not inside:
            raise UserError(f"{path}: the directory contains no trace (*.json, *.json.gz)")
        traces += inside
    return traces


def read_groups(patterns: Sequence[str]) -> Groups:
    """Return the dimensions that the user gives to groups.

    Raises
    ------
    UserError
        A pattern is not ``REGEX=DIMENSION``.
    """
    groups = []
    for pattern in patterns:
        match, equals, dimension = pattern.rpartition("=")
        if not equals or not match:
            raise UserError(f"--group {pattern}: give REGEX=DIMENSION, for example '^my_group$=DP'")
        try:
            groups.append(GroupPattern.model_validate({"match": match, "dimension": dimension}))
        except ValidationError:
            dimensions = ", ".join(get_args(Meaning))
            raise UserError(f"--group {pattern}: needs a regular expression, and a dimension of {dimensions}") from None
    return Groups(groups=groups)


def _read(paths: Sequence[Path]) -> list[RankTrace]:
    traces = []
    with progress(unit="MB") as show:
        for number, path in enumerate(paths, start=1):
            name = f"reading {path.name} ({number} of {len(paths)})"
            traces.append(read_rank(path, partial(_show_progress, show, name)))
    return traces


def _show_progress(show: Show, name: str, done: int, size: int) -> None:
    show(done >> 20, size >> 20, name)


def _show(diagnosis: Diagnosis) -> None:
    from rich.table import Table

    print(*sentences(diagnosis), sep="\n")
    if not diagnosis.rows:
        return
    per = "step" if diagnosis.steps else "trace"
    calls = Table(*COLUMNS, title=f"Calls per {per} and rank, the most exposed first", title_justify="left", box=None)
    for column in calls.columns[4:]:
        column.justify = "right"
    for row in diagnosis.rows:
        calls.add_row(*table_cells(row))
    print()
    show_table(calls)
    codecs = [codec.name for codec in (*CODECS, FREE)]
    columns = ("dimension", "exposed", *codecs, "int8 below Gbit/s")
    gains = Table(*columns, title="Largest possible gain by dimension", title_justify="left", box=None)
    for column in gains.columns[1:]:
        column.justify = "right"
    for dimension in diagnosis.by_dimension():
        gains.add_row(*gain_cells(diagnosis, dimension, codecs))
    print()
    show_table(gains)


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as a JSON document."""
    content = asdict(diagnosis)
    content["paths"] = [str(path) for path in diagnosis.paths]
    return {"version": VERSION, **content, "answer": sentences(diagnosis)}
