"""Tests of the fake jsrun and lrun: rank placement, refusals, and the start of real MPI ranks."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Fake
from fakes.hosts import why_not

from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.site import Site

pytestmark = pytest.mark.long  # in `make test`, other tests submit through it

SAY = (
    'echo "$JSM_NAMESPACE_RANK $JSM_NAMESPACE_SIZE $JSM_NAMESPACE_LOCAL_RANK $CUDA_VISIBLE_DEVICES $HPCBENCH_FAKE_HOST"'
)
REFUSED = "Error: Not enough resources available to schedule job."


def launched(fake: Fake, line: str, *options: str) -> tuple[int, list[str]]:
    """Run a launch line in a job on two nodes. Return the job's exit status and its sorted output."""
    script = f"#!/bin/bash\n{line} > said 2>&1\n"
    done = fake.run("bsub", *(options or ("-nnodes", "2")), stdin=script.encode())
    assert done.returncode == 0, done.stderr
    return fake.wait()[-1].exit or 0, sorted(Path("said").read_text(encoding="utf-8").splitlines())


def test_jsrun_distributes_ranks_and_gpus(lsf: Fake) -> None:
    code, lines = launched(
        lsf, f"jsrun -n 4 -r 2 -a 2 -c 20 -g 2 -b packed:10 -d packed --smpiargs=-gpu bash -c '{SAY}'"
    )
    assert code == 0
    assert lines == [
        "0 8 0 0,1 node1",
        "1 8 1 0,1 node1",
        "2 8 2 2,3 node1",
        "3 8 3 2,3 node1",
        "4 8 0 0,1 node2",
        "5 8 1 0,1 node2",
        "6 8 2 2,3 node2",
        "7 8 3 2,3 node2",
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("jsrun -n 8 -r 4 -a 1 -c 11 -g 1", "4 sets a host of 11 cores and 1 GPUs need 44 and 4; a node has 40 cores"),
        ("jsrun -n 10 -r 5 -a 1 -c 1 -g 1", "5 sets a host"),
        ("jsrun -n 9 -r 4 -a 1 -c 10 -g 1", "9 resource sets, 4 a host, do not fit on 2 hosts"),
        ("jsrun -n 2 -r 1 -a 1 -c 41", "a resource set of 41 cores and 0 GPUs is larger than the node"),
        ("jsrun -n 2 -r 1 -a 4 -c 8 -b packed:10", "4 ranks of a set bound by packed:10 need 40 cores of its 8"),
        ("jsrun -n 8 -x 4", "jsrun: unrecognized option '-x'"),
        ("jsrun --nodes=2", "jsrun: unrecognized option '--nodes=2'"),
        ("jsrun -n two", "Error: Invalid value for --nrs: two"),
        ("jsrun -n 2 -b tight", "Error: Invalid value for bind option: tight"),
        ("jsrun -n 2 -p 4 -a 2", "-p/--np cannot be used with -a"),
        ("lrun -N3 -T4", "lrun: -N3: the allocation has 2 nodes"),
        ("lrun -N2 -T41", "lrun: -T41: a node has 40 cores"),
        ("lrun -N2 -T4 --gpubind=maybe", "lrun: unknown option '--gpubind=maybe'"),
        ("lrun -Ntwo", "lrun: invalid number after -N: 'two'"),
    ],
)
def test_refusals(lsf: Fake, line: str, text: str) -> None:
    code, lines = launched(lsf, f"{line} touch started")
    assert code == 1
    assert any(text in output_line for output_line in lines), lines
    assert not Path("started").exists()
    if "need" in text or "fit" in text:
        assert REFUSED in lines


def test_outside_of_a_job(lsf: Fake) -> None:
    done = lsf.run("jsrun", "-n", "1", "true")
    assert done.returncode == 1
    assert "within a job allocation" in done.stderr
    assert "must be run inside of an LSF allocation" in lsf.run("lrun", "-N1", "-T1", "true").stderr


@pytest.mark.parametrize("form", ["lrun -N2 -T4", "lrun -N 2 -T 4 -M -gpu", "lrun -T4 --mpibind=on"])
def test_lrun_gives_a_rank_its_gpu(lsf: Fake, form: str) -> None:
    code, lines = launched(lsf, f"{form} bash -c '{SAY}'")
    assert code == 0
    assert lines == [f"{k} 8 {k % 4} {k % 4} node{k // 4 + 1}" for k in range(8)]


def test_lrun_may_show_all_gpus(lsf: Fake) -> None:
    code, lines = launched(lsf, f"lrun -N1 -T2 --gpubind=off bash -c '{SAY}'")
    assert code == 0
    assert lines == ["0 2 0 0,1,2,3 node1", "1 2 1 0,1,2,3 node1"]


def test_exit_status_of_a_rank(lsf: Fake) -> None:
    code, _ = launched(lsf, "jsrun -n 2 -r 1 -a 1 -c 1 bash -c 'exit $((JSM_NAMESPACE_RANK * 5))'")
    assert code == 5


def test_ranks_are_real_mpi(lsf: Fake) -> None:
    Path("sum.py").write_text(
        "from mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "print(world.allreduce(world.rank + 1), flush=True) if world.rank == 0 else world.allreduce(world.rank + 1)\n",
        encoding="utf-8",
    )
    code, lines = launched(lsf, f"jsrun -n 3 -r 3 -a 1 -c 1 {sys.executable} sum.py", "-nnodes", "1")
    assert (code, lines) == (0, ["6"])


@pytest.mark.parametrize("kind", ["jsrun", "lrun"])
@pytest.mark.parametrize("visibility", ["one", "all"])
@pytest.mark.parametrize("per_node", [1, 2, 4, 8])
def test_our_own_lines_are_accepted(lsf: Fake, kind: str, visibility: str, per_node: int) -> None:
    data: dict[str, Any] = {
        "site": "pretended",
        "scheduler": {"kind": "lsf"},
        "node": {"cores": 40, "gpus": 4, "sockets": 2},
        "launcher": {"kind": kind, "visibility": visibility},
        "device": "cuda",
        "gpu_aware_mpi": True,
        "checked": "never",
    }
    site = Site.model_validate(data)
    _, line = solve(site, nodes=2, ranks_per_node=per_node)
    code, lines = launched(lsf, f"{' '.join(line)} bash -c '{SAY}'")
    assert code == 0, lines
    assert len(lines) == 2 * per_node
    assert {output_line.split()[4] for output_line in lines} == {"node1", "node2"}
    if visibility == "all":
        assert {output_line.split()[3] for output_line in lines} == {"0,1,2,3"}


def test_the_node_of_the_site_counts(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", cores=42, gpus=6, nodes=2)
    code, lines = launched(lsf, f"jsrun -n 12 -r 6 -a 1 -c 7 -g 1 bash -c '{SAY}'")
    assert code == 0
    assert [line.split()[3] for line in lines if line.endswith("node2")] == sorted(
        "012345", key=lambda g: str(6 + int(g))
    )


@pytest.mark.parametrize("launcher", ["jsrun -n 4 -r 2 -a 1 -c 1 -g 0", "lrun -N2 -T2"])
def test_ranks_see_the_name_of_their_host(lsf: Fake, need: Callable[[str | None], None], launcher: str) -> None:
    need(why_not())
    lsf.run("bsub", "-nnodes", "2", "-o", "out", "-N", stdin=f"#!/bin/sh\n{launcher} uname -n\n".encode())
    [job] = lsf.wait()
    assert job.exit == 0
    assert sorted(Path("out").read_text(encoding="utf-8").split()) == ["node1", "node1", "node2", "node2"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("blaunch node1 'echo a; uname -n'", "a\nnode1\n"),
        ("blaunch -n node2 cat", ""),
        ("blaunch node3 true", "node3: the host is not allocated to the job <1>\n"),
        ("blaunch node1", "Usage: blaunch [-n] host_name command [argument ...]\n"),
        ("blaunch -u hosts true", "blaunch: hpcbench's fake does not support -u: only -n\n"),
    ],
)
def test_blaunch(lsf: Fake, need: Callable[[str | None], None], line: str, text: str) -> None:
    need(why_not())
    lsf.run("bsub", "-nnodes", "2", "-o", "out", "-N", stdin=f"#!/bin/sh\n{line}\n".encode())
    lsf.wait()
    assert Path("out").read_text(encoding="utf-8") == text
    assert "outside of an LSF job" in lsf.run("blaunch", "node1", "true").stderr
