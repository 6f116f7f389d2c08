"""Programs that PyPI does not provide, the tests that need them, and their packages in Debian and Ubuntu.

``python3 tests/tools.py build|test`` installs missing programs if permitted, as `make` does. The script runs before the
virtual environment exists. If a program cannot be installed, the tests that need it are skipped (see needs.py).
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Tool(NamedTuple):
    """The tests that need a program, and the package that contains the program."""

    user: str
    package: str


_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
BUILD = {"g++": Tool("the kernels", "g++"), "ensurepip": Tool("the virtual environment", f"{_PYTHON}-venv")}
"""Programs that every installation requires."""
_HOSTS, _SLURM, _OTHERS = "virtual hosts", "a Slurm cluster of one machine", "the kernels of Arm and POWER"
TEST = {
    "aarch64-linux-gnu-g++": Tool(_OTHERS, "g++-aarch64-linux-gnu"),
    "chromedriver": Tool("the report's page in a browser", "chromium-driver"),
    "chromium": Tool("the report's page in a browser", "chromium"),
    "ch-run": Tool("training in a container", "charliecloud"),
    "cmake": Tool(_OTHERS, "cmake"),
    "git": Tool("provenance in a git checkout", "git"),
    "hostname": Tool(_HOSTS, "hostname"),
    "ip": Tool(_HOSTS, "iproute2"),
    "mariadb": Tool(_SLURM, "mariadb-server"),
    "mariadb-install-db": Tool(_SLURM, "mariadb-server"),
    "mariadbd": Tool(_SLURM, "mariadb-server"),
    "mount": Tool("virtual hosts and full disks", "mount"),
    "munge": Tool(_SLURM, "munge"),
    "munged": Tool(_SLURM, "munge"),
    "nsenter": Tool(_HOSTS, "util-linux"),
    "powerpc64le-linux-gnu-g++": Tool(_OTHERS, "g++-powerpc64le-linux-gnu"),
    "qemu-aarch64": Tool(_OTHERS, "qemu-user"),
    "qemu-ppc64le": Tool(_OTHERS, "qemu-user"),
    "sbatch": Tool(_SLURM, "slurm-wlm"),
    "slurmctld": Tool(_SLURM, "slurm-wlm"),
    "slurmd": Tool(_SLURM, "slurm-wlm"),
    "slurmdbd": Tool(_SLURM, "slurmdbd"),
    "tc": Tool(_HOSTS, "iproute2"),
    "unshare": Tool("virtual hosts and containers", "util-linux"),
}
"""Programs that are on PATH only for tests with the fixture ``need``."""
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::http::Timeout=30")
_INSTALL = ("install", "-y", "--no-install-recommends")
_POLICY = Path("/usr/sbin/policy-rc.d")
"""Policy program. Debian's scripts start a package's daemon only if this program permits it."""


def explain_missing(*programs: str) -> str | None:
    """If a program is missing, return a line that names the untested parts and the remedy, otherwise None."""
    missing = [name for name in programs if not is_installed(name)]
    if not missing:
        return None
    packages = dict.fromkeys(TEST[name].package for name in missing)
    return f"{TEST[missing[0]].user}: {', '.join(missing)} missing here: {show_command(packages)}"


def is_installed(name: str) -> bool:
    """Return whether a program, or a part of Python that Debian packages separately, exists."""
    if name == "ensurepip":
        return importlib.util.find_spec(name) is not None
    return shutil.which(name) is not None


def show_command(packages: dict[str, None]) -> str:
    """Return the command that installs these packages."""
    return f"apt-get install --no-install-recommends {' '.join(packages)}"


def list_packages(kind: str) -> dict[str, None]:
    """Return the packages of missing programs of a kind, ``build`` or ``test``."""
    tools = {"build": BUILD, "test": TEST}[kind]
    return dict.fromkeys(tool.package for name, tool in tools.items() if not is_installed(name))


def install(packages: dict[str, None], policy: Path = _POLICY) -> None:
    """Print one line, and install packages with apt-get if the user is root on Debian or Ubuntu.

    Packages that the distribution does not provide are skipped. No package starts a daemon, because tests start their
    own.
    """
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"installing Debian packages that are missing here: {show_command(packages)}", flush=True)
    _run_apt("update")
    with _without_daemons(policy):
        error = _run_apt(*_INSTALL, *packages)
        if error:
            print(f"apt-get: {error}", file=sys.stderr)
            available = [name for name in packages if not _run_apt(*_INSTALL, "--simulate", name)]
            if available:
                _run_apt(*_INSTALL, *available)


def _run_apt(*arguments: str) -> str:
    """Run apt-get. Return the last line of the error output, or an empty string on success."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [*_APT, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
    return lines[-1] if done.returncode else ""


@contextmanager
def _without_daemons(policy: Path) -> Iterator[None]:
    if policy.exists():  # keep an existing policy
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def main(kind: str) -> int:
    """Install the programs of a kind. Return 2 if a program that the build needs is still missing."""
    install(list_packages(kind))
    importlib.invalidate_caches()
    missing = list_packages(kind)
    if kind == "build" and missing:
        print(f"hpcbench cannot be built here without {', '.join(missing)}: {show_command(missing)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
