"""Functions that run `hpcbench bench network` and `bench collectives` on real ranks of this machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MPIEXEC = Path(sys.executable).with_name("mpiexec")
LAUNCHERS = ("PMI_", "PMIX_", "OMPI_", "MV2_", "PALS_", "JSM_", "MPI_LOCAL", "SLURM_")


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process started without a launcher."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}, **more}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "hpcbench", "bench", *map(str, arguments)]


def bench(
    *arguments: str | Path, mpirun: int | None = None, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, or on ranks started by a launcher if `mpirun` gives their number."""
    mpiexec = str(MPIEXEC) if MPIEXEC.exists() else shutil.which("mpiexec")
    launcher = [str(mpiexec), "-n", str(mpirun), "-bind-to", "none"] if mpirun else []
    return subprocess.run(
        [*launcher, *command(*arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environment(OMP_NUM_THREADS="1", **more),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
    )
