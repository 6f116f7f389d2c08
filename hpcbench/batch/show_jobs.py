"""Output of the commands that submit, show, and retry jobs."""

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.batch.files import seconds
from hpcbench.console import show_table
from hpcbench.contract.state import State
from hpcbench.contract.text import count_noun

if TYPE_CHECKING:
    from rich.text import Text

    from hpcbench.batch.retry import Retried
    from hpcbench.batch.scripts.job import Job
    from hpcbench.batch.sites.site import Site
    from hpcbench.batch.submit import SubmitResult
    from hpcbench.batch.tracking.track import Tracked
    from hpcbench.contract.job_state import Status
    from hpcbench.study.expand import ExpandedRun

_STYLES = {
    State.COMPLETED: "green",
    State.RUNNING: "cyan",
    State.PENDING: "dim",
    State.FAILED: "bold red",
    State.NAN: "bold red",
    State.LOST: "bold red",
    State.CANCELLED: "yellow",
    State.UNKNOWN: "magenta",
    State.INCOMPLETE: "magenta",
    State.SUSPENDED: "yellow",
    State.TIMED_OUT: "bold red",
    State.OUT_OF_MEMORY: "bold red",
    State.NODE_FAILED: "bold red",
    State.PREEMPTED: "yellow",
    State.STOPPED: "yellow",
}


def show_submission(submission: "SubmitResult", *, dry_run: bool) -> None:
    """Print the jobs that were submitted, or written by a dry run."""
    jobs, site = submission.jobs, submission.site
    runs = sum(len(job.runs) for job in jobs)
    node_seconds = sum(job.walltime.seconds * job.shape.nodes for job in jobs if job.walltime)
    most = f", at most {node_seconds / 3600:.1f} node-hours" if node_seconds and site.scheduler.kind != "local" else ""
    end = ": a dry run" if dry_run else ""
    print(
        f"{count_noun(len(jobs), 'job')}, {count_noun(runs, 'run')} on {site.site} ({site.scheduler.kind}){most}{end}"
    )
    shapes: dict[tuple[object, ...], list[str]] = {}
    for job in jobs:
        key = (job.shape, tuple(job.launch), job.python, job.walltime, job.queue)
        shapes.setdefault(key, []).append(job.id)
    for ids in shapes.values():
        job = next(job for job in jobs if job.id == ids[0])
        shape = job.shape
        queue = f", queue {job.queue}" if job.queue else ""
        walltime = f", walltime {job.walltime}" if job.walltime and site.scheduler.kind != "local" else ""
        names = ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]} ({len(ids)} jobs)"
        print(
            f"  {names}: {count_noun(shape.nodes, 'node')} x {count_noun(shape.ranks_per_node, 'rank')}, "
            f"{count_noun(shape.threads, 'thread')} per rank{walltime}{queue}"
        )
        if job.program:
            ours = [job.outside or job.python, "-u", "-m", "hpcbench.programs", "runs/RUN/run.json"]
            print(f"    {shlex.join([*ours, *job.launch, job.python])}")
        else:
            print(f"    {shlex.join([*job.launch, job.python, '-u', '-m', 'hpcbench.train', 'runs/RUN/run.json'])}")
    print(f"  {_describe_reach(jobs, site)}")
    if dry_run:
        for line in list_cells(submission.runs):
            print(f"  {line}")
    for note in submission.notes:
        print(f"  {note}")
    print(submission.root)


def _describe_reach(jobs: "Sequence[Job]", site: "Site") -> str:
    """Describe how many runs send messages between nodes. If no run does, say how to change that."""
    runs = sum(len(job.runs) for job in jobs)
    crossing = sum(len(job.runs) for job in jobs if job.shape.nodes > 1)
    if crossing == runs:
        return "messages leave the node in all runs"
    if crossing:
        return f"messages leave the node in {crossing} of {count_noun(runs, 'run')}: the others use only one node"
    local = site.scheduler.kind == "local"
    remedy = "try --site virtual-hosts" if local else "use two nodes with --set nodes=2 --set ranks_per_node=..."
    return f"no message leaves the node, so the runs do not measure the network: {remedy}"


def list_cells(runs: Sequence["ExpandedRun"]) -> list[str]:
    """List the runs of each cell, grouped by scheme and repeat, with one line per cell."""
    cells: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        name = ", ".join(f"{key} {value}" for key, value in run.cell.items()) or "one cell"
        cells.setdefault(name, {}).setdefault(run.scheme_name, []).append(run.repeat)
    return [f"{name}: {_list_runs(schemes)}" for name, schemes in cells.items()]


def _list_runs(repeats_of: dict[str, list[int]]) -> str:
    """Describe the runs of a cell: the number of runs, and the repeats of each scheme."""
    schemes: dict[tuple[int, ...], list[str]] = {}
    for scheme, numbers in repeats_of.items():
        schemes.setdefault(tuple(sorted(numbers)), []).append(scheme)
    parts = []
    for repeats, names in schemes.items():
        together = len(repeats) > 1 and repeats == tuple(range(repeats[0], repeats[-1] + 1))
        span = f"{repeats[0]} to {repeats[-1]}" if together else ", ".join(map(str, repeats))
        parts.append(f"{', '.join(names)} (repeat{'' if len(repeats) == 1 else 's'} {span})")
    return f"{count_noun(sum(map(len, repeats_of.values())), 'run')}: {'; '.join(parts)}"


@contextlib.contextmanager
def show_progress() -> Iterator[Callable[[int, int], None]]:
    """Show submission progress: a bar on a terminal, lines in a log, or nothing if there are only a few jobs."""
    if not sys.stderr.isatty():

        def line(done: int, all: int) -> None:
            if all > 20 and (done == all or done % max(1, all // 10) == 0):
                print(f"{done} of {all} submitted", file=sys.stderr)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        TextColumn("submitting"), BarColumn(), MofNCompleteColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=None, visible=False)
        yield lambda done, all: bar.update(task, completed=done, total=all, visible=all > 3)


def show_retried(root: Path, retried: "Retried") -> None:
    """Print which runs were resubmitted, and why others were not."""
    if retried.jobs:
        print(f"{root}: {count_noun(len(retried.jobs), 'job')} again, for {count_noun(len(retried.runs), 'run')}")
        for run in retried.runs:
            print(f"  {run}")
    else:
        print(f"{root}: nothing to retry")
    for run, reason in retried.left.items():
        print(f"  {run} is not repeated: {reason}")
    for note in (retried.changes, retried.note):
        if note:
            print(note)


def show_status(tracked: "Tracked") -> None:
    """Print a status table of jobs and runs."""
    from rich.table import Table
    from rich.text import Text

    submission = tracked.submission
    title = f"{submission.study} on {submission.site}: {tracked.root}"
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for name in ("job", "id", "run", "state", "time", "reason"):
        table.add_column(name, overflow="fold")
    for job in submission.jobs:
        status = tracked.jobs[job.id]
        id = tracked.ids.get(job.id, "") if submission.scheduler != "local" else ""
        table.add_row(Text(job.id), Text(id), "", *_cells(status, tracked.root))
        before = None
        for run in job.runs:
            status = tracked.runs[run]
            outcome = (status.state, status.reason)
            state, span, reason = _cells(status, tracked.root)
            table.add_row(
                "", "", Text(run), state, span, Text("as above") if status.reason and outcome == before else reason
            )
            before = outcome
    show_table(table, unbound=200)


def encode_status(tracked: "Tracked") -> str:
    """Return the states of a submission, its jobs, and its runs as JSON. Times are in UTC."""
    submission = tracked.submission
    runs = {run.id: run for run in submission.runs}
    document = {
        "schema": 1,
        "study": submission.study,
        "site": submission.site,
        "root": str(tracked.root.absolute()),
        "over": tracked.over,
        "failed": tracked.failed,
        "scheduler_silent": tracked.silent,
        "jobs": [
            {
                "job": job.id,
                "id": tracked.ids.get(job.id),
                **_describe(tracked.jobs[job.id]),
                "runs": [
                    {
                        "run": id,
                        "scheme": runs[id].scheme,
                        "repeat": runs[id].repeat,
                        "cell": runs[id].cell,
                        **_describe(tracked.runs[id]),
                    }
                    for id in job.runs
                ],
            }
            for job in submission.jobs
        ],
    }
    return json.dumps(document, indent=1)


def _describe(status: "Status") -> dict[str, str | int | None]:
    return {**asdict(status), "state": status.state.value}


def _cells(status: "Status", root: Path) -> "tuple[Text, Text, Text]":
    from rich.text import Text

    attempt = f"attempt {status.attempt}" if status.attempt > 1 else ""
    where = f"({status.where.removeprefix(f'{root}/')})" if status.where else ""
    reason = "; ".join(part for part in (attempt, f"{status.reason} {where}".strip()) if part)
    return Text(status.state.value, _STYLES[status.state]), Text(_span(status.start, status.end)), Text(reason)


def _span(start: str | None, end: str | None) -> str:
    first, last = seconds(start), seconds(end)
    if start is None or end is None:
        return "" if start is None else f"since {start}"
    if first is None or last is None:
        return ""
    duration = max(0, round(last - first))
    return f"{duration // 3600}:{duration // 60 % 60:02d}:{duration % 60:02d}"
