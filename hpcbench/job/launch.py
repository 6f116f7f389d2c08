"""Launcher process of a run. The process group can be polled, terminated, and killed."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.job.processes import kill_run

TERM_TIME = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class RunProcess:
    """A running launcher.

    Parameters
    ----------
    run
        Directory of the run, relative to the working directory.

    Raises
    ------
    OSError
        The log cannot be opened.
    """

    def __init__(self, run: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._run = run.absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = 0
        with (run / "log.txt").open("wb") as log, (run / "err.txt").open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    command,
                    env={**environment, "HPCBENCH_RUN": str(self._run)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=errors,
                    close_fds=False,  # the ranks inherit the lock of the local queue
                    preexec_fn=os.setpgrp,
                )
            except OSError as error:
                errors.write(os.fsencode(f"{command[0]}: {error.strerror}\n"))
                self._failed = 126 if isinstance(error, PermissionError) else 127

    def poll(self) -> int | None:
        """Return the exit status as in a shell, or None while the launcher runs or is suspended."""
        if self._process is None:
            return self._failed
        status = self._process.poll()
        return 128 - status if status is not None and status < 0 else status

    def wait_for_group(self, seconds: float) -> bool:
        """Wait up to `seconds` for the process group to end. Return whether the group has ended."""
        deadline = time.monotonic() + seconds
        while self._has_group():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def end(self, *, kill: bool) -> None:
        """Send SIGTERM to the process group. With `kill`, send SIGKILL after `TERM_TIME`."""
        self._signal_group(signal.SIGTERM)
        if not self.wait_for_group(TERM_TIME) and kill:
            self._signal_group(signal.SIGKILL)

    def kill_rest(self) -> None:
        """Kill all processes left behind by the run."""
        kill_run(self._run)

    def _has_group(self) -> bool:
        if self._process is None:
            return False
        self._process.poll()
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)
