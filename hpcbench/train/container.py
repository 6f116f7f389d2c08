"""Whether ranks in a container are what their job script meant: its version, its MPI library, its world."""

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
    """Refuse an image with another hpcbench than that which wrote the job: it measures something else.

    Raises
    ------
    UserError
        It has another one.
    """
    wanted = environment.get(VERSION)
    if where(environment) and wanted not in (None, hpcbench.__version__):
        raise UserError(
            f"{where(environment)}: has hpcbench {hpcbench.__version__}, and the job is of {wanted}: build the image "
            f"with hpcbench {wanted}"
        )


def check_library(environment: Mapping[str, str] = os.environ, maps: Path = _MAPS) -> None:
    """Refuse another MPI library than the host's, where that was to be bound in.

    Raises
    ------
    UserError
        The ranks use another one.
    """
    wanted = [path for path in environment.get(MPI_PATHS, "").split(":") if path]
    if not where(environment) or not wanted:
        return
    loaded = libraries(maps.read_text(encoding="utf-8", errors="replace"))
    strange = [path for path in loaded if not any(path.startswith(f"{one.rstrip('/')}/") for one in wanted)]
    if strange or not loaded:
        found = strange[0] if strange else "no MPI library"
        raise UserError(
            f"{where(environment)}: ranks use {found}, and container.mpi is bind: name the directory with the host's "
            "libmpi as container.mpi_paths; the image's mpi4py must be built for the same interface (ABI) of MPI"
        )


def libraries(maps: str) -> list[str]:
    """Return MPI libraries in a process, by what the kernel says of its memory."""
    found = re.findall(r"\s(/\S*/libmpi(?:ch|_cray|_gnu|)[^/\s]*\.so[^/\s]*)$", maps, re.MULTILINE)
    return list(dict.fromkeys(found))


def remedy(environment: Mapping[str, str] = os.environ) -> str:
    """Return what else may be wrong where the launcher has started worlds of their own."""
    if not where(environment):
        return ""
    return (
        f"; in {where(environment)} the image's MPI must speak what the launcher does, or be the host's "
        "(container.mpi: bind)"
    )
