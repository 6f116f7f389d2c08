"""Checks of ranks in a container against their job script: version, MPI library, world."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import hpcbench
from hpcbench.contract.container import MPI_PATHS, VERSION, WHERE
from hpcbench.errors import UserError

_MAPS = Path("/proc/self/maps")


def where(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the program and image that this rank runs in; None outside of containers."""
    return environment.get(WHERE) or None


def check_version(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse an image with another version of hpcbench than the job's: it measures something else.

    Raises
    ------
    UserError
        The image has another version.
    """
    wanted = environment.get(VERSION)
    if where(environment) and wanted not in (None, hpcbench.__version__):
        raise UserError(
            f"{where(environment)}: has hpcbench {hpcbench.__version__}, but the job needs {wanted}: build the image "
            f"with hpcbench {wanted}"
        )


def check_library(environment: Mapping[str, str] = os.environ, maps: Path = _MAPS) -> None:
    """Refuse another MPI library than the host's, if the host's was to be bound in.

    Raises
    ------
    UserError
        The ranks use another library.
    """
    wanted = [path for path in environment.get(MPI_PATHS, "").split(":") if path]
    if not where(environment) or not wanted:
        return
    loaded = libraries(maps.read_text(encoding="utf-8", errors="replace"))
    strange = [path for path in loaded if not any(path.startswith(f"{directory.rstrip('/')}/") for directory in wanted)]
    if strange or not loaded:
        library = strange[0] if strange else "no MPI library"
        raise UserError(
            f"{where(environment)}: ranks use {library}, and container.mpi is bind: name the directory with the host's "
            "libmpi as container.mpi_paths; the image's mpi4py must be built for the same interface (ABI) of MPI"
        )


def libraries(maps: str) -> list[str]:
    """List the MPI libraries in a process, from the kernel's list of its memory maps."""
    paths = re.findall(r"\s(/\S*/libmpi(?:ch|_cray|_gnu|)[^/\s]*\.so[^/\s]*)$", maps, re.MULTILINE)
    return list(dict.fromkeys(paths))


def remedy(environment: Mapping[str, str] = os.environ) -> str:
    """Return another possible cause if the launcher has started worlds of one rank each."""
    if not where(environment):
        return ""
    return (
        f"; in {where(environment)} the image's MPI library must use the launcher's interface (PMI), or be the host's "
        "(container.mpi: bind)"
    )
