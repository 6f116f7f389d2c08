"""Provenance of a job: environment, modules, limits, and devices, recorded by commands on the first node."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.contract.times import format_now
from hpcbench.job.messages import print_error
from hpcbench.job.stop_requests import StopRequests
from hpcbench.secret_variables import may_be_secret

LIMIT = 20.0
"""Total time limit for all commands in seconds, so that a hanging command does not delay the runs."""
_SHELL = ("bash", "-p", "-c")
"""A shell that ignores BASH_ENV."""


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
        Output directory, which is created.
    environment
        Environment variables of the runs.
    requests
        Stop requests. The recording ends when a signal arrives.
    describe_job, describe_python
        Commands that describe the job and the ranks' interpreter. An empty command is skipped.

    Notes
    -----
    The list of loaded modules is read from stdin, because `module` is often a shell function in the job script.
    """
    commands: dict[str, Sequence[str]] = {
        "python": describe_python,
        "limits": (*_SHELL, "ulimit -a"),
        "system": ("uname", "-a"),
        "nvidia-smi": ("nvidia-smi", "-q"),
        "rocm-smi": ("rocm-smi", "-a"),
        "job": describe_job,
        "environment": _print_variables(environment),
        "modules": ("cat",),
    }
    with contextlib.suppress(OSError):
        directory.mkdir(exist_ok=True)
    processes = []
    for name, command in commands.items():
        if command and shutil.which(command[0], path=environment.get("PATH")) is not None:
            with contextlib.suppress(OSError):  # Failures, such as a full disk, do not stop the job.
                processes.append(_start(directory / f"{name}.txt", command, environment))
    deadline = time.monotonic() + LIMIT
    while any(process.poll() is None for process in processes) and requests.leaving is None:
        if time.monotonic() > deadline:
            print_error(f"{format_now()} provenance: not complete after {LIMIT:.0f} s")
            break
        requests.wait(0.02)
    for process in processes:
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
    modules = directory / "modules.txt"
    with contextlib.suppress(OSError):
        if not modules.stat().st_size:
            modules.unlink()


def _start(path: Path, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a command with stdout and stderr redirected to a file."""
    mode = 0o600 if path.stem == "environment" else 0o666  # the filter may miss secrets
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as out:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=None if path.stem == "modules" else subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            preexec_fn=os.setpgrp,
        )


def _print_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a command that prints sorted, bash-quoted variables without secrets."""
    shell = r'for _var; do [[ $_var = "#"* ]] && echo "$_var" || printf "%s=%q\n" "$_var" "${!_var}"; done'
    arguments = []
    for name in sorted(environment):
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):  # other lines are exported bash functions
            arguments.append(f"# {name} is left out" if may_be_secret(name, environment[name]) else name)
    return [*_SHELL, shell, "bash", *arguments]
