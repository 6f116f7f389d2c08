"""Command that runs another project's program in a job script, instead of `hpcbench.train`.

    python -m hpcbench.programs RUN.json LAUNCHER... INTERPRETER

INTERPRETER is the ranks' Python, which may be in a container. This process starts the launcher and copies the program's
output. Each line is prefixed with the seconds since the start. Events for the start, the traffic and the end of the run
are also logged.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from hpcbench import __version__
from hpcbench.collect.program_log import feed_all
from hpcbench.contract.event.applied import AppliedScheme
from hpcbench.contract.event.base import Event
from hpcbench.contract.events import Configuration, End, Start
from hpcbench.contract.program import ProgramRun, load
from hpcbench.contract.stamp import format_stamp
from hpcbench.contract.state import STOPPED_EXIT
from hpcbench.contract.times import format_now
from hpcbench.errors import UserError
from hpcbench.programs.exact import is_idle, state_idle
from hpcbench.programs.network import measure_network
from hpcbench.programs.rank import APPLIED, NETWORK
from hpcbench.programs.sent import events, reported
from hpcbench.programs.table import summed

_LOOK_S = 0.5
_GRACE_S = 60.0
"""Seconds between SIGTERM and SIGKILL when the program is stopped."""
RANKS = "ranks"
"""Subdirectory of the run with one traffic-count file per rank."""


def main(arguments: list[str]) -> int:
    """Execute a run and return its exit status."""
    try:
        path, launcher = Path(arguments[0]).resolve(), arguments[1:]
        run = load(path)
    except (UserError, IndexError) as error:
        print(f"hpcbench.programs: {error}", file=sys.stderr)
        return 2
    begin, begin_time = time.monotonic(), time.time()
    _log(_start(run))
    _log(Configuration.of_program(run.content()))
    (path.parent / APPLIED).unlink(missing_ok=True)
    status, stopped = _launch(run, path, launcher, arguments[0], begin)
    if applied := _read_applied(path.parent / APPLIED):
        _log(applied)
    reader = feed_all(path.parent / "log.txt", run.program.log)
    log = reader.close()
    last = max((step for step in log.steps), default=None)
    ranks = reported(path.parent / RANKS) if run.interposed else []
    seconds = time.monotonic() - begin
    if ranks and last:
        for event in events(ranks, run.scheme, (1, last)):
            _log(event)
    if network := measure_network(run, reader, log, path.parent, begin_time):
        _log(network)
    if stopped:
        _log(End(time=format_now(), state="stopped", steps=last, seconds=seconds))
        return STOPPED_EXIT
    if status:
        return status  # the program's output contains the reason and determines the state of the run
    why = _find_fault(run, ranks, last)
    state = "failed" if why else "completed"
    _log(End(time=format_now(), state=state, steps=last, seconds=seconds, reason=why or None))
    return 1 if why else 0


def _read_applied(path: Path) -> AppliedScheme | None:
    try:
        return AppliedScheme.from_line(path.read_text(encoding="utf-8"))
    except OSError:  # no rank has started; the launcher's messages contain the reason
        return None


def _find_fault(run: ProgramRun, ranks: list[dict[str, object]], last: int | None) -> str:
    """Return why a successful program did not measure its scheme, or an empty string if the scheme was measured."""
    if last is None:
        form = run.program.log
        what = f"of {form}" if isinstance(form, str) else "that matches program.log.line"
        return f"the program's log has no step {what}: correct program.log in the study"
    if not run.interposed:
        return ""
    if len(ranks) < run.ranks:
        return (
            f"{len(ranks)} of {run.ranks} ranks have reported their traffic: install hpcbench for the program's "
            "interpreter, and make sure that the program uses torch.distributed"
        )
    rows = summed(ranks)
    if is_idle(rows, run.scheme):
        return f"{state_idle(run.scheme.name, rows)}: see `hpcbench run --dry`"
    return ""


def _launch(run: ProgramRun, path: Path, launcher: list[str], run_file: str, begin: float) -> tuple[int, bool]:
    """Run the launcher. Return the program's exit status, and whether the program was stopped.

    Ranks receive the run file's path as given in the job script, because host symlinks may not resolve in a container.
    """
    directory = path.parent
    for name in (RANKS, NETWORK):
        (directory / name).mkdir(exist_ok=True)
        for earlier in (directory / name).iterdir():
            earlier.unlink()
    meeting = f"{time.time_ns():x}"  # a new name per attempt, because a file server may serve a stale file
    command = [*launcher, "-u", "-m", "hpcbench.programs.rank", run_file, meeting]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    )
    assert process.stdout is not None
    stop = _Stop(process, directory / "stop")
    stop.start()
    try:
        _copy_lines(process.stdout, begin, _write)
    finally:
        status = process.wait()
        stop.over.set()
    (directory / f"meeting-{meeting}.json").unlink(missing_ok=True)
    return (128 - status if status < 0 else status), stop.stopped


class _Stop(threading.Thread):
    """Thread that stops the program when the job script creates the stop file."""

    def __init__(self, process: "subprocess.Popen[bytes]", asked: Path) -> None:
        super().__init__(daemon=True)
        self._process, self._asked = process, asked
        self.over = threading.Event()
        self.stopped = False

    def run(self) -> None:
        while not self.over.wait(_LOOK_S):
            if self._asked.exists():
                self.stopped = True
                self._process.send_signal(signal.SIGTERM)
                if not self.over.wait(_GRACE_S):
                    self._process.kill()
                return


def _copy_lines(stream: IO[bytes], begin: float, write: Callable[[bytes], None]) -> None:
    """Copy lines as they arrive, prefixed with the time in seconds. Add a newline if the last line is incomplete."""
    unfinished = b""
    while chunk := stream.read(1 << 16):
        at = format_stamp(time.monotonic() - begin)
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        if lines:
            write(b"".join(at + line + b"\n" for line in lines))
    if unfinished:
        write(format_stamp(time.monotonic() - begin) + unfinished + b"\n")


def _write(text: bytes) -> None:
    while text:
        text = text[os.write(1, text) :]


def _log(event: Event) -> None:
    _write(event.to_line().encode() + b"\n")


def _start(run: ProgramRun) -> Start:
    attempt = os.environ.get("HPCBENCH_ATTEMPT", "1")
    return Start(
        time=format_now(),
        schema=run.version,
        version=__version__,
        study=run.study,
        run=run.run,
        site=run.site,
        repeat=run.repeat,
        pairing=run.pairing,
        cell=run.cell,
        scheme=run.scheme.name,
        attempt=int(attempt) if attempt.isdecimal() else 1,
        resumed_from=None,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
