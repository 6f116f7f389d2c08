"""Virtual hosts with slow links between them, on one Linux machine, so that MPI can run over a slow network.

Each host has its own network, name, /dev/shm and System V IPC. Ranks of one host use shared memory; ranks of two hosts
use TCP over links that limit the rate at which each host sends and receives. The hosts live in their own process
namespace. Its first process is the network between them. It ends when the Python process that made the hosts closes
them or ends in any way. The kernel then ends all processes there, and removes networks and mounts, which are not
visible outside.
"""

import os
import select
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from hpcbench.errors import UserError
from hpcbench.testing.hosts.mpiexec import ONLY_THE_LINKS, mpiexec_line
from hpcbench.testing.hosts.rates import bits_per_second, bucket
from hpcbench.testing.hosts.requirements import compiler, unshare_line, why_not

__all__ = ["Hosts", "endless_input", "why_not"]

_HERE = Path(__file__).resolve().parent
_ENTERED = {"user": "user", "mount": "mnt", "net": "net", "uts": "uts", "ipc": "ipc", "pid": "pid_for_children"}
"""Options of nsenter, and the files that it enters. Python is in all the namespaces of unshare except the last."""
_MAX = 200
_START = 60.0
"""Seconds that the hosts may take to start, which usually takes half a second."""
_NO_INPUT = ("sh", "-c", 'exec "$@" </dev/null', "sh")
"""The shell line of a rank's command without input, because the input of mpiexec itself does not end while it runs."""


class Hosts:
    """Virtual hosts ``host1``, ``host2``, ... behind a switch that never blocks; a context manager.

    A link with a rate carries one packet at a time in each direction, and each packet takes its size over the rate. A
    pause leaves no credit. So a message takes the time of :func:`~hpcbench.testing.hosts.rates.seconds_on_link`, plus
    the latency of an empty message without a limit. Links without a rate are as fast as this machine can copy packets,
    about 10 Gbit/s.

    Several sets of hosts may exist at a time, because each sees only itself. Their file system is this machine's,
    except for ``/dev/shm`` and the files about the network.

    Parameters
    ----------
    count
        Number of hosts, 1 to 200.
    rate
        Limit of each host's link in each direction, in the form of ``tc``: ``"50mbit"``, ``"2gbit"``; None for no
        limit.
    delay_us
        Time that is added to each packet's way from host to host, in microseconds.

    Raises
    ------
    UserError
        An argument is wrong, or hosts cannot be made here: see :func:`why_not`.
    """

    def __init__(self, count: int, rate: str | None = None, delay_us: int = 0) -> None:
        if not 1 <= count <= _MAX:
            raise UserError(f"{count} hosts: give 1 to {_MAX}")
        if delay_us < 0:
            raise UserError(f"a delay of {delay_us} microseconds: give 0 or more")
        self.count = count
        bucket(rate)  # refuses a wrong rate here, not in the with statement
        self._rate = rate
        self._delay_us = delay_us
        self._one_command = threading.Lock()
        self._first: subprocess.Popen[str] | None = None
        self._namespaces: dict[str, int] = {}

    def __enter__(self) -> "Hosts":
        if reason := why_not():
            raise UserError(reason)
        with tempfile.TemporaryFile("w+") as log:
            try:
                self._start(log.fileno())
                self._set_limit()
                self._reach_the_last_host()
            except BaseException as failure:
                self._end()
                log.seek(0)
                if isinstance(failure, UserError):
                    raise UserError(f"{failure}: {' '.join(log.read().split()) or 'no reason was given'}") from None
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(
        self,
        command: Sequence[str],
        *,
        ranks: int,
        ranks_per_host: int | None = None,
        timeout: float = 300.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run an MPI program. Ranks fill the first host, then the second, and so on.

        Parameters
        ----------
        command
            Program and arguments of each rank. It must use the MPI of this Python's environment.
        ranks_per_host
            Ranks of each host; by default as few as possible.
        timeout
            Seconds after which all processes of the program are ended.
        environment
            Variables that are added to this process's own. ``OMP_NUM_THREADS`` is 1 unless it is among them, because
            all hosts share the cores of one machine.

        Raises
        ------
        subprocess.TimeoutExpired
            The program took too long. The exception has its output so far.
        UserError
            There are not enough hosts, or MPICH's ``mpiexec`` is missing.
        """
        argv, variables = self._start_ranks(command, ranks, ranks_per_host, environment)
        with endless_input() as waiting, self._command(1, argv, variables, subprocess.PIPE, waiting) as process:
            return self._outcome(process, argv, timeout)

    def launch(
        self,
        command: Sequence[str],
        *,
        ranks: int,
        ranks_per_host: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run an MPI program like :meth:`run`, without a time limit, and with this process's output.

        Returns
        -------
        int
            Exit status of the program.
        """
        argv, variables = self._start_ranks(command, ranks, ranks_per_host, environment)
        with endless_input() as waiting, self._command(1, argv, variables, None, waiting) as process:
            return process.wait()

    def _start_ranks(
        self,
        command: Sequence[str],
        ranks: int,
        ranks_per_host: int | None,
        environment: Mapping[str, str] | None,
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts the ranks, and its variables."""
        each = ranks_per_host or -(-ranks // self.count)
        if ranks < 1 or each < 1 or ranks > each * self.count:
            raise UserError(f"{ranks} ranks, {each} per host, do not fit on {self.count} hosts: give other numbers")
        launch = mpiexec_line([*_NO_INPUT, *command], ranks, each)
        return launch, {"OMP_NUM_THREADS": "1", **(environment or {}), **ONLY_THE_LINKS}

    def on(
        self, host: int, command: Sequence[str], *, timeout: float = 60.0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one process on a host, or, as host 0, on the switch; see :meth:`run`.

        Processes that it leaves on any of the hosts are ended with it. The command of a second thread waits for its
        turn.
        """
        with self._command(host, command, environment, subprocess.PIPE) as process:
            return self._outcome(process, command, timeout)

    def _outcome(
        self, process: subprocess.Popen[str], command: Sequence[str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Return output and end of the process.

        After the timeout it is ended, with all processes on the hosts.
        """
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._end_commands()
            output, errors = process.communicate()
            raise subprocess.TimeoutExpired(list(command), timeout, output, errors) from None
        return subprocess.CompletedProcess(list(command), process.returncode, output, errors)

    @contextmanager
    def _command(
        self,
        host: int,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        stream: int | None,
        stdin: int = subprocess.DEVNULL,
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a process on a host. `stream` takes both its outputs; None for those of this process."""
        inside = ["/dev/shm/on", f"host{host}", shlex.join(command)] if host else command
        with (
            self._one_command,
            subprocess.Popen(
                self._enter(inside),
                env={**os.environ, **(environment or {})},
                stdin=stdin,
                stdout=stream,
                stderr=stream,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches this process, which then ends all others
            ) as process,
        ):
            try:
                yield process
            finally:
                self._end_commands()

    def set_rate(self, rate: str | None) -> None:
        """Change the limit of every link from now on, also while a command runs; see :class:`Hosts`."""
        bucket(rate)
        self._rate = rate
        self._set_limit()

    def _start(self, log: int) -> None:
        """Start process 1, and wait until it says that the hosts are there."""
        up = ["bash", str(_HERE / "up.sh"), str(_HERE), str(self.count), str(self._delay_us), compiler()]
        self._first = subprocess.Popen(
            unshare_line(up),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        if not self._is_ready():
            raise UserError("the virtual hosts did not start")
        for kind, name in _ENTERED.items():
            if kind != "user" or os.geteuid() != 0:
                self._namespaces[kind] = os.open(f"/proc/{self._first.pid}/ns/{name}", os.O_RDONLY)
        # Or _end_commands would end every process of this machine.
        if os.path.samestat(os.fstat(self._namespaces["pid"]), Path("/proc/self/ns/pid").stat()):
            raise RuntimeError("the virtual hosts have no process namespace of their own")

    def _is_ready(self) -> bool:
        """Block until process 1 answers; whether it does."""
        output = self._first.stdout if self._first else None
        return bool(output and select.select([output], [], [], _START)[0] and output.readline() == "ready\n")

    def _set_limit(self) -> None:
        script = ["bash", str(_HERE / "limit.sh"), str(self.count), *bucket(self._rate)]
        done = subprocess.run(self._enter(script), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise UserError(f"the virtual hosts' links cannot be limited: {' '.join(done.stderr.split())}")
        self._shape_links(self._rate)

    def _shape_links(self, rate: str | None) -> None:
        """Give the wire its rate."""
        pipe = self._first.stdin if self._first else None
        if pipe:
            with suppress(BrokenPipeError):
                pipe.write(f"{bits_per_second(rate) if rate else 0:.0f}\n")
                pipe.flush()
        if not self._is_ready():
            raise UserError("the virtual hosts' links cannot be limited: their network has ended")

    def _reach_the_last_host(self) -> None:
        """Check that a packet reaches the last host. A refusal of its closed port is an answer."""
        knock = f"timeout 10 bash -c '</dev/tcp/host{self.count}/9' 2>&1 | grep -q refused"
        if self.on(1, ["bash", "-c", knock]).returncode:
            raise UserError("the virtual hosts do not reach each other")

    def _enter(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs within the hosts' namespaces, in the switch's network."""
        if not self._namespaces:
            raise UserError("the virtual hosts are not running: use Hosts in a with statement")
        options = [f"--{kind}=/proc/{os.getpid()}/fd/{file}" for kind, file in self._namespaces.items()]
        if "user" in self._namespaces:
            options.append("--preserve-credentials")
        return ["nsenter", *options, "--", "bash", "-c", 'cd -- "$0" && exec "$@"', str(Path.cwd()), *command]

    def _end_commands(self) -> None:
        """End all processes except process 1 and the caller, which the kernel spares."""
        kill = self._enter(["bash", "-c", "kill -KILL -1"])
        subprocess.run(kill, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True)

    def _end(self) -> None:
        if self._first is None:
            return
        with self._first:
            try:
                self._first.communicate(timeout=_START)  # closes its standard input
            except subprocess.TimeoutExpired:
                self._first.kill()
        with self._one_command:  # the command of a different thread has ended, because there are no hosts any more
            while self._namespaces:
                os.close(self._namespaces.popitem()[1])
        self._first = None


@contextmanager
def endless_input() -> Iterator[int]:
    """Open a standard input that neither gives data nor ends within the block.

    Hydra's mpiexec reports the end of its input to the first host. If the ranks end sooner, it writes to a closed
    connection, and SIGPIPE ends it before it has printed their output.
    """
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)
