"""Measurement of one part of the throttled-link benchmark.

The ranks start once per repeat, and each start updates a file.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.bench.progress import progress
from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts
from throttled.parts import Part
from throttled.rates import calibrate
from throttled.start import train

Document = dict[str, Any]
"""Contents of a file: provenance, requested settings, rates, and a dict for each run."""
KEYS = {"provenance", "part", "title", "asked", "run", "schemes", "rates", "runs"}


def begin(
    part: Part,
    runs: Sequence[dict[str, Any]],
    *,
    provenance: dict[str, str],
    settings: Sequence[str],
    shares: Sequence[float],
    rates: Sequence[str] | None,
) -> Document:
    """Make a document without measurements. If given, `rates` replace the rates computed from `shares`."""
    first = runs[0]
    return {
        "provenance": provenance,
        "part": part.name,
        "title": part.title,
        "asked": {
            "settings": list(settings),
            "shares": None if rates else list(shares),
            "rates": list(rates) if rates else None,
        },
        "run": {key: first[key] for key in ("model", "train", "layout", "ranks", "oversubscribe")},
        "schemes": list(dict.fromkeys(run["scheme"]["name"] for run in runs if run["repeat"] == 1)),
        "rates": list(rates) if rates else None,
        "runs": [],
    }


def resume(path: Path, fresh: Document) -> Document:
    """Return the content of the file, or `fresh` without a file.

    Raises
    ------
    UserError
        The file contains another measurement, or was written by another revision.
    """
    if not path.exists():
        return fresh
    stored = load(path)
    for what, old, new in (
        ("revision", stored["provenance"]["revision"], fresh["provenance"]["revision"]),
        ("machine", stored["provenance"]["machine"], fresh["provenance"]["machine"]),
        *((key, stored[key], fresh[key]) for key in ("part", "asked", "run", "schemes")),
    ):
        if old != new:
            raise UserError(
                f"{path}: holds a measurement of another {what}, to which nothing can be added: remove it, or show it "
                "with --show"
            )
    return stored


def load(path: Path) -> Document:
    """Read a file.

    Raises
    ------
    UserError
        The file is missing or has a different format.
    """
    try:
        read_document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(read_document, dict) or not read_document.keys() >= KEYS:
        raise UserError(f"{path}: no measurement of throttled_training.py: remove it, or name another")
    return read_document


def save(path: Path, document: Document) -> None:
    """Write the file atomically, one run per line."""
    head = json.dumps({key: value for key, value in document.items() if key != "runs"}, indent=1)
    runs = ",\n".join(f"  {json.dumps(run)}" for run in document["runs"])
    beside = path.with_name(path.name + ".new")
    beside.write_text(f'{head[:-2]},\n "runs": [\n{runs}\n ]\n}}\n', encoding="utf-8")
    beside.replace(path)


def measure(part: Part, runs: Sequence[dict[str, Any]], document: Document, path: Path | None) -> None:
    """Measure the repeats that the document lacks.

    Each start of the ranks trains all schemes of a repeat at all rates. The order of schemes and rates is rotated from
    repeat to repeat, so that drift of the machine affects all of them equally.
    """
    done = {run["repeat"] for run in document["runs"]}
    repeats = sorted({run["repeat"] for run in runs})
    missing = [repeat for repeat in repeats if repeat not in done]
    if not missing:
        return
    turns = len(repeats) + 1
    with Hosts(part.hosts) as hosts, progress(unit="starts") as show:
        if document["rates"] is None:
            show(0, turns, f"{part.name}: the calibration")
            trial = next(run for run in runs if run["scheme"]["name"] == "baseline")
            document["rates"] = calibrate(hosts, trial, document["asked"]["shares"], ranks_a_host=part.ranks_a_host)
            _keep(path, document)
        for repeat in missing:
            show(1 + repeats.index(repeat), turns, f"{part.name}: repeat {repeat}")
            runs_of_repeat = [run for run in runs if run["repeat"] == repeat]
            tasks = [(rate, run) for rate in rotated(part, document["rates"], repeat) for run in runs_of_repeat]
            document["runs"] += train(hosts, tasks, ranks_a_host=part.ranks_a_host)
            _keep(path, document)


def rotated(part: Part, rates: Sequence[str], repeat: int) -> list[str | None]:
    """Return the rates in the order of a repeat, including None if the part is also measured without a limit."""
    every = [*([None] if part.free else []), *rates]
    first = (repeat - 1) % len(every)
    return every[first:] + every[:first]


def _keep(path: Path | None, document: Document) -> None:
    if path:
        save(path, document)
