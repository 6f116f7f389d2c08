"""Every run: what became of it and why; of runs that there is nothing to compare with, also speed and loss."""

from collections.abc import Callable

from hpcbench.collect.lines import integer
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.state import BAD, OPEN
from hpcbench.report.compare import Cell
from hpcbench.report.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.notation import bytes_unit, flops_unit, loss, name, percent, phrase, quantity, ratio, seconds_unit
from hpcbench.report.tables.flops import KINDS

_NAMED = 2
"""Hosts that are named; of more, the number is said."""


def runs(submission: Submission, cells: list[Cell]) -> Table | None:
    """One row a planned run, also of those that left nothing."""
    fields = [
        (Column("run", "run", words=True, help="The run's name in its submission."), lambda run: name(run.id)),
        (Column("state", "state", words=True, help="What became of it."), _state),
        (Column("step", "step", words=True, help="Its last step, of how many."), _step),
        (
            Column("job", "job", words=True, group=1, help="The job that it belongs to."),
            lambda run: name(run.job or ""),
        ),
        (Column("hosts", "nodes", words=True, group=1, help="Where its ranks were."), _hosts),
        (Column("seconds", "seconds", group=1, help="From its start to its end."), lambda run: quantity(run.seconds)),
        (
            Column("reason", "reason", words=True, group=2, help="Why it is in that state."),
            lambda run: phrase(run.verdict.reason, source=run.verdict.where),
        ),
        (
            Column("where", "where", words=True, group=2, help="File and line that the reason was read from."),
            lambda run: phrase(run.verdict.where or ""),
        ),
    ]
    return tabulate("runs", "Runs", submission.runs, fields, always=3)


def _state(run: RunResult) -> Entry:
    tone: Tone = "bad" if run.state in BAD else "warning" if run.state in OPEN else "good"
    return Entry(run.state, run.state, tone, run.verdict.where)


def _step(run: RunResult) -> Entry:
    last = run.log.last_step if run.log else None
    taken = last.step if last else 0
    planned = last.steps if last and last.steps else integer(run.settings, "train", "steps")
    source = run.log.where(last.line) if run.log and last else None
    return Entry(f"{taken}/{planned}" if planned else str(taken), taken, source=source)


def _hosts(run: RunResult) -> Entry:
    found = dict.fromkeys(rank.host for rank in run.log.ranks) if run.log else {}
    named = [host for host in found if host] or [host for host in [run.host] if host]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return name(", ".join(named[:_NAMED]) + more) if named else Entry()


_OWN = "hpcbench"


def logs(submission: Submission, cells: list[Cell]) -> Table | None:
    """State, speed and loss of each run; only the columns that a log fills."""
    runs = [run for cell in cells for run in cell.runs]
    gpu = any(is_gpu(run.run) for run in runs)
    unit = seconds_unit(run.step_seconds for run in runs)
    memory = bytes_unit(run.memory.device for run in runs)
    foreign = any(_dialect(run) != _OWN for run in runs)

    def flops(key: str, mark: str, what: str, value: Callable[[Measures], float | None]) -> Field[Measures]:
        own = flops_unit([value(run) for run in runs], gpu)
        return Column(key, own.name + mark, group=1, help=what), lambda run: quantity(value(run), own.show)

    fields: list[Field[Measures]] = [
        (Column("run", "run", words=True), lambda run: name(run.run.id)),
        (Column("dialect", "dialect", words=True), lambda run: name(_dialect(run) if foreign else "")),
        (Column("scheme", "scheme", words=True), lambda run: name("" if foreign else run.run.scheme)),
        (Column("state", "state", words=True), lambda run: Entry(run.run.state, run.run.state)),
        (Column("step", "step", words=True), _progress),
        (Column("step_seconds", f"step time ({unit.name})"), lambda run: quantity(run.step_seconds, unit.show)),
        *(flops(*kind) for kind in KINDS),
        (Column("mfu", "MFU", group=1), lambda run: quantity(run.mfu, percent)),
        (Column("hfu", "HFU", group=1), lambda run: quantity(run.hfu, percent)),
        (Column("samples_per_s", "samples/s", group=2), lambda run: quantity(run.samples_per_s)),
        (Column("tokens_per_s", "tokens/s", group=2), lambda run: quantity(run.tokens_per_s)),
        (
            Column("tokens_per_s_per_rank", "tokens/s/GPU" if gpu else "tokens/s/rank", group=2),
            lambda run: quantity(run.tokens_per_s_per_rank),
        ),
        (
            Column("wire_over_message", "wire/message", group=2),
            lambda run: Entry(ratio(run.wire_over_message), run.wire_over_message),
        ),
        (
            Column("device_bytes", f"memory ({memory.name})", group=3),
            lambda run: quantity(run.memory.device, memory.show),
        ),
        (Column("loss_train", "loss", group=3), lambda run: quantity(run.loss_train, loss)),
        (Column("loss_valid", "loss (valid)", group=3), lambda run: quantity(run.loss_valid, loss)),
    ]
    return tabulate("logs", "", runs, fields)


def _dialect(measures: Measures) -> str:
    return measures.run.log.dialect if measures.run.log else _OWN


def _progress(measures: Measures) -> Entry:
    last = measures.run.log.last_step if measures.run.log else None
    if last is None:
        return Entry()
    return Entry(f"{last.step}/{last.steps}" if last.steps else str(last.step), last.step)
