"""What starts ranks here, and whose MPI it belongs to."""

import os
import re
import shutil
from dataclasses import dataclass

from hpcbench.batch.sites.find_launcher import BANNERS
from hpcbench.doctor.ask import ask
from hpcbench.doctor.slurm import mpi_plugins


@dataclass(frozen=True)
class Mpi:
    """A launcher on PATH."""

    program: str
    """Its path."""
    kind: str | None
    """As `launcher.kind` of a site; None where it did not say."""
    fact: str


def mpiexec(*programs: str) -> Mpi | None:
    """The first of the programs that is there, asked whose it is; by default mpiexec and mpirun on PATH."""
    path = next((found for name in programs or ("mpiexec", "mpirun") if (found := shutil.which(name))), None)
    if path is None:
        return None
    said = ask([path, "--version"])
    text = said.out + said.err
    for pattern, kind, name in BANNERS:
        match = re.search(pattern, text, re.DOTALL if "HYDRA" in pattern else 0)
        if match:
            if name.startswith("MPICH") and _is_mvapich(path):
                kind, name = "mvapich", "MVAPICH (Hydra)"
            return Mpi(path, kind, f"{path}: {name}{f' {match[1]}' if match[1] else ''}")
    first = " ".join(text.split())[:100]
    return Mpi(path, None, f"{path}: {said.problem or f'whose it is, is unknown: {first!r}'}")


def _is_mvapich(path: str) -> bool:
    """MVAPICH's launcher is Hydra and says no more; the program beside it, or its place, tells."""
    beside = os.path.join(os.path.dirname(os.path.realpath(path)), "mpiname")  # noqa: PTH118, PTH120
    said = ask([beside])
    return "MVAPICH" in said.out.upper() or "mvapich" in os.path.realpath(path).lower()


def launcher(kind: str) -> tuple[str, list[str], str]:
    """Dialect, arguments, and where that comes from."""
    mpi = mpiexec()
    if kind == "flux":
        return "flux", [], "Flux starts ranks itself"
    if kind == "lsf":
        for name in ("lrun", "jsrun"):
            if path := shutil.which(name):
                return name, [], f"{path} is on PATH"
    if kind == "slurm":
        if path := shutil.which("ibrun"):
            return "ibrun", [], f"{path} is on PATH: TACC's"
        plugins, default = mpi_plugins()
        listed = f"srun --mpi=list has {', '.join(plugins) or 'nothing'}, MpiDefault is {default or 'unknown'}"
        if default and default != "none":
            return "srun", [], listed
        wanted = {"openmpi": ("pmix",), "mpich": ("pmi2",), "mvapich": ("pmi2",)}.get((mpi and mpi.kind) or "", ())
        plugin = next((name for name in wanted if name in plugins), None)
        if plugin and mpi:
            return "srun", [f"--mpi={plugin}"], f"{mpi.fact}; {listed}. The wrong one starts worlds of one rank"
        if not (mpi and mpi.kind):
            seen = "no MPI library was seen: load its module and draft again, or say --mpi=... in args as it wants"
            return "srun", [], f"{listed}; {seen}"
    if mpi and mpi.kind:
        return mpi.kind, [], mpi.fact
    return "mpich" if kind == "local" else "openmpi", [], "no mpiexec on PATH that says whose it is"


def loaded_modules() -> list[str]:
    """Modules of this shell, or else those that a login shell loads."""
    here = os.environ.get("LOADEDMODULES") or ""
    if here:
        return [name for name in here.split(":") if name]
    said = ask(["bash", "-lc", "type module > /dev/null 2>&1 && module -t list 2>&1"])
    lines = [line.strip() for line in said.out.splitlines()] if said.ok else []
    return [line for line in lines if re.fullmatch(r"[A-Za-z0-9][\w.+/@:-]*", line) and not line.endswith(":")]


def of_interest(modules: list[str]) -> list[str]:
    """Those among the modules that a job needs: compilers, MPI, GPUs, Python."""
    words = r"mpi|cuda|rocm|nccl|rccl|ofi|libfabric|ucx|gcc|nvhpc|python|conda|PrgEnv|craype-accel|cudatoolkit|spectrum"
    return [name for name in modules if re.search(words, name, re.IGNORECASE)]
