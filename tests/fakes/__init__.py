"""Fakes of LSF and Flux: programs that check their arguments and run jobs on this machine.

The fakes are made for hpcbench's tests, and for users who want to try a site file before they have an account. A real
scheduler may refuse commands that the fakes accept, and accept commands that they refuse.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fakes.programs import PROGRAMS
from fakes.state import ALIVE, ENDED, FIND_FAKES, Config, Job, Store
from hpcbench.errors import UserError

FAULTS: dict[str, tuple[str, ...]] = {
    "banner": ("program", "lines"),
    "noise": ("program", "lines"),
    "fail": ("program", "text", "status"),
    "status": ("program", "status"),
    "empty": ("program",),
    "mute": ("program", "text"),
    "slow": ("program", "seconds"),
    "hang": ("program", "seconds"),
    "resend": ("program", "copies", "seconds"),
    "state": ("job", "word"),
    "zombie": ("job",),
    "clean": ("job",),
    "lose": ("job",),
    "no_exit_code": ("job",),
}
"""Kinds of faults, with the arguments that each kind requires."""
_KILLS = {"host_failure": "host", "preempt": "preempt", "out_of_memory": "memory", "external_kill": "signal"}
_STEPS = {"suspend": ("SIGSTOP", "stopped by the system"), "resume": ("SIGCONT", "running")}


@dataclass(frozen=True)
class Called:
    """A call of one of the programs."""

    program: str
    argv: list[str]
    stdin: bytes | None
    cwd: str
    environment: dict[str, str]


class Fake:
    """A fake scheduler, used as a context manager. On exit, all jobs of the fake are killed.

    Parameters
    ----------
    directory
        State directory, which must not exist yet. The default is a temporary directory.
    options
        Fields of `fakes.state.Config`.

    Attributes
    ----------
    environment
        Environment of this process, with the fake programs first on PATH.
    """

    system = ""

    def __init__(self, *, directory: Path | None = None, **options: Any) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="hpcbench-fake-")
            directory = Path(self._temporary.name) / "state"
        try:
            self.config = Config(system=self.system, directory=str(directory.absolute()), **options)
        except TypeError as error:
            raise UserError(f"fake of {self.system}: {error}") from None
        self._store = Store.create(self.config)
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = self._install()

    def __enter__(self) -> "Fake":
        entry = f"{FIND_FAKES}; from fakes.dispatcher import main; main()"
        with (self._store.directory / "dispatcher.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", entry, self.config.directory],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.wait(timeout=60)
        if self._temporary:
            self._temporary.cleanup()

    def order(
        self, kind: str, *, program: str | None = None, job: str | None = None, times: int | None = None, **what: Any
    ) -> None:
        """Inject a fault.

        Parameters
        ----------
        kind
            One of `FAULTS`, which persist, or a single event of a job: ``host_failure``, ``preempt``,
            ``out_of_memory``, ``external_kill``, ``suspend``, ``resume``.
        program, job
            The affected calls of a program, or job (``12``, ``12[3]``, or ``*`` for all).
        times
            Number of times that the fault happens. By default, the fault persists until it is cleared.
        what
            Additional arguments for this kind of fault.
        """
        if kind in _KILLS or kind in _STEPS:
            self._at_once(kind, str(job))
            return
        fault = {"kind": kind, "program": program, "job": job, "times": times, **what}
        lacking = [name for name in FAULTS.get(kind, ()) if fault.get(name) is None]
        if kind not in FAULTS or lacking:
            raise UserError(f"fault {kind!r}: say {', '.join(lacking) or 'one of ' + ', '.join(FAULTS)}")
        with self._store.change() as state:
            state.faults.append(fault)

    def withdraw(self, kind: str) -> None:
        """Clear all faults of this kind."""
        with self._store.change() as state:
            state.faults = [fault for fault in state.faults if fault["kind"] != kind]

    @property
    def jobs(self) -> list[Job]:
        """All submitted jobs, in their current state."""
        return self._store.read().jobs

    @property
    def calls(self) -> list[Called]:
        """All calls of the programs, in order."""
        calls: list[Called] = []
        for path in sorted((self._store.directory / "calls").glob("*.json")):
            data = json.loads(path.read_text(encoding="ascii"))
            stdin = path.with_suffix(".stdin")
            data["stdin"] = stdin.read_bytes() if stdin.exists() else None
            calls.append(Called(**data))
        return calls

    def run(self, *argv: str, stdin: bytes | None = None, **keywords: Any) -> "subprocess.CompletedProcess[str]":
        """Call one of the programs, or any other program with the fakes on PATH, and capture stdout and stderr."""
        done = subprocess.run(
            list(argv),
            input=stdin if stdin is not None else b"",
            capture_output=True,
            **{"env": self.environment, "timeout": 60, **keywords},
        )
        decoded = [text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr)]
        return subprocess.CompletedProcess(list(argv), done.returncode, *decoded)

    def wait(self, seconds: float = 60.0) -> list[Job]:
        """Wait until all jobs have ended, and return them.

        Raises
        ------
        TimeoutError
            Some jobs have not ended in time.
        """
        deadline = time.monotonic() + seconds
        while any(job.state not in ENDED for job in self.jobs):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not ended in {seconds} s: {[job.key for job in self.jobs if job.state not in ENDED]}"
                )
            time.sleep(0.05)
        return self.jobs

    def wait_for(self, key: str, *states: str, seconds: float = 60.0) -> Job:
        """Wait until the job is in one of these states, and return the job."""
        deadline = time.monotonic() + seconds
        while True:
            reached = next((job for job in self.jobs if job.key == key and job.state in states), None)
            if reached:
                return reached
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {key} is in none of {states}: {[(job.key, job.state) for job in self.jobs]}")
            time.sleep(0.05)

    def _at_once(self, kind: str, key: str) -> None:
        with self._store.change() as state:
            jobs = [job for job in state.jobs if key in ("*", str(job.id), job.key) and job.state in ALIVE]
            if not jobs:
                raise UserError(f"{kind}: job {key} does not run")
            for job in jobs:
                if kind in _KILLS:
                    job.plan = [(time.time(), int(signal.SIGKILL), _KILLS[kind])]
                else:
                    name, job.state = _STEPS[kind]
                    job.plan.insert(0, (time.time(), int(signal.Signals[name]), ""))

    def _install(self) -> dict[str, str]:
        """Install the programs in a directory for PATH."""
        programs = self._store.directory / "bin"
        programs.mkdir()
        entry = self._store.directory / "fake.py"
        directory = f"os.environ.get('HPCBENCH_FAKE_DIR', {self.config.directory!r})"
        begin = f"import os\nfrom fakes.programs import main\nsys.exit(main({directory}))\n"
        entry.write_text(f"{FIND_FAKES}\n{begin}", encoding="utf-8")
        hosts = f"{FIND_FAKES}; from fakes.hosts import main; main()"
        self._executable(self._store.directory / "host", shlex.join([sys.executable, "-E", "-S", "-c", hosts]))
        for name in PROGRAMS[self.system]:
            self._executable(programs / name, shlex.join([sys.executable, "-E", "-S", str(entry), name]))
        return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}

    def _executable(self, path: Path, line: str) -> None:
        header = f"# hpcbench's fake of {path.name}: it is not the program of a real scheduler."
        path.write_text(f'#!/bin/sh\n{header}\nexec {line} "$@"\n', encoding="utf-8")
        path.chmod(0o755)


class FakeLSF(Fake):
    """A fake of LSF. The flavours are csm, lsf, old and lsf-like: see `fakes.lsf.flavours`.

    Examples
    --------
    >>> with FakeLSF(nodes=2, minute=1.0) as lsf:
    ...     print(lsf.run("bsub", "-nnodes", "2", "true").stdout, end="")
    Job <1> is submitted to default queue <normal>.
    """

    system = "lsf"

    def __init__(self, **options: Any) -> None:
        from fakes.lsf.flavours import FLAVOURS

        options = {"flavour": "csm", "queues": {"normal": {}, "debug": {"max_minutes": 120.0}}, **options}
        if options["flavour"] not in FLAVOURS:
            raise UserError(f"flavour {options['flavour']!r} of LSF: known are {', '.join(FLAVOURS)}")
        super().__init__(**options)


class FakeFlux(Fake):
    """A fake of Flux."""

    system = "flux"

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"queues": {"batch": {}, "debug": {"max_minutes": 60.0}}, "terminate_interval": 5.0, **options}
        )
