"""Ranks of a measurement, started by the user's launcher or by this program.

MPI is imported only in processes that were started as ranks. If the launcher and the MPI library use different
interfaces, each process gets a world of one rank.
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
"""Variable that srun sets, even for the single task of an interactive job's shell."""


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


def is_launched() -> bool:
    """Return whether a launcher started this process as a rank."""
    return any(name in os.environ for name in (*_RANKS, *_SIZES)) or _number(_STEP) > 1


def rank() -> int:
    """Return this process's rank from the launcher's variables, without MPI."""
    return next((_number(name) for name in (*_RANKS, "SLURM_PROCID") if name in os.environ), 0) if is_launched() else 0


def start(ranks: int | None, command: str) -> int | None:
    """Start the same command as ranks on this machine. Return None if this process is already a rank.

    Parameters
    ----------
    ranks
        Number of ranks, or None if the user did not specify it.
    command
        Command name for messages.

    Returns
    -------
    int or None
        The exit status.

    Raises
    ------
    UserError
        The process is not a rank and `ranks` is missing, or the launcher is missing.
    """
    if ranks is not None and ranks < 2:
        raise UserError(f"--ranks {ranks}: a measurement needs at least 2 ranks")
    if is_launched():
        return None
    if ranks is None:
        raise UserError(
            f"{command}: needs several ranks. Start it with `mpirun -n 8 hpcbench {command} ...`, or add --ranks 8"
        )
    installed = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(installed) if installed.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise UserError("--ranks: no mpiexec next to the interpreter or on PATH. Run `pip install mpich`")
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    if sys.stdout.isatty() and sys.stderr.isatty():  # The ranks write to the terminal through the launcher.
        environment |= {"FORCE_COLOR": "1", "COLUMNS": str(shutil.get_terminal_size().columns)}
    argv = [mpiexec, "-n", str(ranks), sys.executable, "-m", "hpcbench", *sys.argv[1:]]
    return subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


@contextmanager
def report_once() -> Iterator[None]:
    """Report an error that all ranks detect.

    Only the first rank prints the error. Other exceptions terminate all ranks.
    """
    try:
        yield
    except UserError:
        if rank() == 0:
            raise
        time.sleep(1)  # Some launchers terminate the first rank as soon as another rank ends.
        raise SystemExit(2) from None
    except Exception:
        if not is_launched():
            raise
        traceback.print_exc()
        sys.stderr.flush()
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)


def connect(ranks: int | None) -> "MPI.Comm":
    """Return the communicator of all ranks.

    Raises
    ------
    UserError
        The number of ranks is 1 or differs from the requested number.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"MPI is not available ({error}). Load the site's modules, or run `pip install mpi4py mpich`"
        ) from None
    comm = MPI.COMM_WORLD
    wanted = ranks or max(map(_number, (*_SIZES, _STEP)))
    if comm.size < wanted or (ranks and comm.size != ranks):
        raise UserError(
            f"the launcher started a world of {comm.size} ranks, but {wanted} were requested: "
            "launcher and MPI library do "
            "not use the same interface (with srun, try --mpi=pmi2 or --mpi=pmix)"
        )
    if comm.size == 1:
        raise UserError("the launcher started a world of one rank, but at least 2 ranks are needed")
    return comm


def share(comm: "MPI.Comm", read: Callable[[], T]) -> T:
    """Call `read` on the first rank, and return the result or raise the error on every rank."""
    outcome: tuple[T | None, str | None] = None, None
    if comm.rank == 0:
        try:
            outcome = read(), None
        except UserError as error:
            outcome = None, str(error)
    value, wrong = comm.bcast(outcome)
    if wrong is not None:
        raise UserError(wrong)
    result: T = value
    return result


def count_neighbors(comm: "MPI.Comm") -> int:
    """Return the number of ranks on this machine. Virtual hosts share the machine's cores and memory."""
    machine = _identify_machine()
    return sum(label == machine for label in comm.allgather(machine))


def choose_wait(comm: "MPI.Comm") -> "Wait":
    """Choose how all ranks wait. All ranks sleep between tests if any rank lacks a dedicated core."""
    from hpcbench.comm.wait import Wait

    cores: dict[str, set[int]] = {}
    everyone = comm.allgather((_identify_machine(), os.sched_getaffinity(0)))
    for machine, mine in everyone:
        cores.setdefault(machine, set()).update(mine)
    crowded = any(sum(label == machine for label, _ in everyone) > len(cores[machine]) for machine in cores)
    return Wait.GIVE_WAY if crowded else Wait.SPIN


def describe_ranks(comm: "MPI.Comm", wait: "Wait") -> dict[str, Any]:
    """Return the MPI library, hosts and wait mode for the result files."""
    import socket

    from mpi4py import MPI

    from hpcbench.bench.machine import describe_machine
    from hpcbench.comm.links import shape
    from hpcbench.comm.topology import Topology

    hosts = comm.allgather(socket.gethostname())
    return {
        "machine": describe_machine(("numpy", "ml_dtypes", "mpi4py")),
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].rstrip("\0").split()),
        "hosts": list(dict.fromkeys(hosts)),
        "ranks_per_node": list(shape(Topology.of(comm))),
        "wait": wait.value,
    }


def _identify_machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename
