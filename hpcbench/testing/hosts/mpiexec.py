"""The command that starts ranks on virtual hosts: MPICH's mpiexec, which enters hosts instead of calling ssh."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcbench.errors import UserError

ONLY_THE_LINKS = {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0", "UCX_NET_DEVICES": "eth0", "UCX_TLS": "self,sm,tcp"}
"""Variables that limit the MPI library to the links, and to shared memory within a host."""


def mpiexec_line(command: Sequence[str], ranks: int, each: int) -> list[str]:
    """The argument list that starts `ranks` ranks of the command, `each` of them on a host.

    Raises
    ------
    UserError
        There is no ``mpiexec`` of MPICH.
    """
    names = ",".join(f"host{k + 1}:{each}" for k in range(-(-ranks // each)))
    launch = [_mpiexec(), "-launcher", "ssh", "-launcher-exec", "/proc/1/root/dev/shm/on", "-iface", "eth0"]
    return [*launch, "-bind-to", "none", "-hosts", names, "-ppn", str(each), "-n", str(ranks), *command]


def _mpiexec() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise UserError(f"no mpiexec beside {sys.executable} nor on PATH: pip install mpich")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    if "HYDRA" not in version:
        raise UserError(f"{found} is not MPICH's, which the virtual hosts need: pip install mpich")
    return found
