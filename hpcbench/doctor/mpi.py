"""Detection of the MPI launcher and its library."""

import os
import re
import shutil
from dataclasses import dataclass

from hpcbench.batch.schedulers.attempt import attempt
from hpcbench.batch.schedulers.slurm_cluster import list_mpi_plugins, read_config
from hpcbench.batch.sites.find_launcher import match_banner


@dataclass(frozen=True)
class Mpi:
    """A launcher on PATH."""

    program: str
    """Path of the launcher."""
    kind: str | None
    """Value of `launcher.kind` for a site file, or None if unknown."""
    fact: str


def mpiexec(*programs: str) -> Mpi | None:
    """Return the first existing program and its MPI library. By default, try mpiexec and mpirun."""
    path = next((program for name in programs or ("mpiexec", "mpirun") if (program := shutil.which(name))), None)
    if path is None:
        return None
    answer = attempt([path, "--version"])
    text = answer.out + answer.err
    if banner := match_banner(text):
        kind, name, version = banner
        if name.startswith("MPICH") and _is_mvapich(path):
            kind, name = "mvapich", "MVAPICH (Hydra)"
        return Mpi(path, kind, f"{path}: {name} {version}".rstrip())
    first = " ".join(text.split())[:100]
    return Mpi(path, None, f"{path}: {answer.problem or f'unknown MPI library: {first!r}'}")


def _is_mvapich(path: str) -> bool:
    """Return whether a Hydra launcher belongs to MVAPICH, according to its path or an adjacent ``mpiname``."""
    mpiname = os.path.join(os.path.dirname(os.path.realpath(path)), "mpiname")  # noqa: PTH118, PTH120
    answer = attempt([mpiname])
    return "MVAPICH" in answer.out.upper() or "mvapich" in os.path.realpath(path).lower()


def launcher(kind: str) -> tuple[str, list[str], str]:
    """Return the launcher dialect, the launcher arguments, and their source."""
    mpi = mpiexec()
    if kind == "flux":
        return "flux", [], "Flux starts ranks itself"
    if kind == "lsf":
        for name in ("lrun", "jsrun"):
            if path := shutil.which(name):
                return name, [], f"{path} is on PATH"
    if kind == "slurm":
        if path := shutil.which("ibrun"):
            return "ibrun", [], f"{path} is on PATH (TACC's launcher)"
        plugins, default = list_mpi_plugins(), read_config().get("MpiDefault")
        listed = f"srun --mpi=list lists {', '.join(plugins) or 'nothing'}; MpiDefault is {default or 'unknown'}"
        if default and default != "none":
            return "srun", [], listed
        wanted = {"openmpi": ("pmix",), "mpich": ("pmi2",), "mvapich": ("pmi2",)}.get((mpi and mpi.kind) or "", ())
        plugin = next((name for name in wanted if name in plugins), None)
        if plugin and mpi:
            return (
                "srun",
                [f"--mpi={plugin}"],
                f"{mpi.fact}; {listed}. With a wrong --mpi, each rank is a world of its own",
            )
        if not (mpi and mpi.kind):
            seen = "no MPI library was detected: load its module and run this command again, or set --mpi=... in args"
            return "srun", [], f"{listed}; {seen}"
    if mpi and mpi.kind:
        return mpi.kind, [], mpi.fact
    return "mpich" if kind == "local" else "openmpi", [], "no mpiexec on PATH with a known MPI library"


def loaded_modules() -> list[str]:
    """Return the modules loaded in this shell. If no modules are loaded, return the modules of a login shell."""
    here = os.environ.get("LOADEDMODULES") or ""
    if here:
        return [name for name in here.split(":") if name]
    answer = attempt(["bash", "-lc", "type module > /dev/null 2>&1 && module -t list 2>&1"])
    lines = [line.strip() for line in answer.out.splitlines()] if answer.ok else []
    return [line for line in lines if re.fullmatch(r"[A-Za-z0-9][\w.+/@:-]*", line) and not line.endswith(":")]


def of_interest(modules: list[str]) -> list[str]:
    """Return the modules that jobs need: compilers, MPI, GPUs, Python."""
    pattern = (
        r"mpi|cuda|rocm|nccl|rccl|ofi|libfabric|ucx|gcc|nvhpc|python|conda|PrgEnv|craype-accel|cudatoolkit|spectrum"
    )
    return [name for name in modules if re.search(pattern, name, re.IGNORECASE)]
