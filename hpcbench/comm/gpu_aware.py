"""Detection of GPU-aware MPI libraries, which accept pointers to GPU memory.

A library without GPU support crashes or sends wrong data if it receives a device pointer. Therefore, if support is
unknown, messages go through host memory, which always works. Each library needs a different query.
"""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mpi4py import MPI

_CUDA = 0
"""``MPIX_GPU_SUPPORT_CUDA``, a constant of MPICH."""


class GpuAwareness(str, Enum):
    """Whether an MPI library is GPU-aware."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Awareness:
    """Result of the detection. The truth value of an instance is True if MPI accepts device pointers.

    Attributes
    ----------
    answer, why
        The result and how it was determined, for the log. ``str`` adds the consequences.
    """

    answer: GpuAwareness
    why: str

    def __bool__(self) -> bool:
        return self.answer is GpuAwareness.YES

    def __str__(self) -> str:
        how = (
            "messages go from GPU memory to GPU memory, without a checksum"
            if self
            else "encoded messages go through pinned host memory, with a checksum"
        )
        return f"GPU-aware MPI: {self.answer.value} ({self.why}); {how}"


def gpu_aware(comm: MPI.Comm, asked: bool | None = None) -> Awareness:
    """Detect GPU support on all ranks (a collective call).

    If ranks disagree, MPI is treated as not GPU-aware, because sender and receiver must use the same path.

    Parameters
    ----------
    comm
        Communicator of all ranks of the run.
    asked
        Value set by the site or the user, or None to detect support.
    """
    if asked is not None:
        here = Awareness(GpuAwareness.YES if asked else GpuAwareness.NO, "set by the site or the user")
    else:
        here = find_out(MPI.Get_library_version(), ctypes.CDLL(MPI.__file__), os.environ, _memory_kinds())
    everyone: list[Awareness] = comm.allgather(here)
    other = next((rank for rank, there in enumerate(everyone) if there.answer is not everyone[0].answer), None)
    if other is None:
        return everyone[0]
    first, there = everyone[0], everyone[other]
    return Awareness(
        GpuAwareness.NO,
        f"ranks differ: {first.answer.value} on rank 0 ({first.why}), {there.answer.value} on rank {other} "
        f"({there.why})",
    )


def find_out(version: str, library: Any, environment: Mapping[str, str], kinds: str) -> Awareness:
    """Detect GPU support on one rank.

    Parameters
    ----------
    version
        Version string reported by the library.
    library
        The library, with its functions as attributes.
    environment
        Environment variables of the process.
    kinds
        ``mpi_memory_alloc_kinds`` (MPI 4.1, section 12.4.3), comma-separated. The text is empty if the library does not
        provide this info.
    """
    silent = Awareness(
        GpuAwareness.UNKNOWN,
        f"{(version.strip().splitlines() or ['the MPI library'])[0]} has no call that reports GPU support",
    )
    # these libraries may be built with GPU support, but accept device pointers only if an environment variable is set
    for name, variable in (("CRAY MPICH", "MPICH_GPU_SUPPORT_ENABLED"), ("MVAPICH2", "MV2_USE_CUDA")):
        if name in version.upper():
            if environment.get(variable) != "1":
                return Awareness(GpuAwareness.NO, f"{variable} is {environment.get(variable, 'not set')}")
            silent = Awareness(GpuAwareness.YES, f"{variable} is 1")
    if "cuda" in {kind.split(":")[0].strip() for kind in kinds.split(",")}:
        return Awareness(GpuAwareness.YES, f"the library's mpi_memory_alloc_kinds are {kinds}")
    # called before MPIX_Query_cuda_support, which aborts in MPICH 3 without GPU support
    query = getattr(library, "MPIX_GPU_query_support", None)
    if query is not None:
        supported = ctypes.c_int(0)
        if query(_CUDA, ctypes.byref(supported)) == 0:
            return Awareness(_answer(supported.value), f"MPIX_GPU_query_support says {supported.value}")
        return Awareness(GpuAwareness.UNKNOWN, "MPIX_GPU_query_support fails")
    query = getattr(library, "MPIX_Query_cuda_support", None)
    if query is not None:
        supports = int(query())
        return Awareness(_answer(supports), f"MPIX_Query_cuda_support says {supports}")
    return silent


def _answer(flag: int) -> GpuAwareness:
    return GpuAwareness.YES if flag == 1 else GpuAwareness.NO


def _memory_kinds() -> str:
    info = MPI.COMM_WORLD.Get_info()
    try:
        return info.get("mpi_memory_alloc_kinds") or ""
    finally:
        info.Free()
