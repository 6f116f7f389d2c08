"""Tests of the division of a node into parts, which all launchers use."""

from fractions import Fraction

import pytest
from launch_cases import site

from hpcbench.batch.scripts.shape import Sets, Shape, cut_node, shape
from hpcbench.batch.sites.site import Site


@pytest.mark.parametrize(
    ("where", "per_node", "sets", "cores"),
    [
        (site("summit"), 6, Sets(6, 1, 1, 7), 7),
        (site("summit"), 1, Sets(1, 1, 1, 21), 21),  # a rank with a GPU stays on its socket
        (site("summit", node__gpu_exclusive=False), 12, Sets(6, 2, 1, 7), 3),
        (site("summit", launcher__visibility="socket"), 2, Sets(2, 1, 3, 21), 21),
        (site("summit", launcher__visibility="all"), 5, Sets(1, 5, 6, 42), 8),
        (site("lonestar6", launcher__kind="srun"), 3, Sets(3, 1, 1, 32), 32),  # sockets with 1 and 2 GPUs
        (site("lonestar6"), 3, Sets(1, 3, 3, 128), 42),
        (site("lassen", device="cpu"), 1, Sets(1, 1, 0, 40), 40),  # a single rank may use both sockets
        (site("lassen", device="cpu"), 3, Sets(3, 1, 0, 10), 10),
        (site("marenostrum5", launcher__kind="srun"), 2, Sets(2, 1, 1, 40), 20),  # twenty cores per GPU
        (site("marenostrum5"), 2, Sets(1, 2, 4, 80), 40),
    ],
)
def test_parts_of_a_node(where: Site, per_node: int, sets: Sets, cores: int) -> None:
    ranks = shape(where, nodes=2, ranks_per_node=per_node)
    assert cut_node(per_node, ranks.gpus_per_rank, where) == sets
    assert (ranks.cores_per_rank, ranks.ranks) == (cores, 2 * per_node)


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (Shape(2, 6, Fraction(1), 7, 7), "6 ranks per node with 1 GPU and 7 cores each"),
        (Shape(2, 8, Fraction(1, 2), 5, 5), "8 ranks per node with 1/2 of a GPU and 5 cores each"),
        (Shape(1, 4, Fraction(0), 1, 1), "4 ranks per node with 1 core each"),
    ],
)
def test_a_shape_in_words(each: Shape, text: str) -> None:
    assert str(each) == text


@pytest.mark.parametrize("flags", ["gpumps", "smt1 gpumps", "GPUDEFAULT"])
def test_gpus_that_serve_one_process_are_shared_on_request(flags: str) -> None:
    shared = site("summit", scheduler__directives={"-alloc_flags": flags})
    assert shape(shared, nodes=1, ranks_per_node=12).gpus_per_rank == Fraction(1, 2)
    with pytest.raises(ValueError, match="accepts only one process"):
        shape(site("summit"), nodes=1, ranks_per_node=12)
    assert shape(site("summit"), nodes=1, ranks_per_node=6).gpus_per_rank == 1


def test_ranks_that_share_cores_may_be_more_than_the_cores() -> None:
    loose = site("lassen", oversubscribe=True, launcher__kind="jsrun")
    assert shape(loose, nodes=1, ranks_per_node=80).cores_per_rank == 1


@pytest.mark.parametrize(
    ("kind", "scheduler", "device", "sees"),
    [
        ("jsrun", "lsf", "cuda", "one"),
        ("srun", "slurm", "cuda", "one"),
        ("flux", "flux", "cuda", "one"),
        ("ibrun", "slurm", "cuda", "all"),
        ("mpich", "slurm", "cuda", "all"),
        ("openmpi", "slurm", "cuda", "all"),
        ("mvapich", "slurm", "cuda", "all"),
        ("mpich", "slurm", "cpu", "one"),
    ],
)
def test_the_default_visibility_of_gpus(kind: str, scheduler: str, device: str, sees: str) -> None:
    where = site("leonardo", launcher__kind=kind, scheduler={"kind": scheduler}, device=device)
    assert where.visibility == sees
    assert site("slurm-cluster").visibility == "all"


def test_absurd_numbers_are_refused_quickly() -> None:
    with pytest.raises(ValueError, match="usable cores"):
        shape(site("lassen"), nodes=10**9, ranks_per_node=10**9)
    vast = site("lassen", device="cpu", node__cores=10**9)
    assert shape(vast, nodes=1, ranks_per_node=10**9).cores_per_rank == 1
