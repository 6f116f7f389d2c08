"""Tests of launch commands: examples from site manuals and user scripts, refusals with reasons, and rank placement."""

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_cases import SCHEDULER, counts, line, site

from hpcbench.batch.scripts.launchers import export_words, solve
from hpcbench.batch.sites.site import Site
from hpcbench.testing.hosts import endless_input


@pytest.mark.parametrize(
    ("where", "nodes", "per_node", "expected"),
    [
        # OLCF's Summit guide: -n12 -r6 -c7 -g1 -a1
        (site("summit"), 2, 6, "jsrun -n 12 -r 6 -a 1 -c 7 -g 1 -b packed:7 -d packed"),
        (site("summit", launcher__visibility="socket"), 2, 6,
         "jsrun -n 4 -r 2 -a 3 -c 21 -g 3 -b packed:7 -d packed"),
        (site("summit", launcher__visibility="all"), 2, 6, "jsrun -n 2 -r 1 -a 6 -c 42 -g 6 -b packed:7 -d packed"),
        (site("summit", scheduler__directives={"-alloc_flags": "smt1 gpumps"}), 2, 12,
         "jsrun -n 12 -r 6 -a 2 -c 7 -g 1 -b packed:3 -d packed"),
        # QMCPACK's Nexus, n2_g6
        (site("summit", node__gpu_exclusive=False), 2, 42,
         "jsrun -n 12 -r 6 -a 7 -c 7 -g 1 -b packed:1 -d packed"),
        # sandialabs/tenzing, 16 nodes: -n 64 -r 4
        (site("lassen", launcher__kind="jsrun"), 16, 4,
         "jsrun -n 64 -r 4 -a 1 -c 10 -g 1 -b packed:10 -d packed"),
        (site("lassen", launcher__kind="jsrun", gpu_aware_mpi=True), 16, 4,
         "jsrun -n 64 -r 4 -a 1 -c 10 -g 1 -b packed:10 -d packed --smpiargs=-gpu"),
        (site("lassen", launcher__kind="jsrun", gpu_aware_mpi=None), 16, 8,
         "jsrun -n 64 -r 4 -a 2 -c 10 -g 1 -b packed:5 -d packed"),
        (site("lassen", launcher__kind="jsrun", launcher__visibility="all"), 2, 4,
         "jsrun -n 2 -r 1 -a 4 -c 40 -g 4 -b packed:10 -d packed"),
        (site("lassen", gpu_aware_mpi=True), 16, 4, "lrun -N16 -T4 -M -gpu"),
        (site("lassen", launcher__visibility="all"), 2, 4, "lrun -N2 -T4 --gpubind=off"),
        # OLCF's Frontier guide has --gpu-bind=closest, which is one GPU per rank only if no two are equally close
        (site("frontier", device="cuda"), 2, 8,
         "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 --gpus-per-task=1 --gpu-bind=per_task:1"),
        (site("frontier"), 2, 8,
         "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 --cpu-bind=cores"),
        # warpx Tools/machines/perlmutter-nersc: -c 32 counts hardware threads
        (site("perlmutter"), 2, 4,
         "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --cpu-bind=cores --gpus-per-node=4 "
         "--gpu-bind=none"),
        # warpx Tools/machines/leonardo-cineca: --cpus-per-task=8 --gres=gpu:4
        (site("leonardo"), 2, 4,
         "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=8 --cpu-bind=cores --gres=gpu:4 "
         "--gpu-bind=none"),
        (site("perlmutter", scheduler__gpu_request="none"), 1, 2,
         "srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=64 --cpu-bind=cores --gpu-bind=none"),
        (site("marenostrum5"), 4, 4, "mpirun -np 16 --map-by ppr:4:node:PE=20 --bind-to core"),
        (site("vista"), 4, 1, "ibrun"),
        (site("lonestar6"), 2, 3, "ibrun"),
        (site("tuolumne", device="cuda", launcher__kind="flux"), 16, 4,
         "flux run -N16 -n64 -c21 -g1 -o cpu-affinity=per-task -o gpu-affinity=per-task"),
        # warpx tuolumne-llnl: flux run --exclusive --nodes=$N --tasks-per-node=4
        (site("tuolumne", device="cuda", launcher__kind="flux", launcher__visibility="all"), 16, 4,
         "flux run --exclusive --nodes=16 --tasks-per-node=4 -o cpu-affinity=per-task -o gpu-affinity=off"),
        (site("tuolumne"), 16, 4, "flux run -N16 -n64 -c21 -o cpu-affinity=per-task -o mpibind=off"),
        (site("slurm-cluster", launcher__kind="mpich"), 2, 4, "mpiexec -n 8 -ppn 4 -bind-to core:16"),
        (site("slurm-cluster", launcher__kind="mpich", device="cpu", node__cores=42), 1, 3,
         "mpiexec -n 3 -bind-to core:10 -map-by socket"),
        (site("slurm-cluster", launcher__kind="mvapich"), 2, 4,
         "mpiexec -n 8 -ppn 4 -bind-to core:16 -genv MV2_ENABLE_AFFINITY 0 -genv MVP_ENABLE_AFFINITY 0"),
        (site("lassen", launcher__kind="mvapich"), 2, 4,
         "mpiexec -n 8 -ppn 4 -f jobs/JOB/hosts -bind-to core:10 -genv MV2_ENABLE_AFFINITY 0 "
         "-genv MVP_ENABLE_AFFINITY 0"),
        # MVAPICH2's user guide: mpirun_rsh -np N -hostfile FILE NAME=VALUE ... PROGRAM
        (site("lassen", launcher__kind="mpirun_rsh", gpu_aware_mpi=True), 16, 4,
         "mpirun_rsh -export-all -np 64 -hostfile jobs/JOB/hosts MV2_ENABLE_AFFINITY=1 MV2_CPU_BINDING_POLICY=hybrid "
         "MV2_THREADS_PER_PROCESS=10 MV2_USE_CUDA=1"),
        (site("slurm-cluster", launcher__kind="mpirun_rsh", device="cpu", oversubscribe=True), 1, 9,
         "mpirun_rsh -export-all -np 9 -hostfile jobs/JOB/hosts MV2_ENABLE_AFFINITY=0"),
        (site("lassen", launcher={"kind": "jsrun", "mpi": "mvapich"}, gpu_aware_mpi=True), 16, 4,
         "jsrun -n 64 -r 4 -a 1 -c 10 -g 1 -b packed:10 -d packed"),
        (site("lassen", launcher={"kind": "lrun", "mpi": "mvapich"}, gpu_aware_mpi=True), 16, 4, "lrun -N16 -T4"),
        (site("summit", environment={"OMPI_MCA_x": "1", "PAMI_ENABLE_STRIPING": "1"}), 2, 6,
         "jsrun -n 12 -r 6 -a 1 -c 7 -g 1 -b packed:7 -d packed -E OMPI_MCA_x"),
        (site("slurm-cluster", launcher__kind="mpich", device="cpu", oversubscribe=True), 1, 100,
         "mpiexec -n 100 -bind-to none"),
        (site("slurm-cluster", launcher__kind="openmpi", device="cpu", oversubscribe=True), 1, 100,
         "mpirun -np 100 --map-by ppr:100:node:oversubscribe --bind-to none"),
        (site("lsf-cluster"), 2, 4, "mpirun -np 8 --map-by ppr:4:node:PE=8 --bind-to core"),
        (site("leonardo", device="cpu", launcher__program="/x y/srun", launcher__args=["--mpi=pmi2"]), 1, 4,
         "/x y/srun --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=8 --cpu-bind=cores --mpi=pmi2"),
    ],
)  # fmt: skip
def test_worked_examples(where: Site, nodes: int, per_node: int, expected: str) -> None:
    assert line(where, nodes, per_node) == expected
    counted = counts(expected.replace("/x y/", "/").split())
    assert counted.get("ranks", nodes * per_node) == nodes * per_node


@pytest.mark.parametrize(
    ("where", "per_node", "says", "nearest"),
    [
        (site("summit"), 12, "12 ranks share GPUs, but each GPU of summit accepts only one process",
         "6 ranks per node with 1 GPU and 7"),
        (site("summit", node__gpu_exclusive=False), 7, "cannot share GPUs in groups of 2", "6 ranks per node"),
        (site("summit", launcher__visibility="socket"), 5, "cannot be divided equally among 2", "4 ranks"),
        (site("summit", node__cores=8, node__socket_gpus=[1, 5], node__gpu_exclusive=False), 6,
         "6 ranks: only 5 ranks can be placed on a node of summit without splitting a rank across sockets (2 sockets "
         "with 4 cores", "5 ranks per node with 1 GPU and 1 core"),
        (site("summit", node__cores_per_gpu=1, node__gpu_exclusive=False), 12, "0 cores per rank", "6 ranks per node"),
        (site("lassen"), 42, "42 ranks, but a node of lassen has 40 usable cores", "40 ranks per node"),
        (site("lassen", launcher__visibility="socket"), 4, "one GPU or all", None),
        (site("lonestar6", launcher__kind="jsrun", scheduler__kind="lsf", launcher__visibility="socket"), 2,
         "equal numbers of ranks cannot share the GPUs of their socket", None),
        (site("marenostrum5", node__cores_per_gpu=21), 4, "4 ranks x 20 cores with 4 GPUs: marenostrum5 requires 21 "
         "cores with each GPU, 84 in all", None),
        (site("perlmutter", launcher__visibility="one"), 8, "srun gives a rank only whole GPUs", "4 ranks"),
        (site("perlmutter", launcher__visibility="socket"), 4, "shows a rank only its own GPUs or all", None),
        (site("tuolumne", device="cuda"), 8, "flux gives a rank only whole GPUs", "4 ranks per node with 1 GPU"),
        (site("slurm-cluster", threads=17), 4, "17 threads per rank, but a rank has 16 cores", "3 ranks per node"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_reason_and_the_nearest_that_does(
    where: Site, per_node: int, says: str, nearest: str | None
) -> None:
    with pytest.raises(ValueError) as caught:
        line(where, 2, per_node)
    reason, _, offered = str(caught.value).partition("; the nearest shape that fits is ")
    assert says in reason
    if nearest is None:
        assert offered == ""
    else:
        assert nearest in offered


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("jsrun -n12 -r6 -c7 -g1 -a1 -bpacked:7 -dpacked", line(site("summit"), 2, 6)),
        ("lrun -N 16 -T 4 --smpiargs=-gpu", line(site("lassen"), 16, 4)),
        ("srun -N2 -n16 -c7 --gpus-per-task=1 --gpu-bind=closest", line(site("frontier", device="cuda"), 2, 8)),
        ("flux run -N 16 -n 64 -c 21 -g 1", line(site("tuolumne", device="cuda"), 16, 4)),
    ],
)
def test_commands_of_manuals_request_the_same_resources_as_ours(theirs: str, ours: str) -> None:
    documented, written = counts(theirs.split()), counts(ours.split())
    assert documented == {name: written[name] for name in documented}


def place(socket_gpus: list[int], socket_cores: int, parts: int, gpus: int, cores: int) -> bool:
    """Return whether `parts` parts fit on the sockets if each part is placed on the first socket with enough space."""
    left = [[have, socket_cores] for have in socket_gpus]
    for _ in range(parts):
        room = next((socket for socket in left if socket[0] >= gpus and socket[1] >= cores), None)
        if room is None:
            return False
        room[0] -= gpus
        room[1] -= cores
    return True


@settings(max_examples=200, deadline=None)
@given(
    socket_gpus=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    socket_cores=st.integers(1, 30),
    nodes=st.integers(1, 64),
    per_node=st.integers(1, 130),
    on_gpus=st.booleans(),
)
def test_launchers_agree_and_refuse_exactly_what_breaks_a_rule(
    socket_gpus: list[int], socket_cores: int, nodes: int, per_node: int, on_gpus: bool
) -> None:
    sockets, have = len(socket_gpus), sum(socket_gpus)
    device = "cuda" if have and on_gpus else "cpu"
    each = Fraction(0) if device == "cpu" else Fraction(1, -(-per_node // have))
    sharing = each.denominator if each else 1
    fits_node = per_node <= socket_cores * sockets
    alone = device == "cpu" and per_node == 1
    whole_gpus = 1 if each else 0
    fits_sockets = alone or (
        per_node % sharing == 0 and place(socket_gpus, socket_cores, per_node // sharing, whole_gpus, sharing)
    )
    for kind in ("jsrun", "lrun", "srun", "flux", "ibrun", "mpich", "mvapich", "openmpi"):
        all_ = device == "cuda" and kind in ("ibrun", "mpich", "mvapich", "openmpi")
        says = sharing == 1 or kind not in ("srun", "flux")
        where = Site.model_validate(
            {
                "site": "random",
                "scheduler": {"kind": SCHEDULER.get(kind, "slurm")},
                "node": {"gpus": have, "cores": socket_cores * sockets, "sockets": sockets, "socket_gpus": socket_gpus},
                "launcher": {"kind": kind},
                "device": device,
                "threads": 1,
                "checked": "never",
            }
        )
        try:
            solution, argv = solve(where, nodes=nodes, ranks_per_node=per_node)
        except ValueError as error:
            assert not (fits_node and (all_ or fits_sockets) and says), (kind, str(error))
            assert "\n" not in str(error)
            continue
        assert fits_node and (all_ or fits_sockets) and says, (kind, argv)
        counted = counts(argv)
        expected = {"nodes": nodes, "ranks": nodes * per_node, "per_node": per_node, "cores": solution.cores_per_rank}
        expected["gpus"] = each  # type: ignore[assignment]
        assert counted == {name: expected[name] for name in counted}
        assert counted or kind == "ibrun"
        if not all_ and not alone:
            more = (solution.cores_per_rank + 1) * sharing
            assert not place(socket_gpus, socket_cores, per_node // sharing, whole_gpus, more)  # no core is left idle


@settings(deadline=None)
@given(
    name=st.sampled_from(
        ["summit", "lassen", "frontier", "perlmutter", "lonestar6", "vista", "tuolumne", "lsf-cluster"]
    ),
    per_node=st.integers(1, 200),
)
def test_the_nearest_that_is_offered_fits_and_nothing_is_nearer(name: str, per_node: int) -> None:
    where = site(name)
    try:
        solve(where, nodes=2, ranks_per_node=per_node)
        return
    except ValueError as error:
        _, there_is, offered = str(error).partition("; the nearest shape that fits is ")
    assert there_is
    ranks = int(offered.partition(" ")[0])
    for nearer in range(per_node - abs(ranks - per_node) + 1, per_node + abs(ranks - per_node)):
        if nearer >= 1:
            with pytest.raises(ValueError):
                solve(where, nodes=2, ranks_per_node=nearer)
    assert str(solve(where, nodes=2, ranks_per_node=ranks)[0]) == offered


def test_variables_reach_the_ranks_of_other_nodes() -> None:
    assert export_words(["A"], site("lsf-cluster")) == ["-x", "A"]
    assert export_words(["A", "B"], site("summit")) == ["-E", "A", "-E", "B"]
    for kind in ("mpich", "mvapich"):
        assert export_words(["A"], site("slurm-cluster", launcher__kind=kind)) == []


MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))


def here(cores: int, sockets: int = 1, *, oversubscribe: bool = False) -> Site:
    return Site.model_validate(
        {
            "site": "here",
            "scheduler": {"kind": "local"},
            "node": {"cores": cores, "sockets": sockets},
            "launcher": {"kind": "mpich"},
            "oversubscribe": oversubscribe,
            "checked": "never",
        }
    )


def cores_of_ranks(where: Site, ranks: int) -> list[set[int]]:
    _, argv = solve(where, nodes=1, ranks_per_node=ranks, program=MPIEXEC)
    # One write per rank, because Hydra interleaves the pieces of several writes.
    code = "import os; os.write(1, (' '.join(map(str, os.sched_getaffinity(0))) + os.linesep).encode())"
    probe = [sys.executable, "-c", code]
    return [set(map(int, line.split())) for line in launched([*argv, *probe]).stdout.splitlines()]


def launched(argv: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Hydra command with an open stdin. The ranks may exit before they reach the end of stdin."""
    with endless_input() as waiting:
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=True, timeout=60, stdin=waiting
        )


def test_hydra_binds_ranks_to_separate_cores() -> None:
    have = os.sched_getaffinity(0)
    ranks = min(2, len(have))
    bound = cores_of_ranks(here(ranks), ranks)
    assert [len(cores) for cores in bound] == [1] * ranks
    assert len(set.union(*bound)) == ranks
    assert cores_of_ranks(here(ranks, oversubscribe=True), ranks) == [have] * ranks


@pytest.mark.parametrize(("ranks", "each"), [(2, 7), (3, 3), (4, 3), (6, 2)])
def test_hydra_puts_no_rank_on_two_sockets(ranks: int, each: int) -> None:
    """Hydra prints its bindings for a simulated node of 2 x 7 cores."""
    _, argv = solve(here(14, 2), nodes=1, ranks_per_node=ranks, program=MPIEXEC)
    environment = {**os.environ, "HWLOC_SYNTHETIC": "package:2 core:7 pu:1", "HYDRA_TOPO_DEBUG": "1"}
    done = launched([*argv, "true"], environment)
    masks = [line.split()[-1] for line in (done.stdout + done.stderr).splitlines() if line.startswith("process ")]
    assert len(masks) == ranks and all(mask.count("1") == each for mask in masks)
    assert all(mask[:7].count("1") in (0, each) for mask in masks)
    assert all(sum(mask[core] == "1" for mask in masks) <= 1 for core in range(14))
