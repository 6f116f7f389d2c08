"""A Slurm cluster of several nodes on one machine: real controller, real nodes, real ``sbatch``, ``srun`` and ``sacct``.

Each node has a host name, processes, ``/dev/shm`` and System V IPC of its own, so MPI takes it for a machine; files and
the network are this machine's. The CPUs, the memory and the GPUs that nodes claim need not exist: jobs are numbered GPUs
(``CUDA_VISIBLE_DEVICES``) and not held to their memory. All of a cluster lies in one directory and in a process namespace
of its own, whose first process ends when the Python that made it closes it or ends in whatever way; the kernel then ends
every daemon and every job, and the directory goes with them.

Time limits are minutes in Slurm, and it looks at them every 30 seconds only. A job that shall run into its limit is best
given one with ``--time=1`` and then an end: :meth:`Cluster.end_time`.
"""

import contextlib
import os
import random
import re
import select
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

_HERE = Path(__file__).resolve().parent
_NAMESPACES = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
_SLURM = ("slurmctld", "slurmd", "munged", "munge", "sbatch")
_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")
_MAX = 50
_START = 60.0
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
    if subprocess.run([*_NAMESPACES, "true"], capture_output=True, stdin=subprocess.DEVNULL).returncode:
        return "a Slurm cluster of one machine needs namespaces, which are denied here: run a container with --privileged"
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
        Name and options, as slurm.conf spells them; the first is the default. By default ``batch``, and ``urgent``, whose
        jobs preempt those of ``batch``: these are requeued.
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
        self._first: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Cluster":
        if reason := why_not(self._accounting):
            raise UserError(reason)
        self.directory = Path(tempfile.mkdtemp(prefix="hpcbench-slurm-"))
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

    def stop_controller(self) -> None:
        """Stop slurmctld; jobs go on, and clients find nobody."""
        self._tell("stop slurmctld")

    def start_controller(self) -> None:
        """Start slurmctld, which knows what it knew when it was stopped."""
        self._daemon("slurmctld", ["slurmctld", "-D"], ["scontrol", "ping"])

    def stop_accounting(self) -> None:
        """Stop slurmdbd: ``sacct`` finds nobody, and the controller keeps what it has to tell."""
        self._tell("stop slurmdbd")

    def start_accounting(self) -> None:
        """Start slurmdbd."""
        command = ["env", f"MYSQL_UNIX_PORT={self.directory}/db/socket", "slurmdbd", "-D"]
        self._daemon("slurmdbd", command, ["sacctmgr", "-n", "list", "cluster"])

    def node_kill(self, node: str) -> None:
        """Let a node crash: slurmd and all processes of jobs there are gone. The controller misses it in seconds."""
        self._tell(f"crash {node}")
        self._crashed.add(node)

    def node_down(self, node: str, reason: str = "test") -> None:
        """What an administrator does to a node that is to be repaired; what runs there is ended."""
        self.run(["scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}"], check=True)

    def node_up(self, node: str) -> None:
        """Bring a node back that crashed or was taken down, and wait until it takes jobs."""
        if node in self._crashed:
            self._crashed.remove(node)
            self._node(node)
        else:
            self.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=True)
        self._wait(f"{node} does not come back", lambda: self.node_state(node) in ("IDLE", "MIXED", "ALLOCATED"))

    def node_state(self, node: str) -> str:
        """As the controller has it: ``IDLE``, ``MIXED``, ``DOWN+NOT_RESPONDING``, ...; ``sinfo`` may show an older one."""
        shown = self.run(["scontrol", "show", "node", node, "-o"], check=True).stdout
        return re.findall(r" State=(\S+)", shown)[0]

    def end_time(self, job: str, seconds: int) -> None:
        """Let a running job's time limit end in so many seconds; Slurm notices within 30 seconds after that."""
        self.run(["scontrol", "update", f"jobid={job}", f"EndTime=now+{seconds}"], check=True)

    def wait_idle(self, timeout: float = _START) -> None:
        """Wait until no job is left and every node takes one."""
        self._wait("the nodes are not idle", self._idle, timeout)

    def _start(self) -> None:
        """Start process 1 and the daemons."""
        directory = self.directory
        for name in ("etc", "log", "run", "state", "munge", "gpu", "db"):
            (directory / name).mkdir()
        for node in self.nodes:
            (directory / "spool" / node).mkdir(parents=True)
            (directory / "tmp" / node).mkdir(parents=True)
        for k in range(self._claims["gpus"]):
            os.mknod(directory / "gpu" / f"fake{k}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        write(
            directory,
            _free_ports(2 + len(self.nodes)),
            nodes=len(self.nodes),
            accounting=self._accounting,
            partitions=self._partitions,
            settings=self._settings,
            **self._claims,
        )
        self.environment = {"SLURM_CONF": f"{directory}/etc/slurm.conf"}
        self._first = subprocess.Popen(
            [*_NAMESPACES, "bash", f"{_HERE}/first.sh", str(directory)],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us, who then end all of it
        )
        self._answer("ready")
        self._munge()
        if self._accounting:
            self._data_base()
            self.start_accounting()
            self.run(["sacctmgr", "-i", "add", "cluster", CLUSTER], check=True)
        self.start_controller()
        for node in self.nodes:
            self._node(node)
        self.wait_idle()

    def _munge(self) -> None:
        place = self.directory / "munge"
        (place / "key").touch(mode=0o600)
        (place / "key").write_bytes(os.urandom(128))
        (place / "key").chmod(0o400)
        command = ["munged", "--foreground", "--force"]
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        command += [f"--{option}={place / name}" for option, name in files.items()]
        self._daemon("munged", command, ["munge", "-n", "-S", str(place / "socket")])

    def _data_base(self) -> None:
        """MariaDB, reached by a Unix socket only."""
        place = self.directory / "db"
        common = ["--no-defaults", "--user=root", f"--datadir={place}/data"]
        (place / "first.sql").write_text(
            "create database slurm;\ncreate user slurm@localhost identified by 'slurm';\n"
            "grant all on slurm.* to slurm@localhost;\n"
        )
        install = ["mariadb-install-db", *common, "--auth-root-authentication-method=socket", "--skip-test-db"]
        serve = ["mariadbd", *common, f"--socket={place}/socket", f"--pid-file={place}/pid"]
        serve += [f"--init-file={place}/first.sql", "--skip-networking", "--skip-log-bin", "--performance-schema=OFF"]
        serve += ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"]
        both = f"{shlex.join(install)} && exec {shlex.join(serve)}"
        query = ["mariadb", "--no-defaults", f"--socket={place}/socket", "-e", "use slurm"]
        self._daemon("mariadbd", ["bash", "-c", both], query)

    def _node(self, node: str) -> None:
        self._tell(f"start {node} {shlex.join([*_NAMESPACES, 'bash', f'{_HERE}/node.sh', node])}")

    def _daemon(self, name: str, command: Sequence[str], answers: Sequence[str]) -> None:
        """Start a daemon, and wait until a client of it succeeds."""
        self._tell(f"start {name} {shlex.join(command)}")
        self._wait(f"{name} does not answer", lambda: self.run(answers).returncode == 0)

    def _idle(self) -> bool:
        jobs = self.run(["squeue", "-h", "-o", "%A"], check=True).stdout
        return not jobs.split() and all(self.node_state(node) == "IDLE" for node in self.nodes)

    def _wait(self, failure: str, succeeds: Callable[[], bool], timeout: float = _START) -> None:
        end = time.monotonic() + timeout
        while not succeeds():
            if time.monotonic() > end:
                tails = [f"{log.name}: {log.read_text(errors='replace')[-500:]}" for log in self._logs()]
                raise UserError(f"the Slurm cluster: {failure} in {timeout:.0f} s. {' '.join(' '.join(tails).split())}")
            time.sleep(0.05)

    def _logs(self) -> list[Path]:
        return sorted((self.directory / "log").iterdir())

    def _tell(self, line: str) -> None:
        """Have process 1 do something."""
        if self._first is None or self._first.stdin is None:
            raise UserError("there is no Slurm cluster yet, or no more: use Cluster in a with statement")
        self._first.stdin.write(f"{line}\n")
        self._first.stdin.flush()
        self._answer(" ".join(line.split()[:2]))

    def _answer(self, expected: str) -> None:
        output = self._first.stdout if self._first else None
        if not output or not select.select([output], [], [], _START)[0] or output.readline() != f"{expected}\n":
            raise UserError(f"the Slurm cluster: no word of {expected!r} from its first process")

    def _end(self) -> None:
        if self._first is not None:
            with self._first:
                try:
                    self._first.communicate(timeout=_START)  # closes its standard input
                except subprocess.TimeoutExpired:
                    self._first.kill()
            self._first = None
        shutil.rmtree(self.directory, ignore_errors=True)  # if it did not come up


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, below those that the kernel gives to whoever calls."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            found.append(port)
    return found
