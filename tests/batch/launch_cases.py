"""Sites and a parser of launch commands, for tests of launchers and node shapes."""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.sites.site import Site
from hpcbench.batch.sites.site_rules import faults

SCHEDULER = {"jsrun": "lsf", "lrun": "lsf", "flux": "flux"}


def site(name: str, **changes: Any) -> Site:
    """Return a shipped site with changed fields.

    Parameters
    ----------
    changes
        Dotted field names with ``__`` for the dots, and their values. The launcher's kind also sets the scheduler.
    """
    data = _shipped(name).model_dump(exclude_unset=True)
    data = {**data, "gpu_aware_mpi": False, "threads": 1, "environment": {}}
    for key, value in changes.items():
        head, _, field = key.partition("__")
        if not field:
            data[head] = value
            continue
        data[head] = {**data.get(head, {}), field: value}
        if key == "launcher__kind":
            data["launcher"] = {"kind": value}
    site = Site.model_validate(data)
    assert not [fault for fault in faults(site) if fault.path[0] == "node"]
    return site


@cache
def _shipped(name: str) -> Site:
    return load_site(name)[0]


def line(where: Site, nodes: int, per_node: int) -> str:
    return " ".join(solve(where, nodes=nodes, ranks_per_node=per_node)[1])


def counts(argv: Sequence[str]) -> dict[str, int | Fraction]:
    """Return the numbers of nodes, ranks, ranks per node, and cores and GPUs per rank in a launch command.

    The parser follows the manuals, not the code under test. It accepts short options with or without a space, and long
    options with a space or an equals sign.
    """
    program, text = argv[0].rsplit("/", 1)[-1], " ".join(argv[1:])

    def number(*names: str) -> int | None:
        for name in names:
            match = re.search(rf"(?:^|\s){name}(?:[= ]{'?' if re.fullmatch('-[A-Za-z]', name) else ''})(\d+)\b", text)
            if match:
                return int(match[1])
        return None

    options: dict[str, int | Fraction | None] = {}
    if program == "jsrun":
        sets, on_node, ranks, gpus = (number(name) for name in ("-n", "-r", "-a", "-g"))
        assert sets and on_node and ranks and gpus is not None and sets % on_node == 0
        options = {
            "nodes": sets // on_node,
            "ranks": sets * ranks,
            "per_node": on_node * ranks,
            "gpus": Fraction(gpus, ranks),
        }
        options["cores"] = int(re.search(r"packed:(\d+)", text)[1])  # type: ignore[index]
        assert options["cores"] * ranks <= number("-c")  # type: ignore[operator]
    elif program == "lrun":
        options = {"nodes": number("-N"), "per_node": number("-T")}
    elif program == "srun":
        options = {
            "nodes": number("-N", "--nodes"),
            "ranks": number("-n", "--ntasks"),
            "per_node": number("--ntasks-per-node"),
        }
        options |= {"cores": number("-c", "--cpus-per-task"), "gpus": number("--gpus-per-task")}
    elif program == "flux":
        options = {
            "nodes": number("-N", "--nodes"),
            "ranks": number("-n", "--ntasks"),
            "per_node": number("--tasks-per-node"),
        }
        options |= {"cores": number("-c", "--cores-per-task"), "gpus": number("-g", "--gpus-per-task")}
        by_task, by_node = {"ranks", "cores", "gpus"}, {"per_node"}
        assert not (any(options[k] for k in by_task) and any(options[k] for k in by_node)), "mixed families"
    elif program == "mpirun_rsh":
        options = {"ranks": number("-np"), "cores": number("MV2_THREADS_PER_PROCESS")}
    elif program == "mpirun":
        match = re.search(r"ppr:(\d+):node(?::PE=(\d+))?", text)
        assert match
        options = {
            "ranks": number("-np", "-n"),
            "per_node": int(match[1]),
            "cores": int(match[2]) if match[2] else None,
        }
    elif program == "mpiexec":
        ranks = number("-n", "-np")
        options = {"ranks": ranks, "per_node": number("-ppn") or ranks}
        match = re.search(r"-bind-to core:(\d+)", text)
        options["cores"] = int(match[1]) if match else None
    counts = {name: value for name, value in options.items() if value is not None}
    if "nodes" in counts and "per_node" in counts:
        assert counts.setdefault("ranks", counts["nodes"] * counts["per_node"]) == counts["nodes"] * counts["per_node"]
    return counts
