"""Detection of the MPI library to which the local launcher belongs."""

import re
import sys
from pathlib import Path

from hpcbench.batch.schedulers.attempt import attempt

_BANNERS = (
    (r"IBM Spectrum MPI\)?\s*([\d.]+)?", "openmpi", "IBM Spectrum MPI"),
    (r"(?:Open MPI|OpenRTE|PRRTE)\)?\s*(?:v|version\s*)?([\d.]+)?", "openmpi", "Open MPI"),
    (r"Intel\(R\) MPI Library.*?Version\s+([\d.]+)", "mpich", "Intel MPI"),
    (r"HYDRA build details:\s+Version:\s*([\d.]+)", "mpich", "MPICH (Hydra)"),
)
"""Patterns in the output of ``mpiexec --version``, each with the launcher dialect and the name of the MPI library."""
_USUAL = "mpich"
"""Fallback dialect if no launcher is found, or its library is not recognized."""


def match_banner(text: str) -> tuple[str, str, str] | None:
    """Parse dialect, library and version from ``mpiexec --version``. Return None if the library is unknown."""
    matches = ((kind, name, re.search(pattern, text)) for pattern, kind, name in _BANNERS)
    return next(((kind, name, match[1] or "") for kind, name, match in matches if match), None)


def find_sibling(name: str) -> str | None:
    """Return the path of a program next to this interpreter. Return None if it is missing, or if `name` is a path."""
    sibling = None if "/" in name else Path(sys.executable).with_name(name)
    return str(sibling) if sibling and sibling.is_file() else None


def find_kind(program: str | None) -> str:
    """Detect the launcher dialect of a site with ``kind: auto``.

    Parameters
    ----------
    program
        Path of the launcher. The default is the launcher next to this interpreter. If there is none, the launcher on
        PATH is used.
    """
    for name in [program] if program else ["mpiexec", "mpirun"]:
        outcome = attempt([find_sibling(name) or name, "--version"])
        if outcome.status is not None and (banner := match_banner(outcome.out + outcome.err)):
            return banner[0]
    return _USUAL
