"""Provenance of a result: command, revision and machine, which every script in this directory prints first.

Files such as results/reference/x.txt therefore document their origin, and tests/benchmarks/test_results.py checks them.
JSON files contain the provenance under the key "provenance".
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hpcbench import __file__ as package
from hpcbench.bench.machine import find_cpu_model
from hpcbench.doctor.mpi import mpiexec

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("hpcbench", "kernels", "benchmarks", "studies", "templates", "sites", "pyproject.toml")
"""Files on which a result depends.

Other uncommitted changes, such as the result itself, do not mark the revision as dirty.
"""


def provenance(script: Path, packages: Sequence[str] = ()) -> dict[str, str]:
    """Return the command, revision and machine of this run.

    Parameters
    ----------
    script
        File of the running program. The program's arguments are taken from this process.
    packages
        Additional packages whose versions are included.
    """
    name = script.resolve().relative_to(ROOT).as_posix()
    return {
        "command": shlex.join(["python", name, *sys.argv[1:]]),
        "revision": revision(),
        "machine": machine(packages),
    }


def head(script: Path, packages: Sequence[str] = ()) -> list[str]:
    """Return the provenance as lines for the top of a text file: ``# command: ...`` and so on."""
    return [f"# {key}: {value}" for key, value in provenance(script, packages).items()]


def revision() -> str:
    """Return the current commit and its date, with ``-dirty`` if measured files differ from the commit."""
    try:
        name = _git("describe", "--always", "--abbrev=12")
        dirty = "-dirty" if _git("status", "--porcelain", "--", *MEASURED) else ""
        date = _git("show", "--no-patch", "--format=%cs", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "unknown: not a git checkout"
    elsewhere = "" if Path(package).resolve().is_relative_to(ROOT) else "; hpcbench itself is installed from elsewhere"
    return f"{name}{dirty} of {date}{elsewhere}"


def machine(packages: Sequence[str] = ()) -> str:
    """Describe this process's cores, the processor, memory, GPUs, kernel, and versions of Python, MPI and packages."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    parts = [f"{cores} core{'s' * (cores > 1)} of {find_cpu_model()}", f"{memory:.0f} GiB", *gpus()]
    parts += [f"{platform.system()} {platform.release()}", f"Python {platform.python_version()}", mpi()]
    for name in ("torch", *packages):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts)


def gpus() -> list[str]:
    """List the names and drivers of the GPUs."""
    if not (program := shutil.which("nvidia-smi")):
        return []
    query = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True)
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return [f"{lines.count(line)} x {line.replace(', ', ' (driver ')})" for line in dict.fromkeys(lines)]


def mpi() -> str:
    """Return the MPI library whose mpiexec starts the ranks. Do not initialize MPI in this process."""
    library = mpiexec(str(Path(sys.executable).with_name("mpiexec")), "mpiexec")
    return library.fact.partition(": ")[2] if library else "no MPI"


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
