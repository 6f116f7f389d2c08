"""A Slurm cluster of several nodes on one machine, with its own controller, nodes, clients and accounting.

Each node has its own host name, processes, ``/dev/shm`` and System V IPC, so MPI treats it as a separate machine. Files
and the network are shared with the machine. The nodes' CPUs, memory and GPUs need not exist: jobs are assigned GPU
indices (``CUDA_VISIBLE_DEVICES``), and their memory is not limited. A cluster has one directory and one process
namespace. The first process of the cluster ends when the Python process that created the cluster closes it or ends for
any reason. The kernel then kills every daemon and every job, and the directory is removed.

Slurm's time limits are whole minutes. Slurm checks time limits only every 30 seconds, and no setting changes this
interval.
:meth:`Cluster.end_time` ends a running job sooner. A warning signal is sent at the last check before it is due. With
``--time=1 --signal=B:USR1@50``, this is the first check after the start, so a job receives the signal within 30
seconds. If a test calls :meth:`Cluster.end_time` when the signal arrives, the job reaches its limit 30 seconds later.
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
from slurm_on_one_machine.config import CLUSTER, write
from slurm_on_one_machine.first import First, allowed, node_command
from slurm_on_one_machine.services import data_base, munge

_SLURM = ("slurmctld", "slurmd", "munged", "munge", "sbatch")
_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")
_MAX = 50
_LONGEST = 50
"""Longest path of temporary files. Slurm adds up to 57 characters, and a socket path is limited to 107."""
_PATIENCE = 60.0
"""Timeout in seconds for starting a cluster. Starting usually takes one second."""
_PARTITIONS: Mapping[str, Mapping[str, str | int]] = {"batch": {}, "urgent": {"PriorityTier": 2}}


def why_not(accounting: bool = True) -> str | None:
    """Return a one-line reason why no cluster can be created here, with the remedy, or None."""
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
    """A cluster of nodes ``n1``, ``n2``, ..., used as a context manager. Several clusters may exist at a time.

    Parameters
    ----------
    nodes
        Number of nodes, 1 to 50.
    cpus, memory, gpus
        CPUs, memory in MiB and GPUs that each node reports.
    accounting
        Whether to start a database, which ``sacct`` needs. Starting the database takes two seconds.
    partitions
        Name and options of each partition, in the syntax of slurm.conf. The first partition is the default. If omitted:
        ``batch`` and ``urgent``. Jobs in ``urgent`` preempt jobs in ``batch``, which are requeued.
    settings
        Lines of slurm.conf that replace :data:`~slurm_on_one_machine.config.SETTINGS`.

    Attributes
    ----------
    environment : dict of str to str
        Variables that clients need in addition to their own.
    directory : Path
        Directory of the cluster. ``log/`` contains a file for each daemon.

    Raises
    ------
    UserError
        An argument is invalid, no cluster can be created here (see :func:`why_not`), or the cluster does not start.
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
        """Run a Slurm client, or a program that calls Slurm clients.

        Parameters
        ----------
        environment
            Variables in addition to the variables of this process and of the cluster.
        check
            Whether an exit status other than 0 is an error.

        Raises
        ------
        UserError
            The command failed, and `check` is set. The message contains its output.
        subprocess.TimeoutExpired
            The command took too long. A client that cannot reach a daemon retries for minutes.
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
        """Return the fields of ``scontrol show job`` (``JobState``, ``Reason``, ...), or none for a forgotten job."""
        shown = self.run(["scontrol", "show", "job", job, "-o"]).stdout
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def wait_job(self, job: str, state: str, timeout: float = _PATIENCE) -> None:
        """Wait until a job is in a state, given as in ``scontrol``."""
        self._wait(f"job {job} is not {state}", lambda: self.job(job).get("JobState") == state, timeout)

    def end_time(self, job: str, seconds: int) -> None:
        """Move the end of a running job to `seconds` from now. Slurm ends the job up to 30 seconds after that time."""
        self.run(["scontrol", "update", f"jobid={job}", f"EndTime=now+{seconds}"], check=True)

    def wait_idle(self, timeout: float = _PATIENCE) -> None:
        """Wait until no jobs remain and every node is available."""
        self._wait("the nodes are not idle", self._idle, timeout)

    def stop_controller(self) -> None:
        """Stop slurmctld. Jobs continue, but clients receive no response."""
        self._first.stop("slurmctld")

    def start_controller(self) -> None:
        """Start slurmctld with its saved state."""
        self._daemon("slurmctld", ["slurmctld", "-D"], ["scontrol", "ping"])

    def stop_accounting(self) -> None:
        """Stop slurmdbd. ``sacct`` receives no response, and the controller queues its messages."""
        self._first.stop("slurmdbd")

    def start_accounting(self) -> None:
        """Start slurmdbd."""
        command = ["env", f"MYSQL_UNIX_PORT={self.directory}/db/socket", "slurmdbd", "-D"]
        self._daemon("slurmdbd", command, ["sacctmgr", "-n", "list", "cluster"])

    def node_kill(self, node: str) -> None:
        """Crash a node by killing slurmd and all job processes on it.

        The controller detects the crash after 15 seconds.
        """
        self._first.crash(node)
        self._crashed.add(node)

    def node_down(self, node: str, reason: str = "test") -> None:
        """Take a node down for repair, as an administrator does. The jobs on the node are killed."""
        self.run(["scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}"], check=True)

    def node_up(self, node: str) -> None:
        """Restore a node that crashed or was taken down, and wait until it accepts jobs."""
        if node in self._crashed:
            self._crashed.remove(node)
            self._first.start(node, node_command(node))
        else:
            self.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=True)
        self._wait(f"{node} does not come back", lambda: self.node_state(node) in ("IDLE", "MIXED", "ALLOCATED"))

    def node_state(self, node: str) -> str:
        """Return the state of a node according to the controller: ``IDLE``, ``MIXED``, ``DOWN+NOT_RESPONDING``, ...

        ``sinfo`` may lag behind.
        """
        shown = self.run(["scontrol", "show", "node", node, "-o"], check=True).stdout
        return shown.split(" State=")[1].split()[0]

    @property
    def _first(self) -> First:
        if self._running is None:
            raise UserError("the Slurm cluster is not running: use Cluster in a with statement")
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
        """Start a daemon, and wait until a client of the daemon succeeds."""
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
        """Return the end of each daemon's output, joined to one line."""
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
    """Create the files and directories of a cluster."""
    for name in ("etc", "log", "run", "state", "munge", "gpu", "db"):
        (directory / name).mkdir()
    for node in nodes:
        (directory / "spool" / node).mkdir(parents=True)
        (directory / "tmp" / node).mkdir(parents=True)
    for k in range(gpus):  # like /dev/null
        os.mknod(directory / "gpu" / f"fake{k}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))


def _free_ports(count: int) -> list[int]:
    """Return unused ports, below the range that the kernel assigns to clients."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            ports.add(port)
    return list(ports)
