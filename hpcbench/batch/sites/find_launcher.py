"""Which MPI library the launcher on this machine belongs to."""

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
"""What ``mpiexec --version`` says, the dialect of launchers that it belongs to, and a name for people."""
_USUAL = "mpich"
"""Where there is none, or it does not say whose it is."""
_PATIENCE = 10.0


def find_kind(program: str | None) -> str:
    """The dialect of the launcher that a site leaves open.

    Parameters
    ----------
    program
        Its path, where the site names it; by default that beside our interpreter, else that on PATH.
    """
    for name in [program] if program else ["mpiexec", "mpirun"]:
        beside = None if "/" in name else Path(sys.executable).with_name(name)
        path = str(beside) if beside and beside.is_file() else shutil.which(name)
        if path is None:
            continue
        try:
            said = subprocess.run([path, "--version"], capture_output=True, timeout=_PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        text = (said.stdout + said.stderr).decode("utf-8", "replace")
        for pattern, kind, shown in BANNERS:
            if re.search(pattern, text, re.DOTALL if "HYDRA" in shown.upper() else 0):
                return kind
    return _USUAL
