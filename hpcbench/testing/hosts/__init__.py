"""Virtual hosts with slow links on a single Linux machine, for running MPI over a slow network.

Each host has its own network, name, /dev/shm, and System V IPC. Ranks on the same host communicate through shared
memory. Ranks on different hosts use TCP over links that limit each host's send and receive rates. The hosts run in a
separate process namespace. The first process of this namespace implements the network, and ends when the Python process
that created the hosts closes them or exits in any way. The kernel then kills all remaining processes in the namespace,
and removes its networks and mounts, which are invisible outside.
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
"""Namespaces to enter: option of nsenter, and name of the namespace file."""
_MAX = 200
_START = 60.0
"""Maximum startup time of the hosts in seconds. Startup usually takes half a second."""
_NO_INPUT = ("sh", "-c", 'exec "$@" </dev/null', "sh")
"""Shell command that runs a rank with an empty stdin, because mpiexec's own stdin stays open during the run."""


class Hosts:
    """Context manager for virtual hosts ``host1``, ``host2``, ... behind a non-blocking switch.

    A link with a rate limit transfers one packet at a time in each direction. The transfer time of a packet is its
    size divided by the rate, and unused capacity does not accumulate. A message therefore takes the time given by
    :func:`~hpcbench.testing.hosts.rates.seconds_on_link`, plus the latency of an empty message on an unlimited link.
    Links without a limit are as fast as this machine can copy packets, about 10 Gbit/s.

    Several sets of hosts can exist at the same time, because they are isolated. Hosts share this machine's file
    system, except for ``/dev/shm`` and the network configuration files.

    Parameters
    ----------
    count
        Number of hosts, 1 to 200.
    rate
        Rate limit of each host's link in each direction, in the format of ``tc``, such as ``"50mbit"`` or ``"2gbit"``.
        None means no limit.
    delay_us
        Additional latency of each packet between hosts, in microseconds.

    Raises
    ------
    UserError
        An argument is invalid, or this machine does not support virtual hosts (see :func:`why_not`).
    """

    def __init__(self, count: int, rate: str | None = None, delay_us: int = 0) -> None:
        if not 1 <= count <= _MAX:
            raise UserError(f"{count} hosts: give a number from 1 to {_MAX}")
        if delay_us < 0:
            raise UserError(f"delay of {delay_us} microseconds: give 0 or more")
        self.count = count
        bucket(rate)  # refuse an invalid rate here, not in the with statement
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
        """Run an MPI program. Ranks are placed on the first host, then on the second, and so on.

        Parameters
        ----------
        command
            Program and arguments of each rank. The program must use the MPI library of this Python environment.
        ranks_per_host
            Number of ranks per host. The default is the smallest possible number.
        timeout
            Seconds after which all processes of the program are killed.
        environment
            Environment variables in addition to those of this process. By default ``OMP_NUM_THREADS`` is 1, because all
            hosts share the cores of one machine.

        Raises
        ------
        subprocess.TimeoutExpired
            The program exceeded the timeout. The exception contains the output so far.
        UserError
            There are too few hosts, or MPICH's ``mpiexec`` is missing.
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
        """Run an MPI program like :meth:`run`, but without a timeout and with the output streams of this process.

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
        """Return the launch command and its environment variables."""
        each = ranks_per_host or -(-ranks // self.count)
        if ranks < 1 or each < 1 or ranks > each * self.count:
            raise UserError(
                f"{ranks} ranks, {each} per host, do not fit on {self.count} hosts: give fewer ranks, or more ranks "
                "per host"
            )
        launch = mpiexec_line([*_NO_INPUT, *command], ranks, each)
        return launch, {"OMP_NUM_THREADS": "1", **(environment or {}), **ONLY_THE_LINKS}

    def on(
        self, host: int, command: Sequence[str], *, timeout: float = 60.0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a process on a host, or on the switch if `host` is 0. See :meth:`run`.

        All processes that this process leaves behind on any host are killed. Commands from different threads run one at
        a time.
        """
        with self._command(host, command, environment, subprocess.PIPE) as process:
            return self._outcome(process, command, timeout)

    def _outcome(
        self, process: subprocess.Popen[str], command: Sequence[str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Return the output and exit status of a process.

        On timeout, all processes on the hosts are killed.
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
        """Run a process on a host. Both stdout and stderr are redirected to `stream` unless it is None."""
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
                start_new_session=True,  # Ctrl-C reaches only this process, which then kills all others
            ) as process,
        ):
            try:
                yield process
            finally:
                self._end_commands()

    def set_rate(self, rate: str | None) -> None:
        """Change the rate limit of every link, even while a command is running. See :class:`Hosts`."""
        bucket(rate)
        self._rate = rate
        self._set_limit()

    def _start(self, log: int) -> None:
        """Start process 1, and wait until it reports that the hosts are ready."""
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
        # Otherwise _end_commands would kill every process on this machine.
        if os.path.samestat(os.fstat(self._namespaces["pid"]), Path("/proc/self/ns/pid").stat()):
            raise RuntimeError("the virtual hosts do not have their own process namespace")

    def _is_ready(self) -> bool:
        """Block until process 1 responds, and return whether it reported that the hosts are ready."""
        output = self._first.stdout if self._first else None
        return bool(output and select.select([output], [], [], _START)[0] and output.readline() == "ready\n")

    def _set_limit(self) -> None:
        script = ["bash", str(_HERE / "limit.sh"), str(self.count), *bucket(self._rate)]
        done = subprocess.run(self._enter(script), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise UserError(f"the virtual hosts' links cannot be limited: {' '.join(done.stderr.split())}")
        self._shape_links(self._rate)

    def _shape_links(self, rate: str | None) -> None:
        """Send the rate to the process that shapes the links."""
        pipe = self._first.stdin if self._first else None
        if pipe:
            with suppress(BrokenPipeError):
                pipe.write(f"{bits_per_second(rate) if rate else 0:.0f}\n")
                pipe.flush()
        if not self._is_ready():
            raise UserError("the virtual hosts' links cannot be limited: the process of their network has ended")

    def _reach_the_last_host(self) -> None:
        """Check that packets reach the last host. A refused connection to a closed port counts as a response."""
        knock = f"timeout 10 bash -c '</dev/tcp/host{self.count}/9' 2>&1 | grep -q refused"
        if self.on(1, ["bash", "-c", knock]).returncode:
            raise UserError("the virtual hosts cannot reach each other")

    def _enter(self, command: Sequence[str]) -> list[str]:
        """Wrap a command to run inside the hosts' namespaces, in the network of the switch."""
        if not self._namespaces:
            raise UserError("the virtual hosts are not running: use Hosts in a with statement")
        options = [f"--{kind}=/proc/{os.getpid()}/fd/{file}" for kind, file in self._namespaces.items()]
        if "user" in self._namespaces:
            options.append("--preserve-credentials")
        return ["nsenter", *options, "--", "bash", "-c", 'cd -- "$0" && exec "$@"', str(Path.cwd()), *command]

    def _end_commands(self) -> None:
        """Kill all processes except process 1 and the caller, which the kernel spares."""
        kill = self._enter(["bash", "-c", "kill -KILL -1"])
        subprocess.run(kill, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True)

    def _end(self) -> None:
        if self._first is None:
            return
        with self._first:
            try:
                self._first.communicate(timeout=_START)  # closes stdin of process 1
            except subprocess.TimeoutExpired:
                self._first.kill()
        with self._one_command:  # a command of another thread has ended together with the hosts
            while self._namespaces:
                os.close(self._namespaces.popitem()[1])
        self._first = None


@contextmanager
def endless_input() -> Iterator[int]:
    """Open an input stream that provides no data and stays open until the end of the block.

    Hydra's mpiexec forwards the end of stdin to the first host. If the ranks have already ended, mpiexec writes to a
    closed connection, and SIGPIPE kills it before it has printed all output.
    """
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)
