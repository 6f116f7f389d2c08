"""Check of how the command of a program starts its ranks."""

import re
import shlex

from hpcbench.contract.program import Program

_PER_NODE = ("torchrun", "accelerate", "deepspeed")
_LAUNCHERS = ("mpirun", "mpiexec", "srun", "jsrun", "lrun", "ibrun")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_TORCHRUN = "--nnodes {nodes} --node-rank {node_rank} --master-addr {host} --master-port {port}"


def find_start_fault(program: Program, nodes: int) -> str | None:
    """Return the reason why the command would start a wrong number of ranks, or None."""
    arguments = _skip_variables(shlex.split(program.command))
    starter = _find_starter(arguments)
    if starter is None:
        return None
    if program.start == "rank":
        launcher = starter in _LAUNCHERS
        remedy = "remove it, and give" if launcher else "set program.start: node, or give"
        return (
            f"{starter} starts ranks, but the site's launcher already starts the command once for each rank: {remedy} "
            "the command of one rank, such as python train.py"
        )
    is_torchrun = starter in ("torchrun", *_MODULES[:2])
    if not is_torchrun or nodes == 1 or any(name.startswith("PET_") for name in program.env):
        return None
    if "--standalone" in arguments:
        return f"--standalone would start a separate world on each of the {nodes} nodes: use {_TORCHRUN}"
    if not any(re.match(r"--nn", word) for word in arguments):
        return f"without --nnodes, {starter} starts a separate world on each of the {nodes} nodes: add {_TORCHRUN}"
    return None


def _find_starter(arguments: list[str]) -> str | None:
    """Return the program or module that starts ranks, or None if the command starts a single process."""
    name = arguments[0].rpartition("/")[2] if arguments else ""
    if name in (*_PER_NODE, *_LAUNCHERS):
        return name
    if re.fullmatch(r"python[\d.]*", name) and "-m" in arguments[:-1]:
        module = arguments[arguments.index("-m") + 1]
        return module if module in _MODULES else None
    return None


def _skip_variables(arguments: list[str]) -> list[str]:
    """Return the command without `env` and variables in front of it."""
    start = next(
        (k for k, word in enumerate(arguments) if word != "env" and not re.match(r"\w+=", word)), len(arguments)
    )
    return arguments[start:]
