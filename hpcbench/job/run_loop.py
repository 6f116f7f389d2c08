"""Loop over the runs of a job, with time limits and stop requests."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.contract.state import NO_ROOM_EXIT, OVERTIME_EXIT, STOPPED_EXIT
from hpcbench.contract.times import format_now
from hpcbench.job.claim import REFUSED, HeldClaim
from hpcbench.job.clock import JobClock
from hpcbench.job.launch import RunProcess
from hpcbench.job.options import JobOptions, RunCommand
from hpcbench.job.status_files import StatusFiles, StatusRecorder, is_completed, keep_old_files
from hpcbench.job.stop_requests import StopRequests

_LOOK = 0.2
"""Seconds between two checks of a run."""
_LATE = 0.5
"""Seconds to wait after a launcher failure for the signal that may have caused it."""


class EndOfJobError(Exception):
    """The job must end immediately with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class _CurrentRun:
    id: str
    start: str
    launched: float
    limit: int
    """Seconds until the stop request to the run. 0 means no limit."""
    stop_time: int
    """Seconds that the run may take for its checkpoint after the stop request."""
    launcher: RunProcess | None = None
    reached: bool = False
    """Whether the run reached its own limit before the job was asked to stop."""
    killed: bool = False
    """Whether the run was killed because it reached its limit."""


def share_time(options: JobOptions, used: float, waiting: int) -> tuple[int, int]:
    """Return a run's time limit and the time for its checkpoint, in seconds. A limit of 0 means no limit.

    By default, the time until the job's stop request is divided equally among the incomplete runs. The checkpoint time
    is at most the limit, so a run that does not stop takes little time from other runs.

    Parameters
    ----------
    options
        Options of the job, including its time limits.
    used
        Seconds since the start of the job.
    waiting
        Number of incomplete runs, including this run.
    """
    limit, stop_time = options.run_limit, options.stop_ahead
    if not limit and options.walltime:
        limit = max(1, int((options.walltime - options.stop_ahead - used) // waiting))
        if waiting == 1:
            return limit, stop_time
    return limit, min(stop_time, limit)


@dataclass
class RunLoop:
    """Loop over the runs of a job."""

    root: Path
    """Submission directory, which is the working directory."""
    options: JobOptions
    """Runs and limits of the job."""
    environment: Mapping[str, str]
    """Environment variables of the runs."""
    claim: HeldClaim
    files: StatusFiles
    recorder: StatusRecorder
    requests: StopRequests
    clock: JobClock
    _current: _CurrentRun | None = field(default=None, init=False)
    _failed: bool = field(default=False, init=False)
    _unfinished: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._waiting = sum(not is_completed(self.root, run.id) for run in self.options.runs)

    def run_all(self) -> int:
        """Run all incomplete runs sequentially. If a run fails, later runs are still started.

        Returns
        -------
        int
            Exit status of the job: 0, 1 for a failed run, 75 for resumable runs, or the status of a signal.
        """
        try:
            for run in self.options.runs:
                self._run(run)
            self._check_signals()
            self._check_claim()
        except EndOfJobError as error:
            self._end_run(error.status)
            return error.status
        except OSError as error:  # for example a file server error
            self.files.note_failure(error)
            self._end_run(NO_ROOM_EXIT)
            return NO_ROOM_EXIT
        unfinished = self.requests.stopping or self._unfinished
        if unfinished and not all(is_completed(self.root, run.id) for run in self.options.runs):
            return STOPPED_EXIT
        return int(self._failed)

    def _run(self, run: RunCommand) -> None:
        self._check_claim()  # check first, because a script that took over the job may have completed the run
        if is_completed(self.root, run.id):
            return
        self.clock.read(watched=False)  # preceding steps may have been slow
        self._keep_time()
        self._check_signals()
        if self.requests.stopping:
            return
        used = self.clock.read()
        limit, stop_time = share_time(self.options, used, self._waiting)
        self._waiting -= 1
        keep_old_files(self.root, run.id)
        self.files.failure = ""
        current = self._current = _CurrentRun(run.id, format_now(), used, limit, stop_time)
        directory = self.root / "runs" / run.id
        status = NO_ROOM_EXIT
        if (
            self.files.set_aside(self.root / "jobs" / self.options.job)
            and self.files.set_aside(directory)
            and self.recorder.record_run(run.id, current.start, "running")
            and not self.files.failure
        ):
            status = self._launch(directory, run, current)
        reached = current.reached and status != 0
        if reached and (not current.killed or any(directory.glob("checkpoint/step-*"))):
            self._unfinished = True  # the run is resumable
        self._failed |= not self._record_end(current, status, reached=reached) or status != 0
        self.files.give_back(directory)  # normally done by the worker before its last event, unless it was killed
        self._current = None

    def _launch(self, directory: Path, run: RunCommand, current: _CurrentRun) -> int:
        """Start a run, wait until it ends, and return its exit status."""
        try:
            launcher = current.launcher = RunProcess(directory, run.command, self.environment)
        except OSError as error:
            self.files.note_failure(error)
            return NO_ROOM_EXIT
        while (status := launcher.poll()) is None:
            self._keep_time()
            self._check_signals()
            self.requests.wait(_LOOK)
        if status != 0 and self.requests.leaving is None:
            self.requests.wait(_LATE)  # LSF signals all processes of a job, including the launcher
        self._check_signals()
        launcher.kill_rest()
        return OVERTIME_EXIT if current.killed else status

    def _keep_time(self) -> None:
        """Request a stop before the job's limit or at the run's limit. End the run if it does not stop in time."""
        options, current = self.options, self._current
        if os.getppid() != options.script:  # The job was killed. The scheduler reports this.
            if current is not None and current.launcher is not None:
                current.launcher.end(kill=True)
                current.launcher.kill_rest()
            os._exit(137)
        used = self.clock.read()
        if options.walltime and used >= options.walltime - options.stop_ahead:
            self.requests.stopping = True  # Flux cannot signal only the script, and other schedulers may be late
        if current is None or current.launcher is None:
            return
        if self.requests.stopping:
            self._ask_to_stop()
        past = used - current.launched - current.limit
        if not current.limit or past <= 0:
            return
        if not self.requests.stopping:
            current.reached = True  # otherwise the job's limit was reached first
        self._ask_to_stop()
        if not current.killed and past > current.stop_time:
            current.reached = current.killed = True
            current.launcher.end(kill=True)

    def _ask_to_stop(self) -> None:
        """Request that the run write a checkpoint and exit."""
        if self._current is not None:
            try:
                (self.root / "runs" / self._current.id / "stop").touch()
            except OSError as error:
                self.files.note_failure(error)

    def _check_signals(self) -> None:
        """End the job if a signal has requested this."""
        self.requests.wait(0.0)
        if self.requests.leaving is not None:
            raise EndOfJobError(self.requests.leaving)

    def _check_claim(self) -> None:
        """End the job if another script has claimed it."""
        if not self.claim.is_ours():
            raise EndOfJobError(REFUSED)

    def _end_run(self, status: int) -> None:
        """End the current run and its processes. During a grace period, the run may first exit on its own."""
        current = self._current
        if current is None:
            return
        if current.launcher is not None:
            if self.requests.stopping:
                self._ask_to_stop()
            if self.requests.grace and current.launcher.wait_for_group(self.requests.grace):
                status = current.launcher.poll() or 0
            else:
                current.launcher.end(kill=False)
            current.launcher.kill_rest()
        self._record_end(current, status, reached=current.reached)

    def _record_end(self, current: _CurrentRun, status: int, *, reached: bool = False) -> bool:
        limit = ("run_limit" if self.options.run_limit else "walltime") if reached else ""
        return self.recorder.record_run(current.id, current.start, "ended", status, limit=limit)
