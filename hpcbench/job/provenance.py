"""Provenance of a job: its environment, modules, limits and devices, as commands on its first node print them."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.contract.times import format_now
from hpcbench.job.stop_requests import StopRequests

LIMIT = 20.0
"""Seconds for all commands together. A command that hangs does not keep the runs waiting."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEY")
_ADDRESS_WITH_PASSWORD = re.compile(r"://.*:.*@", re.DOTALL)


def record_provenance(
    directory: Path,
    environment: Mapping[str, str],
    requests: StopRequests,
    *,
    describe_job: Sequence[str],
    describe_python: Sequence[str],
) -> None:
    """Write the output of each command to ``NAME.txt``.

    Parameters
    ----------
    directory
        The directory of the files. It is created.
    environment
        Variables of the runs.
    requests
        A signal ends the recording.
    describe_job, describe_python
        Commands that describe the job and the interpreter of the ranks; empty for none.

    Notes
    -----
    Standard input contains the list of loaded modules, because `module` is often a function of the job script's shell.
    """
    directory.mkdir(exist_ok=True)
    commands: dict[str, Sequence[str]] = {
        "python": describe_python,
        "limits": ("bash", "-c", "ulimit -a"),
        "system": ("uname", "-a"),
        "nvidia-smi": ("nvidia-smi", "-q"),
        "rocm-smi": ("rocm-smi", "-a"),
        "job": describe_job,
        "environment": _print_variables(environment),
        "modules": ("cat",),
    }
    path = environment.get("PATH")
    processes = []
    for name, command in commands.items():
        if not command or shutil.which(command[0], path=path) is None:
            continue
        mode = 0o600 if name == "environment" else 0o666  # no filter knows all secrets that it may contain
        descriptor = os.open(directory / f"{name}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as out:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=None if name == "modules" else subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=os.setpgrp,
            )
        processes.append(process)
    deadline = time.monotonic() + LIMIT
    while any(process.poll() is None for process in processes) and requests.leaving is None:
        if time.monotonic() > deadline:
            print(f"{format_now()} provenance: not complete after {LIMIT:.0f} s", file=sys.stderr, flush=True)
            break
        requests.wait(0.02)
    for process in processes:
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
    modules = directory / "modules.txt"
    if not modules.stat().st_size:
        modules.unlink()


def _print_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the command that prints variables as bash quotes them, sorted, without secrets."""
    shell = r'for _var; do [[ $_var = "#"* ]] && echo "$_var" || printf "%s=%q\n" "$_var" "${!_var}"; done'
    words = []
    for name in sorted(environment):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            continue  # such as functions that bash exports
        secret = _SECRET.search(name.upper()) or _ADDRESS_WITH_PASSWORD.search(environment[name])
        words.append(f"# {name} is left out" if secret else name)
    return ["bash", "-c", shell, "bash", *words]
