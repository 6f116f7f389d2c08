"""Command that the launcher starts for each rank or node.

    python -m hpcbench.programs.rank RUN.json MEETING

The command sets torchrun's variables and executes the program. Rank 0 writes its host and port to a file next to the
run file, which all ranks can read.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from hpcbench.contract.interpose import VARIABLE, Interposition
from hpcbench.contract.process_changes import split_arguments
from hpcbench.contract.program import ProgramRun, load
from hpcbench.errors import UserError
from hpcbench.features.network.sampler import start_sampler
from hpcbench.files import read_json, shown_path
from hpcbench.programs.launch import environment
from hpcbench.train.applied import describe_applied
from hpcbench.train.container import check_version
from hpcbench.train.process_start import add_preload, execute_setup

PLACES = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # Hydra of MPICH and Intel MPI
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
"""Launcher variables for the rank, the number of ranks, and the local rank."""
APPLIED = "applied.json"
"""File of a run with the event that describes how the scheme changed the first rank's process."""
NETWORK = "network"
"""Subdirectory of a run with network-counter samples, one file per node."""
_PATIENCE_S = 300.0


def place(variables: Mapping[str, str]) -> tuple[int, int, int | None]:
    """Return the rank, the number of ranks, and the local rank if set. A process without a launcher is rank 0 of 1."""
    for rank, size, local in PLACES:
        if rank in variables and size in variables:
            here = variables.get(local)
            return int(variables[rank]), int(variables[size]), int(here) if here is not None else None
    return 0, 1, None


def meeting_point(path: Path, *, first: bool, one_node: bool) -> tuple[str, int]:
    """Return the host and port of the rendezvous.

    Parameters
    ----------
    path
        File written by the first process.
    first
        Whether this process is the first process.
    one_node
        Whether all ranks are on one node, so that no host name must be resolved.

    Raises
    ------
    UserError
        The first process has not written the file in time.
    """
    if first:
        with socket.socket() as free:
            free.bind(("", 0))
            port = int(free.getsockname()[1])
        host = "127.0.0.1" if one_node else socket.getfqdn()
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"host": host, "port": port}), encoding="utf-8")
        part.replace(path)
        return host, port
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        address = read_json(path)
        if address is not None:
            return str(address["host"]), int(address["port"])
        time.sleep(0.05)
    raise UserError(
        f"{path}: does not exist after {_PATIENCE_S:.0f} s: check that the first rank has started, and that all "
        "nodes share this file system"
    )


def prepared(
    run: ProgramRun, path: Path, meeting: str, variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the program's command and environment.

    Raises
    ------
    UserError
        The launcher started the wrong number of processes, or the first process did not publish its address in time.
    """
    rank, size, local = place(variables)
    nodes, per_node = run.shape.nodes, run.shape.ranks_per_node
    planned = run.ranks if run.program.start == "rank" else nodes
    if size != planned:
        raise UserError(f"{path}: the launcher has started {size} processes, but {planned} were requested")
    host, port = meeting_point(path.parent / f"meeting-{meeting}.json", first=rank == 0, one_node=nodes == 1)
    values: dict[str, object] = {
        "seed": run.program.seed,
        "ranks": run.ranks,
        "nodes": nodes,
        "ranks_per_node": per_node,
        "node_rank": rank if run.program.start == "node" else rank // per_node,
        "host": host,
        "port": port,
        "run": str(path.parent),
    }
    environ = {"PYTHONUNBUFFERED": "1", **variables}
    if run.program.start == "rank":
        local = rank % per_node if local is None else local
        environ |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(per_node),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
        }
    environ |= {**run.program.fill_environment(values), **run.scheme.environment}
    if run.interposed:
        settings = Interposition(scheme=run.scheme, groups=run.program.groups, out=str(path.parent / "ranks"))
        environ = environment(settings, environ)
    else:
        environ.pop(VARIABLE, None)
    command = interpreted(run.program.fill_command(values, split_arguments(run.scheme.arguments)))
    return command, add_preload(run.scheme, environ)


def observe(run: ProgramRun, path: Path, command: list[str], variables: Mapping[str, str]) -> None:
    """Start the network-counter sampler on each node, and describe the first rank's process in a file."""
    rank, _, local = place(variables)
    per_node = run.shape.ranks_per_node
    first_on_node = run.program.start == "node" or (rank % per_node if local is None else local) == 0
    if first_on_node:
        node = rank if run.program.start == "node" else rank // per_node
        directory = path.parent / NETWORK
        directory.mkdir(exist_ok=True)
        start_sampler(directory / f"{os.uname().nodename}-{node}.jsonl", os.getpid())
    if rank == 0:
        applied = describe_applied(run.scheme, command, variables)
        (path.parent / APPLIED).write_text(applied.to_line() + "\n", encoding="utf-8")


def interpreted(command: list[str]) -> list[str]:
    """Replace `python` by this interpreter, and `torchrun` by the torchrun of this interpreter."""
    if command[0] in ("python", "python3"):
        return [sys.executable, *command[1:]]
    if command[0] == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", *command[1:]]
    return command


def main(arguments: list[str]) -> int:
    """Replace this process by the program. Return an exit status only on failure."""
    path = Path(arguments[0]).absolute()
    try:
        check_version()
        run = load(path)
        execute_setup(run.scheme, [sys.executable, "-u", "-m", "hpcbench.programs.rank", *arguments], os.environ)
        command, variables = prepared(run, path, arguments[1], os.environ)
        observe(run, path, command, variables)
        _become(run, command, variables)
    except UserError as error:
        print(f"hpcbench.programs: {error}", file=sys.stderr)
    return 2


def _become(run: ProgramRun, command: list[str], variables: dict[str, str]) -> None:
    try:
        os.chdir(run.directory)
    except OSError as error:
        raise UserError(f"{shown_path(run.directory)}: {error.strerror}: check program.directory") from None
    try:
        os.execvpe(command[0], command, variables)
    except OSError as error:
        raise UserError(f"{shown_path(run.program.command)}: {error.strerror}: check program.command") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
