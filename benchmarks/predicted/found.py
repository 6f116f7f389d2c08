"""Measurements with which predictions are compared, and the directory that stores them.

Stored measurements allow comparisons with a changed model without a cluster.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provenance import provenance
from throttled.start import Task, train

from hpcbench.bench.progress import progress
from hpcbench.errors import UserError
from hpcbench.predict import measured_tables
from hpcbench.testing.hosts import Hosts
from predicted import tables
from predicted.studies import Shape, Study

_RUNS, _TABLES = "runs.json", "measured"
SCRIPT = Path(__file__).parents[1] / "predict_measured.py"


@dataclass(frozen=True)
class Found:
    """Measurements of a machine and of all runs."""

    machine: str
    """Machine of the measurement. Predictions may run on a different machine."""
    tables: measured_tables.MeasuredTables
    """Tables of the machine."""
    links: dict[str, dict[str, Any]]
    """Link tables, keyed by rate."""
    taught: dict[str, Any]
    """Result of the earlier run."""
    turns: list[list[dict[str, Any]]]
    """Results of every run in each turn, in task order."""
    peaks: list[list[int]]
    """Peak bytes of every rank of each study's baseline."""


def measure(
    directory: Path,
    shape: Shape,
    trial: Task,
    tasks: Sequence[Task],
    *,
    studies: Sequence[Study],
    repeats: int,
    tiny: bool,
) -> Found:
    """Measure the machine, then all runs in rotated order, and write the results to a directory."""
    each, turns_of_runs = shape.ranks_a_host, list[list[dict[str, Any]]]()
    rates = sorted({rate for rate, _ in (trial, *tasks)})
    with Hosts(shape.hosts) as hosts, progress(unit="turns") as show:
        turns = repeats + 2
        show(0, turns, "tables")
        tables_of_machine = tables.measure(hosts, shape, directory / _TABLES, rates, tiny=tiny)
        (taught,) = train(hosts, [trial], ranks_a_host=each)
        for repeat in range(repeats):
            show(1 + repeat, turns, f"repeat {repeat + 1}")
            at = repeat * len(tasks) // repeats
            turned = train(hosts, [*tasks[at:], *tasks[:at]], ranks_a_host=each)
            turns_of_runs.append(turned[len(tasks) - at :] + turned[: len(tasks) - at])
        show(turns - 1, turns, "memory")
        baselines = [run for _, run in tasks[:: len(tasks) // len(studies)]]
        peaks = tables.trace(hosts, shape, baselines)
    stored: dict[str, Any] = {
        "provenance": provenance(SCRIPT),
        "taught": taught,
        "turns": turns_of_runs,
        "peaks": peaks,
    }
    (directory / _RUNS).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    links = tables.links(directory / _TABLES, rates)
    return Found(stored["provenance"]["machine"], tables_of_machine, links, taught, turns_of_runs, peaks)


def read(directory: Path, tasks: Sequence[Task]) -> Found:
    """Read an earlier measurement of the same runs.

    Raises
    ------
    UserError
        The file does not exist, or contains different runs.
    """
    path = directory / _RUNS
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        turns, machine = [[run["scheme"] for run in turn] for turn in stored["turns"]], stored["provenance"]["machine"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: {error}: measure with --keep {directory}") from None
    if any(turn != [run["scheme"]["name"] for _, run in tasks] for turn in turns):
        raise UserError(
            f"{path}: is of other schemes or studies: give the --schemes and --studies that it was made with"
        )
    tables_of_machine = measured_tables.read_tables(directory / _TABLES, asked_for=True)
    links = tables.links(directory / _TABLES, sorted({tables.TRIAL, *(rate for rate, _ in tasks)}))
    return Found(machine, tables_of_machine, links, stored["taught"], stored["turns"], stored["peaks"])
