"""Checks before the first timed step: the correct number of ranks, and enough cores for each rank.

A launcher with the wrong process-management interface does not fail, but starts N worlds of one rank each, and every
world prints results.
"""

import os
import re
from collections import defaultdict
from typing import Any

import torch
from mpi4py import MPI

from hpcbench.contract.run import Run
from hpcbench.errors import UserError
from hpcbench.train import binding, container

OLDEST_TORCH = (2, 5)
"""Oldest version of PyTorch with which the engine was tested."""


def describe(comm: MPI.Comm, run: Run) -> list[dict[str, Any]]:
    """Return the host and cores of each rank, in rank order."""
    description = {**binding.describe(comm, run.device), "threads": run.threads}
    names = [*run.scheme.environment, *(["LD_PRELOAD"] if run.scheme.preload else ())]
    if names:
        description["environment"] = {name: os.environ.get(name) for name in names}
    return comm.allgather(description)


def check(world: list[dict[str, Any]], run: Run) -> None:
    """Reject a world that does not match the requested configuration.

    Raises
    ------
    UserError
        PyTorch is too old, the number of ranks is wrong, an environment variable of the scheme is missing on a rank, or
        ranks x threads exceed the cores of a host.
    """
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise UserError(f"PyTorch {torch.__version__} is too old for training: install {oldest} or later")
    if len(world) != run.ranks:
        raise UserError(
            f"the launcher started a world of {len(world)} ranks, but the run needs {run.ranks}: use a launcher "
            "and an MPI library with the same interface (with srun, try --mpi=pmi2 or "
            f"--mpi=pmix){container.remedy()}"
        )
    _check_environment(world, run)
    hosts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for rank in world:
        hosts[rank["host"]].append(rank)
    for host, ranks in hosts.items():
        cores = {core for rank in ranks for core in rank["cores"]}
        wanted = sum(rank["threads"] for rank in ranks)
        if wanted <= len(cores):
            continue
        shape = f"{host}: {len(ranks)} ranks x {run.threads} threads do not fit on {len(cores)} cores"
        if not run.oversubscribe:
            raise UserError(f"{shape}: use fewer ranks or threads, or set oversubscribe in the site file")
        if run.threads > 1:
            raise UserError(
                f"{shape}: waiting threads spin, so oversubscribed ranks must have one thread each: "
                "set `threads: 1` in "
                "the site file"
            )


def _check_environment(world: list[dict[str, Any]], run: Run) -> None:
    """Check that the scheme's environment variables and preloaded library are present on every rank.

    Launchers differ in the variables that they export, and a rank without the scheme's variables would run a different
    scheme.
    """
    name, library = run.scheme.name, run.scheme.preload
    for rank in world:
        here = f"rank {rank['rank']} on {rank['host']}"
        for variable, value in run.scheme.environment.items():
            value_here = rank["environment"][variable]
            if value_here != value:
                printed = "unset" if value_here is None else repr(value_here)
                raise UserError(
                    f"{here}: {variable} is {printed}, but scheme {name} sets {variable} to {value!r}: start the "
                    "run with its job script, whose launcher must export the variable to all ranks"
                )
        if library and library not in (rank["environment"]["LD_PRELOAD"] or "").split(":"):
            raise UserError(
                f"{here}: LD_PRELOAD does not contain {library}, which scheme {name} preloads: start the run with "
                "its job script"
            )
