"""Progress of a running submission. Repeated queries are cheap."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, median

from hpcbench.collect.program_log import ProgramReader
from hpcbench.collect.run_log import LogReader, RunLog
from hpcbench.collect.submission import RunResult, result
from hpcbench.contract.mark import Mark, read_mark
from hpcbench.contract.program import LogForm
from hpcbench.contract.state import OPEN, JobSummary, ResolvedState, State
from hpcbench.contract.step_line import Step
from hpcbench.contract.submission import PlannedRun, SchedulerKind, read_submission
from hpcbench.contract.times import measure_seconds, parse_time

_ASK = 2.0
"""Seconds between two queries of the jobs."""
_RECENT = 20
"""Number of recent steps from which the remaining time is estimated. The first steps of a run are slow."""


_Seen = tuple[Mark | None, JobSummary, RunLog | None, int]
"""Inputs from which the state of a run was last resolved: status file, job, log, and number of lines."""


@dataclass(frozen=True)
class RunProgress:
    """The current state of one run. Numbers are None until the log contains them."""

    id: str
    job: str
    verdict: ResolvedState
    step: int = 0
    steps: int | None = None
    loss: float | None = None
    rates: tuple[float | None, ...] = ()
    """Samples, tokens, tokens per rank, and steps per second in the last step."""
    loss_valid: float | None = None
    elapsed: float | None = None
    """Seconds since the start of the run, or its duration if it has ended."""
    start: str | None = None
    end: str | None = None
    left: float | None = None
    """Estimated seconds for the remaining steps, at the speed of the most recent steps."""

    @property
    def state(self) -> State:
        """Current state of the run."""
        return self.verdict.state


class Follower:
    """Reader of the new lines and status files of a submission.

    Parameters
    ----------
    root
        Directory of the submission.
    jobs
        Function that returns the jobs keyed by ID.
    now
        Function that returns the current time in UTC.
    clock
        Function that returns the time in seconds of a monotonic clock.
    """

    def __init__(
        self,
        root: Path,
        jobs: Callable[[], Mapping[str, JobSummary]],
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = root
        self.plan = read_submission(root)
        self.jobs: dict[str, JobSummary] = {}
        self._states = jobs
        self._now = now
        self._clock = clock
        self._asked: tuple[float, Mapping[str, JobSummary]] | None = None
        self._tails = {run.id: _Tail(root / run.path / "log.txt", self.plan.program_log) for run in self.plan.runs}
        self._judged: dict[str, tuple[_Seen, RunResult]] = {}
        self._settled: dict[str, RunProgress] = {}
        self._ends: dict[str, tuple[int, RunProgress]] = {}
        """Attempt and final progress of each run whose end has been detected."""

    def poll(self) -> list[RunProgress]:
        """Return the current state of all runs, in the order of the plan."""
        # The scheduler is queried before the status files are read. If a job ends in between, its status file shows the
        # end, so the job is not reported as lost.
        if self._asked is None or self._clock() - self._asked[0] >= _ASK:
            self._asked = (self._clock(), self._states())
        self.jobs = {job.id: self._asked[1].get(job.id, JobSummary(job.id, State.UNKNOWN)) for job in self.plan.jobs}
        return [self._settled.get(run.id) or self._look(run) for run in self.plan.runs]

    def since_start(self, runs: list[RunProgress]) -> float:
        """Return the seconds since the start of the first run. If all runs have ended, return their total duration."""
        starts = [time for run in runs if (time := parse_time(run.start)) is not None]
        ends = [time for run in runs if (time := parse_time(run.end)) is not None]
        if not starts:
            return 0.0
        until = self._now() if not ends or any(run.state in OPEN for run in runs) else max(ends)
        return max(0.0, (until - min(starts)).total_seconds())

    def left(self, runs: list[RunProgress]) -> float | None:
        """Estimate the seconds until all runs have ended. Return None until the speed of a run is known."""
        durations = [p.elapsed for p in runs if p.state == "completed" and p.elapsed is not None]
        durations += [p.elapsed + p.left for p in runs if p.state == "running" and p.elapsed is not None and p.left]
        if not durations:
            return None
        usual = fmean(durations)
        by_job: dict[str, float] = {}
        for run in runs:
            if run.state in OPEN:
                left = max(usual - (run.elapsed or 0.0), 0.0) if run.left is None else run.left
                by_job[run.job] = by_job.get(run.job, 0.0) + left
        # Jobs on a cluster run concurrently after their start. Jobs on a single machine run one after another.
        totals = list(by_job.values())
        return sum(totals) if self.plan.scheduler is SchedulerKind.LOCAL else max(totals, default=0.0)

    def _look(self, run: PlannedRun) -> RunProgress:
        job = self.jobs.get(run.job, JobSummary(run.job, State.UNKNOWN))
        # The status file is read first: if it reports the end, the log already contains the end.
        mark = read_mark(self.root / run.path)
        log = self._tails[run.id].read()
        seen = mark, job, log, log.lines if log else 0
        cached = self._judged.get(run.id)
        # The log and stderr of a failed run are searched for the reason.
        run_result = cached[1] if cached and cached[0] == seen else result(self.plan, run, self.root, job, mark, log)
        self._judged[run.id] = (seen, run_result)
        progress = self._onward(run, self._progress(run, run_result, log), mark)
        if run_result.state not in OPEN and job.state not in (*OPEN, "unknown"):
            self._settled[run.id] = progress
            del self._tails[run.id], self._judged[run.id]
        return progress

    def _onward(self, run: PlannedRun, progress: RunProgress, mark: Mark | None) -> RunProgress:
        """Return the progress of a run, or the stored final progress if the end of this attempt was already detected.

        The scheduler's response may be older than the status files, and may report a finished job as running.
        """
        attempt = mark.attempt if mark else 0
        before = self._ends.get(run.id)
        if before is not None and before[0] >= attempt and progress.state in (*OPEN, State.UNKNOWN):
            return before[1]
        if progress.state not in (*OPEN, State.UNKNOWN):
            self._ends[run.id] = (attempt, progress)
        return progress

    def _progress(self, run: PlannedRun, run_result: RunResult, log: RunLog | None) -> RunProgress:
        last = log.last_step if log else None
        seconds = measure_seconds(run_result.start, run_result.end or self._now())
        left = None
        if log is not None and last is not None and run_result.state == "running":
            recent = log.steps.column("seconds")[-_RECENT:]
            planned = last.steps or self.plan.steps
            left = median(recent) * max(planned - last.step, 0) if recent and planned else None
        return RunProgress(
            id=run.id,
            job=run.job,
            verdict=run_result.verdict,
            step=last.step if last else 0,
            steps=last.steps if last and last.steps else self.plan.steps,
            loss=last.loss if last else None,
            rates=_read_rates(last) if last else (),
            loss_valid=log.final_loss() if log else None,
            elapsed=seconds,
            start=run_result.start,
            end=run_result.end,
            left=left,
        )


def _read_rates(step: Step) -> tuple[float | None, ...]:
    return step.samples_per_s, step.tokens_per_s, step.tokens_per_s_per_rank, 1 / step.seconds if step.seconds else None


class _Tail:
    """A growing log. Each query reads only the new content."""

    def __init__(self, path: Path, form: LogForm | None) -> None:
        self._path, self._form = path, form
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._reader = LogReader(self._path) if self._form is None else ProgramReader(self._path, self._form)

    def read(self) -> RunLog | None:
        try:
            with self._path.open("rb") as stream:
                if stream.seek(0, 2) < self._offset:
                    self._begin()
                stream.seek(self._offset)
                while chunk := stream.read(1 << 20):
                    self._offset += len(chunk)
                    self._reader.feed(chunk)
        except OSError:
            return None
        return self._reader.log
