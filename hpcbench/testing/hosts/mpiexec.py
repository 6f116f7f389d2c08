"""Launch command for virtual hosts: MPICH's mpiexec, which enters the hosts instead of calling ssh."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcbench.errors import UserError

ONLY_THE_LINKS = {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0", "UCX_NET_DEVICES": "eth0", "UCX_TLS": "self,sm,tcp"}
"""Variables that restrict the MPI library to the links between hosts, and to shared memory within a host."""


def mpiexec_line(command: Sequence[str], ranks: int, each: int) -> list[str]:
    """Return the command line that starts `ranks` ranks, with `each` ranks per host.

    Raises
    ------
    UserError
        MPICH's ``mpiexec`` is missing.
    """
    names = ",".join(f"host{k + 1}:{each}" for k in range(-(-ranks // each)))
    launch = [_mpiexec(), "-launcher", "ssh", "-launcher-exec", "/proc/1/root/dev/shm/on", "-iface", "eth0"]
    return [*launch, "-bind-to", "none", "-hosts", names, "-ppn", str(each), "-n", str(ranks), *command]


def _mpiexec() -> str:
    sibling = Path(sys.executable).with_name("mpiexec")
    program = str(sibling) if sibling.exists() else shutil.which("mpiexec")
    if not program:
        raise UserError(f"mpiexec is neither next to {sys.executable} nor on PATH: pip install mpich")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    if "HYDRA" not in version:
        raise UserError(f"{program} does not belong to MPICH, which the virtual hosts require: pip install mpich")
    return program
