"""The ranks that measure together. The user's launcher starts them, or this program itself.

MPI is imported only when it is known that there are ranks. If the launcher and the library do not speak the same
interface, each process would believe to be a world of its own.
"""

import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hpcbench.errors import UserError

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpcbench.comm.wait import Wait

T = TypeVar("T")

_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "JSM_NAMESPACE_RANK")
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "JSM_NAMESPACE_SIZE")
_STEP = "SLURM_STEP_NUM_TASKS"
"""Variable that srun sets, also for a single task in the shell of an interactive job."""


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


def launched() -> bool:
    """Whether a launcher started this process as one of its ranks."""
    return any(name in os.environ for name in (*_RANKS, *_SIZES)) or _number(_STEP) > 1


def rank() -> int:
    """Rank of this process by its launcher's variables, for use before MPI is imported or without it."""
    return next((_number(name) for name in (*_RANKS, "SLURM_PROCID") if name in os.environ), 0) if launched() else 0


def start(ranks: int | None, command: str) -> int | None:
    """Start this same command on ranks of this machine; None if it already runs on ranks.

    Parameters
    ----------
    ranks
        Number of ranks; None if the user did not give it.
    command
        Name of the command, for messages.

    Returns
    -------
    int or None
        The exit status.

    Raises
    ------
    UserError
        There are no ranks, and their number was not given, or the launcher is missing.
    """
    if ranks is not None and ranks < 2:
        raise UserError(f"--ranks {ranks}: nobody to send to: use 2 at least")
    if launched():
        return None
    if ranks is None:
        raise UserError(
            f"{command}: needs several ranks: start it by `mpirun -n 8 hpcbench {command} ...`, or add --ranks 8"
        )
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise UserError("--ranks: no mpiexec beside the interpreter nor on PATH: pip install mpich")
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    if sys.stdout.isatty() and sys.stderr.isatty():  # the ranks write into pipes to a launcher that writes here
        environment |= {"FORCE_COLOR": "1", "COLUMNS": str(shutil.get_terminal_size().columns)}
    argv = [mpiexec, "-n", str(ranks), sys.executable, "-m", "hpcbench", *sys.argv[1:]]
    return subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


@contextmanager
def one_voice() -> Iterator[None]:
    """Let the first rank report an error that all ranks find. A rank that fails for another reason ends all of them."""
    try:
        yield
    except UserError:
        if rank() == 0:
            raise
        time.sleep(1)  # some launchers end the first rank with this one, before it has spoken
        raise SystemExit(2) from None
    except Exception:
        if not launched():
            raise
        traceback.print_exc()
        sys.stderr.flush()
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)


def connect(ranks: int | None) -> "MPI.Comm":
    """The communicator of all ranks.

    Raises
    ------
    UserError
        It has another size than the wanted one, or only one rank.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UserError(f"no MPI ({error}): load the site's modules, or pip install mpi4py mpich") from None
    comm = MPI.COMM_WORLD
    wanted = ranks or max(map(_number, (*_SIZES, _STEP)))
    if comm.size < wanted or (ranks and comm.size != ranks):
        raise UserError(
            f"the launcher started a world of {comm.size} ranks, {wanted} were asked for: launcher and MPI library do "
            "not speak the same interface (with srun, try --mpi=pmi2 or --mpi=pmix)"
        )
    if comm.size == 1:
        raise UserError("the launcher started a world of one rank: nobody to send to: start 2 at least")
    return comm


def shared(comm: "MPI.Comm", read: Callable[[], T]) -> T:
    """The result of `read` on the first rank, for every rank. An error of it is also raised on every rank."""
    found: tuple[T | None, str | None] = None, None
    if comm.rank == 0:
        try:
            found = read(), None
        except UserError as error:
            found = None, str(error)
    value, wrong = comm.bcast(found)
    if wrong is not None:
        raise UserError(wrong)
    result: T = value
    return result


def neighbours(comm: "MPI.Comm") -> int:
    """Ranks on this rank's machine. Virtual hosts on one machine share its cores and its memory."""
    own = _machine()
    return sum(label == own for label in comm.allgather(own))


def waiting(comm: "MPI.Comm") -> "Wait":
    """The way in which ranks wait: they sleep as soon as any of them has no core of its own.

    It is the same on every rank.
    """
    from hpcbench.comm.wait import Wait

    cores: dict[str, set[int]] = {}
    everyone = comm.allgather((_machine(), os.sched_getaffinity(0)))
    for machine, mine in everyone:
        cores.setdefault(machine, set()).update(mine)
    crowded = any(sum(label == machine for label, _ in everyone) > len(cores[machine]) for machine in cores)
    return Wait.GIVE_WAY if crowded else Wait.SPIN


def description(comm: "MPI.Comm", wait: "Wait") -> dict[str, Any]:
    """Library, hosts and way of waiting, for the files."""
    import socket

    from mpi4py import MPI

    from hpcbench.bench.machine import machine
    from hpcbench.comm.links import shape
    from hpcbench.comm.topology import Topology

    hosts = comm.allgather(socket.gethostname())
    return {
        "machine": machine(("numpy", "ml_dtypes", "mpi4py")),
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].rstrip("\0").split()),
        "hosts": list(dict.fromkeys(hosts)),
        "ranks_per_node": list(shape(Topology.of(comm))),
        "wait": wait.value,
    }


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename
