"""Consistency checks between ranks in a container and their job script: version, MPI library and number of ranks."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import hpcbench
from hpcbench.contract.container import MPI_PATHS, VERSION, WHERE
from hpcbench.errors import UserError

_MAPS = Path("/proc/self/maps")


def where(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the container runtime and image of this rank, or None outside of containers."""
    return environment.get(WHERE) or None


def check_version(environment: Mapping[str, str] = os.environ) -> None:
    """Reject an image whose hpcbench version differs from the version of the job.

    Raises
    ------
    UserError
        The versions differ.
    """
    wanted = environment.get(VERSION)
    if where(environment) and wanted not in (None, hpcbench.__version__):
        raise UserError(
            f"{where(environment)}: has hpcbench {hpcbench.__version__}, but the job needs {wanted}: build the image "
            f"with hpcbench {wanted}"
        )


def check_library(environment: Mapping[str, str] = os.environ, maps: Path = _MAPS) -> None:
    """Check that the ranks use the MPI library of the host, if the job binds it into the container.

    Raises
    ------
    UserError
        The ranks use a different library.
    """
    wanted = [path for path in environment.get(MPI_PATHS, "").split(":") if path]
    if not where(environment) or not wanted:
        return
    loaded = libraries(maps.read_text(encoding="utf-8", errors="replace"))
    strange = [path for path in loaded if not any(path.startswith(f"{directory.rstrip('/')}/") for directory in wanted)]
    if strange or not loaded:
        library = strange[0] if strange else "no MPI library"
        raise UserError(
            f"{where(environment)}: ranks use {library}, although container.mpi is bind: add the directory of the "
            "host's libmpi to container.mpi_paths, and use an image whose mpi4py is built for the same MPI ABI"
        )


def libraries(maps: str) -> list[str]:
    """List the MPI libraries that a process has loaded, given the content of its memory maps."""
    paths = re.findall(r"\s(/\S*/libmpi(?:ch|_cray|_gnu|)[^/\s]*\.so[^/\s]*)$", maps, re.MULTILINE)
    return list(dict.fromkeys(paths))


def remedy(environment: Mapping[str, str] = os.environ) -> str:
    """Return a hint for ranks in a container if the launcher started N worlds of one rank each."""
    if not where(environment):
        return ""
    return (
        f"; the MPI library in {where(environment)} must use the launcher's interface (PMI), or be replaced by "
        "the host's library (container.mpi: bind)"
    )
