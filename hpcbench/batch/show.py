"""What the commands print."""

import shlex
import sys
from pathlib import Path

from hpcbench.batch.submit import Submission
from hpcbench.batch.track import State, Tracked

_STYLES = {
    State.COMPLETED: "green",
    State.RUNNING: "cyan",
    State.PENDING: "dim",
    State.FAILED: "bold red",
    State.LOST: "bold red",
    State.CANCELLED: "yellow",
    State.UNKNOWN: "magenta",
}


def show_submission(submission: Submission, *, dry_run: bool) -> None:
    """What was handed in, or would be."""
    jobs, site = submission.jobs, submission.site
    runs = sum(len(job.runs) for job in jobs)
    seconds = sum(job.walltime.seconds * job.shape.nodes for job in jobs if job.walltime)
    most = f", {seconds / 3600:.1f} node-hours at most" if seconds and site.scheduler.kind != "local" else ""
    print(f"{len(jobs)} jobs, {runs} runs on {site.site} ({site.scheduler.kind}){most}{': a dry run' if dry_run else ''}")
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
            f"  {names}: {shape.nodes} nodes x {shape.ranks_per_node} ranks, "
            f"{shape.threads} threads a rank{walltime}{queue}"
        )
        print(f"    {shlex.join([*job.launch, job.python])} -u -m hpcbench.train runs/RUN/run.json")
    for note in submission.notes:
        print(f"  {note}")
    print(submission.root)


def show_status(tracked: Tracked) -> None:
    """A table of jobs and runs."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    submission = tracked.submission
    title = f"{submission['study']} on {submission['site']}: {tracked.root}"
    table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False)
    for name in ("job", "run", "state", "time", "reason"):
        table.add_column(name, overflow="fold")
    for job in submission["jobs"]:
        status = tracked.jobs[job["id"]]
        style = _STYLES[status.state]
        table.add_row(job["id"], "", f"[{style}]{status.state.value}[/]", _span(status.start, status.end), escape(status.reason))
        for run in job["runs"]:
            status = tracked.runs[run]
            style = _STYLES[status.state]
            table.add_row(
                "", run, f"[{style}]{status.state.value}[/]", _span(status.start, status.end), escape(status.reason)
            )
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _span(start: str | None, end: str | None) -> str:
    import datetime

    if start is None or end is None:
        return "" if start is None else f"since {start}"
    try:
        seconds = (datetime.datetime.fromisoformat(end[:-1]) - datetime.datetime.fromisoformat(start[:-1])).seconds
    except ValueError:
        return ""
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def show_sites() -> None:
    """The sites that come with hpcbench."""
    from hpcbench.batch.site import load_site, names

    for name in names():
        site, _ = load_site(name)
        retired = "; retired" if site.retired else ""
        print(f"{name:12s} {site.scheduler.kind:6s} {site.description or ''} (checked: {site.checked}{retired})")


def show_site(name: str) -> None:
    """A site as its file says it, once that is known to be right."""
    from hpcbench.batch.site import load_site

    _, document = load_site(name, "sites")
    print(f"# {Path(document.name)}: right")
    print(document.text.decode("utf-8-sig").rstrip("\n"))
