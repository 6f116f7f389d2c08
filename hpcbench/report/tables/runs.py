"""Every run, with what became of it and why."""

from hpcbench.collect.lines import integer
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.state import BAD, OPEN
from hpcbench.report.compare import Cell
from hpcbench.report.document import Column, Entry, Table, Tone
from hpcbench.report.notation import name, phrase, quantity
from hpcbench.report.tables.tabulate import tabulate

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
