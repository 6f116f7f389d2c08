"""Checks that run in the ranks' interpreter.

Each check prints one line of JSON, so that earlier results survive a crash.

The source is passed with ``-c``, so that an interpreter without hpcbench can run it. The file's top-level imports are
restricted to modules that cannot be missing.
"""

import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

OLDEST_TORCH = (2, 5)
Finding = tuple[str, str, str]
"""Health, fact, and remedy."""


def _python() -> Finding:
    fits = sys.version_info[:2] >= (3, 10)
    fact = f"{platform.python_version()}, {platform.machine()}, {sys.executable}"
    return ("ok" if fits else "missing"), fact, "" if fits else "hpcbench needs Python 3.10 or newer"


def _hpcbench() -> Finding:
    import hpcbench

    return "ok", f"{hpcbench.__version__} in {os.path.dirname(hpcbench.__file__)}", ""  # noqa: PTH120


def _numpy() -> Finding:
    import numpy

    return "ok", numpy.__version__, ""


def _torch() -> Finding:
    import torch

    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return "missing", f"{torch.__version__}, older than {oldest}", f"install PyTorch {oldest} or later"
    cuda, rocm = torch.version.cuda, getattr(torch.version, "hip", None)
    if rocm:
        fact = f"{torch.__version__}, ROCm {rocm}, sees {torch.cuda.device_count()} GPUs"
        return "ok", f"{fact}, on which hpcbench's kernels do not run (docs/how-to/amd.md)", ""
    if not cuda:
        return "ok", f"{torch.__version__}, built without CUDA", ""
    nccl = "without NCCL"
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        nccl = f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"  # type: ignore[no-untyped-call]
    return "ok", f"{torch.__version__}, CUDA {cuda}, sees {torch.cuda.device_count()} GPUs, {nccl}", ""


def _cupy() -> Finding:
    import cupy

    runtime = cupy.cuda.runtime.runtimeGetVersion()
    try:
        sees = f"sees {cupy.cuda.runtime.getDeviceCount()} GPUs"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        sees = f"sees no GPU: {error}"
    return "ok", f"{cupy.__version__}, CUDA {runtime // 1000}.{runtime % 1000 // 10}, {sees}", ""


def _kernels() -> Finding:
    from hpcbench.codecs.library import kernels, library_path

    return "ok", f"{kernels().instruction_set}, {library_path()}", ""


def _codecs() -> Finding:
    from hpcbench.doctor.selftest import faults

    wrong, tried = faults()
    if wrong:
        return "missing", "; ".join(wrong), "rebuild the kernels; if this does not help, report a bug with this line"
    return "ok", f"{tried}: bytes as committed, errors within their bounds", ""


def _mpi4py() -> Finding:
    import mpi4py

    mpi4py.rc.initialize = False  # login nodes may forbid MPI, or hang
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the package is installed, but a library that it loads is missing
        return "missing", f"{version('mpi4py')} found no MPI library: {error}", NO_LIBRARY
    library = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    return "ok", f"{version('mpi4py')} with {library}", ""


NO_LIBRARY = "load the module of an MPI library (modules: of the site file), or pip install mpich (the extra local)"


STAGES: dict[str, Callable[[], Finding]] = {
    "python": _python,
    "hpcbench": _hpcbench,
    "numpy": _numpy,
    "kernels": _kernels,
    "codecs": _codecs,
    "mpi4py": _mpi4py,
    "torch": _torch,
    "CuPy": _cupy,
}


def main() -> None:
    """Run all checks."""
    for name, look in STAGES.items():
        try:
            health, fact, remedy = look()
        except (ImportError, PackageNotFoundError) as error:
            health, fact, remedy = "missing", str(error), ""
        except Exception as error:
            health, fact, remedy = "unknown", f"{type(error).__name__}: {error}", ""
        print(json.dumps([name, health, " ".join(fact.split()), remedy]), flush=True)


if __name__ == "__main__":
    main()
