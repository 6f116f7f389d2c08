"""The library that carries a run's messages. Runs that use different libraries are never compared."""

from collections.abc import Sequence
from dataclasses import replace

from hpcbench.collect.submission import RunResult
from hpcbench.contract.events import Environment
from hpcbench.contract.text import make_printable
from hpcbench.contract.values import get_text
from hpcbench.report.measures import Measures

FIELD = "train.transport"


def find_transport(run: RunResult) -> str | None:
    """Return the transport of a run, ``mpi`` or ``nccl``, as stated in the log or requested in the settings.

    If neither the log nor the settings name a transport, the result is ``unknown``, or None if the log has no
    environment event.
    """
    environment = run.log.event(Environment) if run.log else None
    stated = environment.transport if environment else None
    asked = stated or get_text(run.settings.raw, "train", "transport")
    return asked.partition(" ")[0] if asked else "unknown" if environment else None


def separate_transports(runs: Sequence[Measures]) -> list[Measures]:
    """Return the runs. If runs of a cell have different transports, the transport is added to their cell."""
    transports: dict[str, set[str]] = {}
    for measures in runs:
        if transport := find_transport(measures.run):
            transports.setdefault(_cell(measures), set()).add(transport)
    return [
        _name_transport(measures) if len(transports.get(_cell(measures), ())) > 1 else measures for measures in runs
    ]


def note_links(runs: Sequence[Measures]) -> list[str]:
    """Note the runs over NCCL whose plans are based on links that were measured over another transport."""
    notes = []
    for run in (measures.run for measures in runs):
        environment = run.log.event(Environment) if run.log else None
        if environment and environment.links_note and find_transport(run) == "nccl":
            notes.append(make_printable(f"links {environment.links}: {environment.links_note}"))
    return list(dict.fromkeys(notes))


def _cell(measures: Measures) -> str:
    return repr(sorted(measures.run.cell.items()))


def _name_transport(measures: Measures) -> Measures:
    cell = {**measures.run.cell, FIELD: find_transport(measures.run) or "unknown"}
    return replace(measures, run=replace(measures.run, cell=cell))
