"""Where a result comes from: the command, the revision and the machine, as every script in this directory prints first.

`python benchmarks/x.py > results/reference/x.txt` then says by itself what it is, and tests/benchmarks/test_results.py
holds what is stored to it. In JSON the same three stand under "provenance".
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
"""What a result depends on: other changes that are not committed, such as the result itself, make no revision dirty."""


def provenance(script: Path, packages: Sequence[str] = ()) -> dict[str, str]:
    """Command, revision and machine of this run.

    Parameters
    ----------
    script
        File of the program that runs; its arguments are those of this process.
    packages
        Distributions, beside torch, whose versions matter.
    """
    name = script.resolve().relative_to(ROOT).as_posix()
    return {
        "command": shlex.join(["python", name, *sys.argv[1:]]),
        "revision": revision(),
        "machine": machine(packages),
    }


def head(script: Path, packages: Sequence[str] = ()) -> list[str]:
    """The same as lines that stand at the head of a text: ``# command: ...`` and so on."""
    return [f"# {key}: {value}" for key, value in provenance(script, packages).items()]


def revision() -> str:
    """The commit that is checked out and its date; ``-dirty`` where what is measured differs from it."""
    try:
        name = _git("describe", "--always", "--abbrev=12")
        dirty = "-dirty" if _git("status", "--porcelain", "--", *MEASURED) else ""
        date = _git("show", "--no-patch", "--format=%cs", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "unknown: this is no checkout of git's"
    elsewhere = "" if Path(package).resolve().is_relative_to(ROOT) else "; hpcbench itself is installed from elsewhere"
    return f"{name}{dirty} of {date}{elsewhere}"


def machine(packages: Sequence[str] = ()) -> str:
    """Cores that this process may use, processor, memory, GPUs, kernel, and versions of Python, MPI and packages."""
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
    """Names of the GPUs, with their driver; empty where there is none."""
    if not (program := shutil.which("nvidia-smi")):
        return []
    query = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True)
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return [f"{lines.count(line)} x {line.replace(', ', ' (driver ')})" for line in dict.fromkeys(lines)]


def mpi() -> str:
    """The MPI library whose mpiexec starts the ranks; this process does not become one by asking."""
    found = mpiexec(str(Path(sys.executable).with_name("mpiexec")), "mpiexec")
    return found.fact.partition(": ")[2] if found else "no MPI"


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
