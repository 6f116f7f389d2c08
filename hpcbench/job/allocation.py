"""Allocation of a job, as described by the scheduler on the first node."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hpcbench.batch.schedulers import flux_answers, lsf_answers, slurm_answers
from hpcbench.batch.schedulers.lsf_hosts import find_lsf_hosts
from hpcbench.job.processes import is_running_here

Lookup = Callable[[str, str], bool | None]
"""Function that takes a job id and the identity of the script's process.

The function returns whether the scheduler lists the job as unfinished, or None if this is unknown.
"""

_TIMEOUT = 60.0
_SLURM_OVER = {name for name, state in slurm_answers.STATES.items() if not state.alive}
_LSF_LISTED = "|".join(name for name in lsf_answers.STATES if name not in ("DONE", "EXIT"))
_LSF_ALIVE = re.compile(rf"^[0-9]+ +[^ ]+ +({_LSF_LISTED}) ", re.MULTILINE)
_FLUX_ALIVE = {name for name, state in flux_answers.STATES.items() if state.alive}


@dataclass(frozen=True)
class Allocation:
    """Nodes and name of a job, and functions to query the scheduler."""

    hosts: Sequence[str]
    """Host names of the job's nodes."""
    is_listed: Lookup
    name: str = ""
    """Name of the job in the queue, or an empty string if the scheduler does not report it."""
    describe: Sequence[str] = ()
    """Command whose output describes the job."""


def read_allocation(scheduler: str, id: str, environment: Mapping[str, str], *, easy: bool) -> Allocation:
    """Return the allocation of the current job.

    Parameters
    ----------
    scheduler
        ``slurm``, ``lsf``, ``flux`` or ``local``.
    id
        Scheduler id of the job.
    environment
        Variables set by the scheduler.
    easy
        Whether LSF allocates whole nodes.
    """
    if scheduler == "slurm":
        nodes = environment.get("SLURM_JOB_NODELIST", "")
        output = _ask("scontrol", "show", "hostnames", nodes)
        hosts = output.splitlines() if output is not None else [nodes]
        name = environment.get("SLURM_JOB_NAME", "")
        return Allocation(hosts, _is_listed_by_slurm, name, ("scontrol", "show", "job", id))
    if scheduler == "lsf":
        name = environment.get("LSB_JOBNAME", "").partition("[")[0]
        return Allocation(find_lsf_hosts(environment, easy=easy), _is_listed_by_lsf, name, ("bjobs", "-l", id))
    if scheduler == "flux":
        output = _ask("flux", "hostlist", "-e", "local")
        output = output if output is not None else _ask("flux", "getattr", "hostlist")
        name = (_ask("flux", "--parent", "jobs", "-n", "-o", "{name}", id) or "").strip()
        return Allocation((output or "").split(), _is_listed_by_flux, name, ("flux", "resource", "list"))
    return Allocation([os.uname().nodename], lambda _, process: is_running_here(process))


def _is_listed_by_slurm(id: str, process: str) -> bool | None:
    del process
    status, output = _query("squeue", "--noheader", "--states=all", f"--jobs={id}", "--format=%T")
    if status:
        return False if "Invalid job id" in output else None
    return not {line.strip() for line in output.splitlines()} <= {*_SLURM_OVER, ""}


def _is_listed_by_lsf(id: str, process: str) -> bool | None:
    del process
    _, output = _query("bjobs", "-a", id)
    if "is not found" in output or "o matching job" in output:
        return False
    return bool(_LSF_ALIVE.search(output)) if re.search(r"JOBID.*STAT", output, re.DOTALL) else None


def _is_listed_by_flux(id: str, process: str) -> bool | None:
    del process
    status, output = _query("flux", "--parent", "jobs", "-n", "-o", "{status}", id)  # a job of the parent instance
    if status:
        return False if "unknown" in output.lower() else None
    return bool(_FLUX_ALIVE & set(output.split()))


def _ask(*command: str) -> str | None:
    """Return the output of a command, or None if the command fails."""
    status, output = _query(*command, errors=subprocess.DEVNULL)
    return output if status == 0 else None


def _query(*command: str, errors: int = subprocess.STDOUT) -> tuple[int, str]:
    """Return the exit status of a command, and its stdout, combined with stderr by default."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, timeout=_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1, ""
    return done.returncode, done.stdout.decode(errors="surrogateescape")
