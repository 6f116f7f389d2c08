"""Tests that MPI libraries that accept device pointers are detected by their queries, and that all ranks agree."""

import ctypes
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from hpcbench.comm.gpu_aware import Awareness, GpuAwareness, find_out, gpu_aware

OPEN_MPI, MPICH, OTHER = "Open MPI v5.0.7, package: x", "MPICH Version:      4.3.0\nMPICH Device: ch4", "Wonder MPI 1"
CRAY, MVAPICH2 = "MPI VERSION    : CRAY MPICH version 8.1.30", "MVAPICH2 Version      :\t2.3.7"


def library(query_cuda: int | None = None, gpu_query: tuple[int, int] | None = None) -> SimpleNamespace:
    """Return the functions of an MPI library.

    `query_cuda` is the result of one query, and `gpu_query` contains the status and the result of the other query.
    """
    functions = SimpleNamespace()
    if query_cuda is not None:
        functions.MPIX_Query_cuda_support = lambda: query_cuda
    if gpu_query is not None:

        def query(kind: int, flag: object) -> int:
            assert kind == 0, "CUDA's number"
            ctypes.cast(flag, ctypes.POINTER(ctypes.c_int))[0] = gpu_query[1]
            return gpu_query[0]

        functions.MPIX_GPU_query_support = query
    return functions


@pytest.mark.parametrize(
    ("version", "functions", "environment", "kinds", "answer", "why"),
    [
        (OPEN_MPI, library(1), {}, "", "yes", "MPIX_Query_cuda_support says 1"),
        (OPEN_MPI, library(0), {}, "", "no", "MPIX_Query_cuda_support says 0"),
        (OPEN_MPI, library(), {}, "", "unknown", "Open MPI v5.0.7, package: x has no call that reports GPU support"),
        (MPICH, library(gpu_query=(0, 1)), {}, "mpi,system", "yes", "MPIX_GPU_query_support says 1"),
        (MPICH, library(gpu_query=(0, 0)), {}, "mpi,system", "no", "MPIX_GPU_query_support says 0"),
        (MPICH, library(gpu_query=(5, 0)), {}, "", "unknown", "MPIX_GPU_query_support fails"),
        (MPICH, library(gpu_query=(0, 0)), {}, "mpi,system,cuda:device", "yes", "kinds are mpi,system,cuda:device"),
        (MPICH, library(gpu_query=(0, 0)), {}, "mpi,rocm", "no", "says 0"),
        (CRAY, library(1, (0, 1)), {}, "", "no", "MPICH_GPU_SUPPORT_ENABLED is not set"),
        (CRAY, library(1, (0, 1)), {"MPICH_GPU_SUPPORT_ENABLED": "1"}, "", "yes", "MPIX_GPU_query_support says 1"),
        (CRAY, library(), {"MPICH_GPU_SUPPORT_ENABLED": "1"}, "", "yes", "MPICH_GPU_SUPPORT_ENABLED is 1"),
        (CRAY, library(1, (0, 1)), {"MPICH_GPU_SUPPORT_ENABLED": "0"}, "", "no", "MPICH_GPU_SUPPORT_ENABLED is 0"),
        (MVAPICH2, library(), {"MV2_USE_CUDA": "1"}, "", "yes", "MV2_USE_CUDA is 1"),
        (MVAPICH2, library(0), {"MV2_USE_CUDA": "1"}, "", "no", "MPIX_Query_cuda_support says 0"),
        (MVAPICH2, library(1), {}, "", "no", "MV2_USE_CUDA is not set"),
        (
            OTHER,
            library(),
            {"MPICH_GPU_SUPPORT_ENABLED": "1"},
            "",
            "unknown",
            "Wonder MPI 1 has no call that reports GPU support",
        ),
    ],
)
def test_each_library_is_asked_in_its_own_way(version, functions, environment, kinds, answer, why):
    awareness = find_out(version, functions, environment, kinds)
    assert awareness.answer.value == answer
    assert why in awareness.why
    assert bool(awareness) == (answer == "yes"), "unknown counts as no"


def test_mpich_3_aborts_where_it_is_asked_for_cuda_directly():
    def abort() -> int:
        raise AssertionError("must not be called")

    functions = library(gpu_query=(0, 0))
    functions.MPIX_Query_cuda_support = abort
    assert find_out("MPICH Version: 3.4.3", functions, {}, "").answer is GpuAwareness.NO


def test_the_library_that_is_loaded_here_answers():
    answer = gpu_aware(MPI.COMM_SELF)
    assert answer.why
    if "MPICH" in MPI.Get_library_version():
        assert "MPIX_GPU_query_support says" in answer.why, "its own call was found"


def test_site_and_user_have_the_last_word():
    assert gpu_aware(MPI.COMM_SELF, True)
    assert not gpu_aware(MPI.COMM_SELF, False)
    assert "set by the site or the user" in str(gpu_aware(MPI.COMM_SELF, True))


def test_the_message_names_the_consequence():
    assert str(Awareness(GpuAwareness.YES, "x")).startswith("GPU-aware MPI: yes (x); messages go from GPU memory")
    assert "without a checksum" in str(Awareness(GpuAwareness.YES, "x"))
    for answer in (GpuAwareness.NO, GpuAwareness.UNKNOWN):
        assert "through pinned host memory, with a checksum" in str(Awareness(answer, "x"))


def test_ranks_that_disagree_count_as_no():
    first, other = Awareness(GpuAwareness.YES, "one"), Awareness(GpuAwareness.UNKNOWN, "other")
    comm = SimpleNamespace(allgather=lambda here: [first, first, other])
    agreed = gpu_aware(comm)
    assert agreed.answer is GpuAwareness.NO
    assert agreed.why == "ranks differ: yes on rank 0 (one), unknown on rank 2 (other)"
    assert gpu_aware(SimpleNamespace(allgather=lambda here: [first, first])) == first
