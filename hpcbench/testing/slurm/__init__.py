"""A Slurm cluster of several nodes on one machine: its own controller, nodes and clients, and accounting if wanted.

Each node has a host name, processes, ``/dev/shm`` and System V IPC of its own, so MPI takes it for a machine; files and
network are this machine's. CPUs, memory and GPUs that nodes claim need not exist: jobs are told numbers of GPUs
(``CUDA_VISIBLE_DEVICES``) and not held to their memory. All of a cluster lies in one directory and process namespace,
whose first process ends when the Python that made it closes it or ends in whatever way; the kernel then ends every
daemon and every job, and the directory goes with them.

Time limits are whole minutes in Slurm, and it looks at them every 30 seconds only, which no setting changes. A running
job's limit can be made to end sooner: :meth:`Cluster.end_time`. A signal ahead of the limit is sent at the first look
less than 30 seconds before it is due: with ``--time=1 --signal=B:USR1@50`` at the first look after the start. So a job
sees the signal within 30 seconds, and the limit 30 seconds later if its end is set when the signal has come.
"""

import contextlib
import os
import random
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from hpcbench.errors import UserError
from hpcbench.testing.slurm.config import CLUSTER, write
from hpcbench.testing.slurm.first import First, allowed, node_command
from hpcbench.testing.slurm.services import data_base, munge

_SLURM = ("slurmctld", "slurmd", "munged", "munge", "sbatch")
_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")
_MAX = 50
_LONGEST = 50
"""Characters of the path of temporary files: Slurm adds up to 57, and a socket's name has at most 107."""
_PATIENCE = 60.0
"""Seconds that anything may take to come up, which usually is one."""
_PARTITIONS: Mapping[str, Mapping[str, str | int]] = {"batch": {}, "urgent": {"PriorityTier": 2}}


def why_not(accounting: bool = True) -> str | None:
    """What keeps a cluster from being made here, and the remedy, in one line; None if nothing does."""
    if os.geteuid() != 0:
        return "a Slurm cluster of one machine needs root: run as root, or in a container"
    missing = [tool for tool in (*_SLURM, *(_ACCOUNTING if accounting else ())) if not shutil.which(tool)]
    if missing:
        packages = "slurm-wlm munge" + (" slurmdbd mariadb-server" if accounting else "")
        return (
            f"a Slurm cluster of one machine needs {', '.join(missing)}: "
            f"apt-get install --no-install-recommends {packages}"
        )
    if not allowed():
        return (
            "a Slurm cluster of one machine needs namespaces, which are denied here: run a container with --privileged"
        )
    return None


class Cluster:
    """Nodes ``n1``, ``n2``, ... under a controller; a context manager. Several may exist at a time.

    Parameters
    ----------
    nodes
        Their number, 1 to 50.
    cpus, memory, gpus
        What each node claims; memory in MiB.
    accounting
        Whether there is a data base, and so ``sacct``. It takes two seconds.
    partitions
        Name and options, as slurm.conf spells them; the first is the default. By default ``batch`` and ``urgent``, for
        whose jobs those of ``batch`` are put back into the queue.
    settings
        Other lines of slurm.conf, in place of :data:`~hpcbench.testing.slurm.config.SETTINGS`.

    Attributes
    ----------
    environment : dict of str to str
        What clients need beside their own environment.
    directory : Path
        Where it lies; ``log/`` has a file a daemon.

    Raises
    ------
    UserError
        An argument is wrong, a cluster cannot be made here (see :func:`why_not`), or it does not come up.
    """

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpus: int = 8,
        memory: int = 16_000,
        gpus: int = 4,
        accounting: bool = False,
        partitions: Mapping[str, Mapping[str, str | int]] = _PARTITIONS,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        if not 1 <= nodes <= _MAX:
            raise UserError(f"a cluster of {nodes} nodes: give 1 to {_MAX}")
        self.nodes = tuple(f"n{k + 1}" for k in range(nodes))
        self.environment: dict[str, str] = {}
        self._claims = {"cpus": cpus, "memory": memory, "gpus": gpus}
        self._accounting = accounting
        self._partitions = partitions
        self._settings = settings or {}
        self._crashed: set[str] = set()
        self._running: First | None = None

    def __enter__(self) -> "Cluster":
        if reason := why_not(self._accounting):
            raise UserError(reason)
        self.directory = _make_directory()
        try:
            self._start()
        except BaseException:
            self._end()
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
        timeout: float = 60.0,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a client, or a program that calls one.

        Parameters
        ----------
        environment
            Variables beside this process's own and those of the cluster.
        check
            Whether an exit status other than 0 is an error.

        Raises
        ------
        UserError
            With what the command said, if `check`.
        subprocess.TimeoutExpired
            A client that reaches no daemon tries for minutes.
        """
        done = subprocess.run(
            list(command),
            env={**os.environ, **self.environment, **(environment or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode:
            raise UserError(f"{shlex.join(command)}: {' '.join(done.stderr.split())}")
        return done

    def job(self, job: str) -> dict[str, str]:
        """What ``scontrol show job`` says: ``JobState``, ``Reason``, ``Restarts``, ...; nothing of a forgotten job."""
        shown = self.run(["scontrol", "show", "job", job, "-o"]).stdout
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def wait_job(self, job: str, state: str, timeout: float = _PATIENCE) -> None:
        """Wait until a job is in a state, spelled as ``scontrol`` does."""
        self._wait(f"job {job} is not {state}", lambda: self.job(job).get("JobState") == state, timeout)

    def end_time(self, job: str, seconds: int) -> None:
        """Let a running job's time limit end in so many seconds. It is ended up to 30 seconds after that."""
        self.run(["scontrol", "update", f"jobid={job}", f"EndTime=now+{seconds}"], check=True)

    def wait_idle(self, timeout: float = _PATIENCE) -> None:
        """Wait until no job is left and every node takes one."""
        self._wait("the nodes are not idle", self._idle, timeout)

    def stop_controller(self) -> None:
        """Stop slurmctld; jobs go on, and clients find nobody."""
        self._first.stop("slurmctld")

    def start_controller(self) -> None:
        """Start slurmctld, which knows what it knew when it was stopped."""
        self._daemon("slurmctld", ["slurmctld", "-D"], ["scontrol", "ping"])

    def stop_accounting(self) -> None:
        """Stop slurmdbd: ``sacct`` finds nobody, and the controller keeps what it has to tell."""
        self._first.stop("slurmdbd")

    def start_accounting(self) -> None:
        """Start slurmdbd."""
        command = ["env", f"MYSQL_UNIX_PORT={self.directory}/db/socket", "slurmdbd", "-D"]
        self._daemon("slurmdbd", command, ["sacctmgr", "-n", "list", "cluster"])

    def node_kill(self, node: str) -> None:
        """Let a node crash: slurmd and all processes of jobs there are gone. The controller misses it in 15 seconds."""
        self._first.crash(node)
        self._crashed.add(node)

    def node_down(self, node: str, reason: str = "test") -> None:
        """What an administrator does to a node that is to be repaired; what runs there is ended."""
        self.run(["scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}"], check=True)

    def node_up(self, node: str) -> None:
        """Bring a node back that crashed or was taken down, and wait until it takes jobs."""
        if node in self._crashed:
            self._crashed.remove(node)
            self._first.start(node, node_command(node))
        else:
            self.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=True)
        self._wait(f"{node} does not come back", lambda: self.node_state(node) in ("IDLE", "MIXED", "ALLOCATED"))

    def node_state(self, node: str) -> str:
        """As the controller has it: ``IDLE``, ``MIXED``, ``DOWN+NOT_RESPONDING``, ...; ``sinfo`` may lag behind."""
        shown = self.run(["scontrol", "show", "node", node, "-o"], check=True).stdout
        return shown.split(" State=")[1].split()[0]

    @property
    def _first(self) -> First:
        if self._running is None:
            raise UserError("there is no Slurm cluster yet, or no more: use Cluster in a with statement")
        return self._running

    def _start(self) -> None:
        """Start process 1 and the daemons."""
        _lay_out(self.directory, self.nodes, self._claims["gpus"])
        write(
            self.directory,
            _free_ports(2 + len(self.nodes)),
            nodes=self.nodes,
            accounting=self._accounting,
            partitions=self._partitions,
            settings=self._settings,
            **self._claims,
        )
        self.environment = {"SLURM_CONF": f"{self.directory}/etc/slurm.conf"}
        self._running = First(self.directory, self.environment)
        self._daemon("munged", *munge(self.directory))
        if self._accounting:
            self._daemon("mariadbd", *data_base(self.directory))
            self.start_accounting()
            self.run(["sacctmgr", "-i", "add", "cluster", CLUSTER], check=True)
        self.start_controller()
        for node in self.nodes:
            self._first.start(node, node_command(node))
        self.wait_idle()

    def _daemon(self, name: str, command: Sequence[str], question: Sequence[str]) -> None:
        """Start a daemon, and wait until a client of it succeeds."""
        self._first.start(name, command)
        self._wait(f"{name} does not answer", lambda: self._answers(name, question))

    def _answers(self, name: str, question: Sequence[str]) -> bool:
        if self.run(question).returncode == 0:
            return True
        if not self._first.alive(name):
            raise UserError(f"the Slurm cluster: {name} ended at once. {self._logs()}")
        return False

    def _idle(self) -> bool:
        jobs = self.run(["squeue", "-h", "-o", "%A"], check=True).stdout
        return not jobs.split() and all(self.node_state(node) == "IDLE" for node in self.nodes)

    def _wait(self, failure: str, succeeds: Callable[[], bool], timeout: float = _PATIENCE) -> None:
        end = time.monotonic() + timeout
        while not succeeds():
            if time.monotonic() > end:
                raise UserError(f"the Slurm cluster: {failure} in {timeout:.0f} s. {self._logs()}")
            time.sleep(0.05)

    def _logs(self) -> str:
        """The end of what each daemon said, in one line."""
        logs = sorted((self.directory / "log").iterdir())
        return " ".join(" ".join(f"{log.name}: {log.read_text(errors='replace')[-500:]}" for log in logs).split())

    def _end(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None
        shutil.rmtree(self.directory, ignore_errors=True)  # if process 1 did not come up


def _make_directory() -> Path:
    place = tempfile.gettempdir()
    if len(place) > _LONGEST:
        raise UserError(f"a Slurm cluster below {place}: sockets have short names, so set TMPDIR to a shorter path")
    return Path(tempfile.mkdtemp(prefix="hpcbench-slurm-"))


def _lay_out(directory: Path, nodes: Sequence[str], gpus: int) -> None:
    """Make what is below the directory of a cluster."""
    for name in ("etc", "log", "run", "state", "munge", "gpu", "db"):
        (directory / name).mkdir()
    for node in nodes:
        (directory / "spool" / node).mkdir(parents=True)
        (directory / "tmp" / node).mkdir(parents=True)
    for k in range(gpus):  # like /dev/null
        os.mknod(directory / "gpu" / f"fake{k}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, below those that the kernel gives to whoever calls."""
    found: set[int] = set()
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            found.add(port)
    return list(found)
