"""``python -m hpcbench.doctor.job``, which prints one line that describes the ranks' interpreter.

Job scripts execute this module before the first run, in the environment of the ranks. The module must be fast and start
no processes, so MPI is loaded but not initialized. With ``--no-mpi``, MPI is not loaded. Scripts of LSF whole-node jobs
use this option, because they run on a shared launch host.
"""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import hpcbench

PACKAGES = ("torch", "numpy")


def line(*, loads_mpi: bool = True) -> str:
    """Return interpreter, packages, and the MPI library found by mpi4py."""
    mpi = _mpi() if loads_mpi else f"{_package('mpi4py')}, whose library is not loaded on this shared host"
    facts = [f"hpcbench {hpcbench.__version__}", mpi, *(_package(name) for name in PACKAGES)]
    return f"{sys.executable}: Python {platform.python_version()}; {'; '.join(facts)}"


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"


def _mpi() -> str:
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return f"no MPI: {' '.join(str(error).split())}"
    library = " ".join(MPI.Get_library_version().split("\n")[0].rstrip("\0").split())
    return f"mpi4py {mpi4py.__version__} with {library}"


if __name__ == "__main__":
    print(line(loads_mpi="--no-mpi" not in sys.argv[1:]))
