"""Launch lines: worked examples from site manuals and user scripts, refusals with reasons, and the arithmetic."""

import math
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.batch.launchers import launch_line
from hpcbench.batch.shape import Shape, check, shape
from hpcbench.batch.site import Site

NODES: dict[str, dict[str, Any]] = {
    "summit": {"gpus": 6, "cores": 42, "sockets": 2},
    "lassen": {"gpus": 4, "cores": 40, "sockets": 2},
    "frontier": {"gpus": 8, "cores": 56, "sockets": 1},
    "perlmutter": {"gpus": 4, "cores": 64, "sockets": 1, "threads_per_core": 2},
    "mn5": {"gpus": 4, "cores": 80, "sockets": 2},
    "ls6": {"gpus": 3, "cores": 128, "sockets": 2},
    "vista": {"gpus": 1, "cores": 72, "sockets": 1},
}


def site(name: str, kind: str, visibility: str = "one", *, gpu_aware: bool = False, **changes: Any) -> Site:
    return Site.model_validate(
        {
            "site": name,
            "scheduler": {"kind": "slurm"},
            "node": {**NODES[name], **changes.pop("node", {})},
            "launcher": {"kind": kind, "visibility": visibility, **changes.pop("launcher", {})},
            "device": "cuda",
            "gpu_aware_mpi": gpu_aware,
            "threads": 1,
            "checked": "never",
            **changes,
        }
    )


def line(where: Site, nodes: int, per_node: int, gpus: Fraction | int | None = None) -> str:
    part = None if gpus is None else Fraction(gpus)
    return " ".join(launch_line(shape(where, nodes=nodes, ranks_per_node=per_node, gpus_per_rank=part), where))


@pytest.mark.parametrize(
    ("where", "nodes", "per_node", "gpus", "expected"),
    [
        # OLCF's Summit guide: -n12 -r6 -c7 -g1 -a1
        (site("summit", "jsrun"), 2, 6, 1, "jsrun -n 12 -r 6 -a 1 -c 7 -g 1 -b packed:7 -d packed"),
        (site("summit", "jsrun", "socket"), 2, 6, 1, "jsrun -n 4 -r 2 -a 3 -c 21 -g 3 -b packed:7 -d packed"),
        (site("summit", "jsrun", "all"), 2, 6, 1, "jsrun -n 2 -r 1 -a 6 -c 42 -g 6 -b packed:7 -d packed"),
        (site("summit", "jsrun"), 2, 12, Fraction(1, 2), "jsrun -n 12 -r 6 -a 2 -c 7 -g 1 -b packed:3 -d packed"),
        # QMCPACK's Nexus, n2_g6
        (site("summit", "jsrun"), 2, 42, Fraction(1, 7), "jsrun -n 12 -r 6 -a 7 -c 7 -g 1 -b packed:1 -d packed"),
        (site("summit", "jsrun"), 4, 2, 3, "jsrun -n 8 -r 2 -a 1 -c 21 -g 3 -b packed:21 -d packed"),
        # sandialabs/tenzing, 16 nodes: -n 64 -r 4
        (site("lassen", "jsrun"), 16, 4, 1, "jsrun -n 64 -r 4 -a 1 -c 10 -g 1 -b packed:10 -d packed"),
        (
            site("lassen", "jsrun", gpu_aware=True),
            16,
            4,
            None,
            "jsrun -n 64 -r 4 -a 1 -c 10 -g 1 -b packed:10 -d packed --smpiargs=-gpu",
        ),
        (site("lassen", "jsrun"), 16, 8, None, "jsrun -n 64 -r 4 -a 2 -c 10 -g 1 -b packed:5 -d packed"),
        (site("lassen", "jsrun", "all"), 2, 4, 1, "jsrun -n 2 -r 1 -a 4 -c 40 -g 4 -b packed:10 -d packed"),
        (site("lassen", "lrun", gpu_aware=True), 16, 4, 1, "lrun -N16 -T4 -M -gpu"),
        (site("lassen", "lrun", "all"), 2, 4, 1, "lrun -N2 -T4 --gpubind=off"),
        (
            site("frontier", "srun"),  # OLCF's Frontier guide
            2,
            8,
            1,
            "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 --gpus-per-task=1 --gpu-bind=closest",
        ),
        (
            site("perlmutter", "srun", "all"),  # warpx Tools/machines/perlmutter-nersc: -c 32 counts hardware threads
            2,
            4,
            1,
            "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --cpu-bind=cores --gpus-per-node=4 "
            "--gpu-bind=none",
        ),
        (site("mn5", "openmpi"), 4, 4, 1, "mpirun -np 16 --map-by ppr:4:node:PE=20 --bind-to core"),
        (site("vista", "ibrun"), 4, 1, 1, "ibrun"),
        (site("ls6", "ibrun"), 2, 3, 1, "ibrun"),
        (site("lassen", "mpich"), 2, 4, 1, "mpiexec -n 8 -ppn 4 -bind-to none"),
        (site("lassen", "mpich", device="cpu", oversubscribe=True), 1, 100, None, "mpiexec -n 100 -bind-to none"),
        (
            site("lassen", "openmpi", device="cpu", oversubscribe=True),
            1,
            100,
            None,
            "mpirun -np 100 --map-by ppr:100:node:oversubscribe --bind-to none",
        ),
        (
            site(
                "lassen",
                "srun",
                device="cpu",
                launcher={"kind": "srun", "args": ["--mpi=pmi2"], "program": "/x y/srun"},
            ),
            1,
            4,
            None,
            "/x y/srun --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=10 --cpu-bind=cores --mpi=pmi2",
        ),
    ],
)
def test_worked_examples(where: Site, nodes: int, per_node: int, gpus: Fraction | int | None, expected: str) -> None:
    assert line(where, nodes, per_node, gpus) == expected


@pytest.mark.parametrize(
    ("where", "per_node", "gpus", "says"),
    [
        (site("summit", "jsrun"), 8, 1, "8 ranks x 1 GPUs = 8: a node of summit has 6"),
        (site("lassen", "jsrun"), 6, 1, "has 4"),
        (site("ls6", "ibrun"), 4, 1, "has 3"),
        (site("vista", "ibrun"), 2, 1, "has 1"),
        (site("lassen", "lrun"), 42, None, "42 ranks: a node of lassen has 40 usable cores"),
        (site("lassen", "lrun"), 2, 2, "lrun gives a rank one GPU"),
        (site("lassen", "lrun", "socket"), 4, 1, "one GPU or all"),
        (site("summit", "jsrun", node={"gpu_exclusive": True}), 12, None, "take one process each"),
        (site("summit", "jsrun"), 7, Fraction(1, 2), "do not share GPUs 2 at a time"),
        (site("summit", "jsrun", "socket"), 5, 1, "do not divide into 2 resource sets"),
        (site("summit", "jsrun"), 4, Fraction(2, 3), "a whole number, or one part"),
        (site("lassen", "srun"), 8, None, "srun gives a rank whole GPUs"),
        (site("lassen", "srun", threads=11), 4, 1, "11 threads a rank"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(where: Site, per_node: int, gpus: Any, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        line(where, 2, per_node, gpus)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("per_node", "cores", "says"),
    [(5, 10, "5 ranks x 10 cores: a node of summit has 42"), (5, 8, "2 fit a socket, 4 a node"), (4, 8, None)],
)
def test_cores_do_not_straddle_sockets(per_node: int, cores: int, says: str | None) -> None:
    asked = Shape(2, per_node, Fraction(1), cores, 1)
    if says is None:
        check(asked, site("summit", "jsrun"))
        return
    with pytest.raises(ValueError, match=re.escape(says)):
        check(asked, site("summit", "jsrun"))


@given(
    node=st.sampled_from(sorted(NODES)),
    nodes=st.integers(1, 64),
    per_node=st.integers(1, 130),
    visibility=st.sampled_from(["one", "socket", "all"]),
    device=st.sampled_from(["cpu", "cuda"]),
)
def test_every_accepted_line_says_the_ranks_and_never_more_than_the_node_has(
    node: str, nodes: int, per_node: int, visibility: str, device: str
) -> None:
    have = NODES[node]
    for kind in ("jsrun", "lrun", "srun", "mpich", "openmpi"):
        where = site(node, kind, visibility, device=device)
        try:
            argv = launch_line(shape(where, nodes=nodes, ranks_per_node=per_node), where)
        except ValueError:
            continue
        text = " ".join(argv)
        ranks = nodes * per_node
        if kind == "jsrun":
            n, r, a, c, g, b = (int(x) for x in re.findall(r"-(?:[nracg]|b packed:?)[ ]?(\d+)", text))
            assert n * a == ranks and n == nodes * r
            assert r * c <= have["cores"] and r * g <= have["gpus"] and a * b <= max(c, a)
            if device == "cuda" and visibility == "one":
                assert a * r <= have["gpus"] * math.ceil(per_node / have["gpus"])
        elif kind == "lrun":
            assert re.search(rf"-N{nodes} -T{per_node}\b", text)
        elif kind == "srun":
            said = {k: int(v) for k, v in re.findall(r"--([a-z-]+)=(\d+)", text)}
            assert (said["nodes"], said["ntasks"], said["ntasks-per-node"]) == (nodes, ranks, per_node)
            assert per_node * said["cpus-per-task"] <= have["cores"] * have.get("threads_per_core", 1)
            assert per_node * said.get("gpus-per-task", 0) <= have["gpus"]
        else:
            assert re.search(rf"-np? {ranks}\b", text)
        assert per_node <= have["cores"]


@given(node=st.sampled_from(sorted(NODES)), per_node=st.integers(1, 130))
def test_plain_cpu_ranks_are_refused_exactly_when_cores_run_out(node: str, per_node: int) -> None:
    where = site(node, "mpich", "all", device="cpu")
    if per_node <= NODES[node]["cores"]:
        assert line(where, 1, per_node).startswith(f"mpiexec -n {per_node} ")
    else:
        with pytest.raises(ValueError, match="usable cores"):
            line(where, 1, per_node)
