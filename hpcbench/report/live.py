"""Live view of runs, progress and remaining time. If the output is not a terminal, plain lines are printed."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hpcbench.collect.find import Jobs
from hpcbench.collect.progress import Follower, RunProgress
from hpcbench.console import span
from hpcbench.contract.state import OPEN, JobSummary, State
from hpcbench.contract.text import make_printable
from hpcbench.present.notation import loss, significant
from hpcbench.report.pace import UNITS

_POLL = 0.5
"""Seconds between polls. Frequent polls would disturb training that runs on the same cores."""
_SAY = 10.0
"""Seconds between plain lines about the same run."""
_SILENCE = 60.0
"""Seconds without output after which a waiting run is reported again."""
_PATIENCE = 60.0
"""Seconds after which jobs unknown to the scheduler count as lost. If the scheduler does not answer, the view waits."""
_STYLES: dict[str, str] = {
    "completed": "green",
    "running": "bold",
    "pending": "dim",
    "suspended": "yellow",
    "stopped": "yellow",
    "cancelled": "yellow",
}


def follow(
    root: Path,
    *,
    console: Console | None = None,
    jobs: Callable[[], Mapping[str, JobSummary]] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Watch a submission until all jobs have ended or are lost.

    `jobs` returns all jobs, keyed by id. `clock` returns a monotonic time in seconds. The result is 0 if all runs
    completed, otherwise 1. If the user stops watching, the result is 1 and the jobs continue.
    """
    console = console or Console(highlight=False)
    ask = jobs or Jobs(root)
    follower = Follower(root, ask, clock=clock)
    begin: float | None = None
    silent_since: float | None = None
    live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
    lines = _Lines(console)
    runs: list[RunProgress] = []
    try:
        with live or nullcontext():
            while True:
                runs = follower.poll()
                if begin is None:  # the runs may have started long ago
                    begin = clock() - follower.since_start(runs)
                states = {job.state for job in follower.jobs.values()}
                if "unknown" not in states:
                    silent_since = None
                elif silent_since is None or getattr(ask, "silent", None):
                    silent_since = clock()
                waiting = silent_since is not None and clock() - silent_since < _PATIENCE
                over = not waiting and not states & OPEN
                elapsed, left = clock() - begin, None if over else follower.left(runs)
                if live:
                    live.update(render(runs, elapsed, left, console.height, console.width), refresh=True)
                else:
                    lines.show(runs, elapsed, left, over)
                if over:
                    break
                sleep(_POLL)
    except KeyboardInterrupt:
        console.print(f"No longer watching. The jobs continue: hpcbench status {root}", markup=False)
        return 1
    return 0 if all(run.state == "completed" for run in runs) else 1


def summarize(runs: list[RunProgress], elapsed: float, left: float | None) -> str:
    """Return a summary line about all runs."""
    counts = Counter(run.state for run in runs)
    states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    remaining = f", about {span(left)} left" if left is not None else ""
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}: {states}; {span(elapsed)} elapsed{remaining}"


class _Lines:
    """Output as plain lines: one line at the start and one at the end of a run, and progress lines in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states: dict[str, State] = {}
        self._printed: dict[str, float] = {}
        self._last = 0.0

    def show(self, runs: list[RunProgress], elapsed: float, left: float | None, over: bool) -> None:
        for i, run in enumerate(runs):
            before = self._states.get(run.id, "pending")
            self._states[run.id] = run.state
            if run.state == "pending":
                if before != "pending":
                    self._say(elapsed, f"{run.id}: is waiting to continue{_describe_reason(run)}")
                    self._printed[""] = elapsed
                continue
            if run.state == "running":
                if before != "running":
                    self._say(elapsed, f"{run.id}: started ({i + 1} of {len(runs)})")
                    self._printed[run.id] = elapsed
                elif run.step and elapsed - self._printed.get(run.id, 0.0) >= _SAY:
                    self._printed[run.id] = elapsed
                    self._say(elapsed, f"{run.id}: {_describe_progress(run)}, {span(left)} for all")
            elif run.state == "suspended":
                if before != "suspended":
                    self._say(elapsed, f"{run.id}: suspended by its scheduler")
            elif before in OPEN:
                self._say(elapsed, f"{run.id}: {describe_outcome(run)}")
        waits = all(run.state == "pending" for run in runs)
        if waits and not self._printed and not over and elapsed >= _SAY:
            self._printed[""] = elapsed
            self._say(elapsed, "no job has started yet: `hpcbench status` shows what the jobs are waiting for")
        elif not over and not any(run.state == "running" for run in runs) and elapsed - self._last >= _SILENCE:
            pending = next((run for run in runs if run.state == "pending"), None)
            if pending is not None:
                self._say(elapsed, f"{pending.id}: still waits{_describe_reason(pending)}")
        if over:
            self._console.print(Text(summarize(runs, elapsed, None)), soft_wrap=True)

    def _say(self, elapsed: float, text: str) -> None:
        self._last = elapsed
        self._console.print(Text(f"[{span(elapsed):>5}] {make_printable(text, 400)}"), soft_wrap=True)


def render(runs: list[RunProgress], elapsed: float, left: float | None, height: int, width: int) -> RenderableType:
    """Return one row per run, reasons for some states, and a summary.

    If the screen has fewer rows (`height`) than there are runs, only the most important runs are shown.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in ("run", "state"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("step", "loss", "speed", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    shown = _choose(runs, max(height - 4, 4))
    explained = [run for run in shown if run.verdict.reason and run.state not in ("completed", "running", "suspended")]
    explained.sort(key=lambda run: run.state == "pending")  # stable sort: pending runs come last
    reasons = [
        Text(
            make_printable(f"{run.id}: {describe_outcome(run)}", 400), style="dim" if run.state == "pending" else "red"
        )
        for run in explained[:3]
    ]
    lines = sum(len(reason.wrap(Console(width=width), width)) for reason in reasons)
    shown = _choose(runs, max(height - 3 - lines, 4))  # minus the header, the summary and the cursor line
    for run in shown:
        steps = f"{run.step}/{run.steps}" if run.steps else "-"
        final = run.loss_valid if run.loss_valid is not None else run.loss
        table.add_row(
            Text(run.id),
            Text(run.state, style=_STYLES.get(run.state, "red")),
            "-" if run.state == "pending" else steps,
            loss(final),
            _describe_speed(run),
            span(run.left),
        )
    hidden = len(runs) - len(shown)
    more = [Text(f"... and {hidden} more", style="dim")] if hidden else []
    return Group(table, *more, *reasons, Text(summarize(runs, elapsed, left)))


def describe_outcome(run: RunProgress) -> str:
    """Describe the state of a run."""
    if run.state == "completed":
        took = f" in {span(run.elapsed)}" if run.elapsed is not None else ""
        return f"completed{took}, loss (valid) {loss(run.loss_valid)}"
    return str(run.verdict)


def _describe_reason(run: RunProgress) -> str:
    return f": {run.verdict.reason}" if run.verdict.reason else ""


def _describe_progress(run: RunProgress) -> str:
    return f"step {run.step}/{run.steps}, loss {loss(run.loss)}, {_describe_speed(run)}, {span(run.left)} left"


def _describe_speed(run: RunProgress) -> str:
    rates = [f"{significant(rate)} {unit}" for rate, unit in zip(run.rates, UNITS, strict=False) if rate]
    return rates[0] if rates else "-"


def _choose(runs: list[RunProgress], height: int) -> list[RunProgress]:
    """Choose the runs to show. Running runs take precedence, then failed runs, then the runs that ended last."""
    if len(runs) <= height:
        return runs
    rank = {"running": 0, "completed": 2, "pending": 3}
    order = sorted(
        range(len(runs)), key=lambda i: (rank.get(runs[i].state, 1), i if runs[i].state == "pending" else -i)
    )
    return [runs[i] for i in sorted(order[: height - 1])]
