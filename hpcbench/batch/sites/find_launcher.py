"""Detection of the MPI library of this machine's launcher."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

BANNERS = (
    (r"IBM Spectrum MPI\)?\s*([\d.]+)?", "openmpi", "IBM Spectrum MPI"),
    (r"(?:Open MPI|OpenRTE|PRRTE)\)?\s*(?:v|version\s*)?([\d.]+)?", "openmpi", "Open MPI"),
    (r"Intel\(R\) MPI Library.*?Version\s+([\d.]+)", "mpich", "Intel MPI"),
    (r"HYDRA build details:\s+Version:\s*([\d.]+)", "mpich", "MPICH (Hydra)"),
)
"""Pattern of the output of ``mpiexec --version``, launcher dialect, and name of the library."""
_USUAL = "mpich"
"""Dialect if no launcher is found, or its library is not recognized."""
_PATIENCE = 10.0


def find_kind(program: str | None) -> str:
    """Detect the dialect of the launcher of a site with ``kind: auto``.

    Parameters
    ----------
    program
        Path of the launcher; by default the one next to this interpreter, else the one on PATH.
    """
    for name in [program] if program else ["mpiexec", "mpirun"]:
        sibling = None if "/" in name else Path(sys.executable).with_name(name)
        path = str(sibling) if sibling and sibling.is_file() else shutil.which(name)
        if path is None:
            continue
        try:
            done = subprocess.run([path, "--version"], capture_output=True, timeout=_PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        for pattern, kind, shown in BANNERS:
            if re.search(pattern, text, re.DOTALL if "HYDRA" in shown.upper() else 0):
                return kind
    return _USUAL
