"""Tables with one row per run: state and reason, or speed and loss of runs that are not compared."""

from dataclasses import replace

from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.events import CallGroup, ProgramCalls
from hpcbench.contract.state import BAD, OPEN
from hpcbench.present.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.present.notation import (
    DisplayUnit,
    bytes_unit,
    figure_column,
    integer,
    name,
    phrase,
    quantity,
    seconds_unit,
    text_column,
)
from hpcbench.report.compare import Cell
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.quantities import Quantity, make_fields
from hpcbench.report.quantities.resources import DEVICE
from hpcbench.report.quantities.speed import (
    HARDWARE_FLOPS,
    HFU,
    LOSS_TRAIN,
    LOSS_VALID,
    MFU,
    MODEL_FLOPS,
    SAMPLES,
    STEP_MEDIAN,
    STEP_P95,
    STEP_P99,
    STEP_SECONDS,
    TOKENS,
    TOKENS_EACH,
    UNLABELLED_FLOPS,
)
from hpcbench.report.quantities.traffic import WIRE

_NAMED = 2
"""Maximum number of hosts to list by name. Further hosts are only counted."""


def tabulate_runs(submission: Submission, cells: list[Cell]) -> Table | None:
    """Make the table with one row per planned run, including runs without files."""
    fields = [
        (Column("run", "run", text=True, help="Name of the run in its submission."), lambda run: name(run.id)),
        (Column("state", "state", text=True, help="State of the run."), _show_state),
        (Column("step", "step", text=True, help="Last step of the run, and its planned number of steps."), _step),
        (
            Column("job", "job", text=True, group=1, help="Job of the run."),
            lambda run: name(run.job or ""),
        ),
        (Column("hosts", "nodes", text=True, group=1, help="Nodes of its ranks."), _list_hosts),
        (
            Column("seconds", "seconds", group=1, help="Seconds from the start of the run to its end."),
            lambda run: quantity(run.seconds),
        ),
        (
            Column("reason", "reason", text=True, group=2, help="Reason for the state."),
            lambda run: phrase(run.verdict.reason, source=run.verdict.where),
        ),
        (
            Column("where", "where", text=True, group=2, help="File and line that the reason was read from."),
            lambda run: phrase(run.verdict.where or ""),
        ),
    ]
    return tabulate("runs", "Every run", submission.runs, fields, always=3)


def _show_state(run: RunResult) -> Entry:
    tone: Tone = "bad" if run.state in BAD else "warning" if run.state in OPEN else "good"
    return Entry(run.state, run.state, tone, run.verdict.where)


def _step(run: RunResult) -> Entry:
    last = run.log.last_step if run.log else None
    taken = last.step if last else 0
    configured = run.settings.work.steps
    planned = last.steps if last and last.steps else configured
    source = run.log.where(last.line) if run.log and last else None
    return Entry(f"{taken}/{planned}" if planned else str(taken), taken, source=source)


def _list_hosts(run: RunResult) -> Entry:
    hosts = dict.fromkeys(rank.host for rank in run.log.ranks) if run.log else {}
    named = [host for host in hosts if host] or [host for host in [run.host] if host]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return name(", ".join(named[:_NAMED]) + more) if named else Entry()


_OWN = "hpcbench"


def tabulate_logs(submission: Submission, cells: list[Cell]) -> Table | None:
    """Make the table of the runs' states, speeds and losses, without empty columns."""
    runs = [run for cell in cells for run in cell.runs]
    gpu = any(is_gpu(run.run) for run in runs)
    foreign = any(_read_dialect(run) != _OWN for run in runs)

    def columns(group: int, *quantities: Quantity, unit: DisplayUnit | None = None) -> list[Field[Measures]]:
        return make_fields(
            quantities, runs, lambda quantity, run: quantity.compute(run), gpu=gpu, group=group, unit=unit, runs=True
        )

    table_fields: list[Field[Measures]] = [
        (Column("run", "run", text=True), lambda run: name(run.run.id)),
        (Column("dialect", "dialect", text=True), lambda run: name(_read_dialect(run) if foreign else "")),
        (Column("scheme", "scheme", text=True), lambda run: name("" if foreign else run.run.scheme)),
        (Column("state", "state", text=True), lambda run: Entry(run.run.state, run.run.state)),
        (Column("step", "step", text=True), _show_progress),
        *columns(0, STEP_SECONDS, STEP_MEDIAN, STEP_P95, STEP_P99, unit=seconds_unit(run.step_seconds for run in runs)),
        *columns(1, MODEL_FLOPS, HARDWARE_FLOPS, UNLABELLED_FLOPS, MFU, HFU),
        *columns(2, SAMPLES, TOKENS, TOKENS_EACH, WIRE),
        *columns(3, replace(DEVICE, head="memory ({unit})"), LOSS_TRAIN, LOSS_VALID),
    ]
    return tabulate("logs", "", runs, table_fields)


def tabulate_calls(cells: list[Cell]) -> Table | None:
    """Make the table of the calls that hpcbench counted in users' programs, summed over all ranks of a run."""
    from hpcbench.programs.exact import explain  # imports rich, which only terminals need

    logs = [(run.run.id, run.run.log) for cell in cells for run in cell.runs if run.run.log]
    calls = [(run, row) for run, log in logs for row in log.read_event(ProgramCalls).rows or ()]
    unit = bytes_unit(row.call_bytes for _, row in calls)
    seconds = seconds_unit(time for _, row in calls for time in (row.encode_s, row.decode_s))
    fields: list[Field[tuple[str, CallGroup]]] = [
        text_column("run", lambda item: item[0] if len(logs) > 1 else ""),
        text_column("group", lambda item: f"{item[1].group} ({item[1].ranks})"),
        text_column("dimension", lambda item: item[1].dimension or ""),
        text_column("call", lambda item: item[1].call or ""),
        text_column("type", lambda item: item[1].dtype or ""),
        text_column("codec", lambda item: item[1].codec or f"none: {explain(item[1].why or '')}"),
        figure_column("calls", lambda item: item[1].calls, integer),
        figure_column(f"tensors ({unit.name})", lambda item: item[1].call_bytes, unit.show),
        figure_column(f"sent ({unit.name})", lambda item: item[1].message_bytes or None, unit.show),
        figure_column(f"wire ({unit.name})", lambda item: item[1].wire_bytes or None, unit.show),
        figure_column(f"encode ({seconds.name})", lambda item: item[1].encode_s or None, seconds.show),
        figure_column(f"decode ({seconds.name})", lambda item: item[1].decode_s or None, seconds.show),
    ]
    return tabulate("calls", "Calls of PyTorch's collectives, summed over the ranks", calls, fields, always=0)


def _read_dialect(measures: Measures) -> str:
    return measures.run.log.dialect if measures.run.log else _OWN


def _show_progress(measures: Measures) -> Entry:
    last = measures.run.log.last_step if measures.run.log else None
    if last is None:
        return Entry()
    return Entry(f"{last.step}/{last.steps}" if last.steps else str(last.step), last.step)
