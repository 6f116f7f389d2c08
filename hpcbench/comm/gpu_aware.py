"""Whether the MPI library takes pointers to GPU memory: found out, never assumed. There is no one way to ask.

A library that is given a device pointer and knows nothing of devices crashes, or sends something else. So what cannot
be found out counts as no: messages then take the way through the host, which always works.
"""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mpi4py import MPI

_CUDA = 0
"""``MPIX_GPU_SUPPORT_CUDA`` of MPICH."""


class Answer(str, Enum):
    """What was found."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Awareness:
    """An answer, and where it comes from. True where MPI may be given device pointers.

    Attributes
    ----------
    answer, why
        Both are for the log: ``str`` says what follows from them.
    """

    answer: Answer
    why: str

    def __bool__(self) -> bool:
        return self.answer is Answer.YES

    def __str__(self) -> str:
        how = (
            "messages go from GPU memory to GPU memory, without a checksum: the host never sees them"
            if self
            else "encoded messages go through pinned host memory, with a checksum"
        )
        return f"GPU-aware MPI: {self.answer.value} ({self.why}); {how}"


def gpu_aware(comm: MPI.Comm, asked: bool | None = None) -> Awareness:
    """Ask on all ranks; a collective call. Ranks that differ make it a no: both sides of a message must agree.

    Parameters
    ----------
    comm
        Of all ranks of the run.
    asked
        What the site or the user says; None to find out.
    """
    if asked is not None:
        here = Awareness(Answer.YES if asked else Answer.NO, "as the site or the user says")
    else:
        here = find_out(MPI.Get_library_version(), ctypes.CDLL(MPI.__file__), os.environ, _memory_kinds())
    everyone: list[Awareness] = comm.allgather(here)
    other = next((rank for rank, there in enumerate(everyone) if there.answer is not everyone[0].answer), None)
    if other is None:
        return everyone[0]
    first, there = everyone[0], everyone[other]
    return Awareness(
        Answer.NO,
        f"ranks differ: {first.answer.value} on rank 0 ({first.why}), {there.answer.value} on {other} ({there.why})",
    )


def find_out(version: str, library: Any, environment: Mapping[str, str], kinds: str) -> Awareness:
    """What one rank can find out.

    Parameters
    ----------
    version
        What the library says of itself.
    library
        Has its functions as attributes.
    environment
        Variables of the process.
    kinds
        ``mpi_memory_alloc_kinds`` (MPI 4.1, section 12.4.3), comma-separated; empty where there is none.
    """
    silent = Awareness(Answer.UNKNOWN, f"{(version.strip().splitlines() or ['it'])[0]} has no call that tells")
    # these two may be built for GPUs and still take no device pointer unless a variable says so
    for name, variable in (("CRAY MPICH", "MPICH_GPU_SUPPORT_ENABLED"), ("MVAPICH2", "MV2_USE_CUDA")):
        if name in version.upper():
            if environment.get(variable) != "1":
                return Awareness(Answer.NO, f"{variable} is {environment.get(variable, 'not set')}")
            silent = Awareness(Answer.YES, f"{variable} is 1")
    if "cuda" in {kind.split(":")[0].strip() for kind in kinds.split(",")}:
        return Awareness(Answer.YES, f"its mpi_memory_alloc_kinds are {kinds}")
    # the first call before the second: in MPICH 3 the second one aborts where there is no GPU support
    query = getattr(library, "MPIX_GPU_query_support", None)
    if query is not None:
        supported = ctypes.c_int(0)
        if query(_CUDA, ctypes.byref(supported)) == 0:
            return Awareness(_answer(supported.value), f"MPIX_GPU_query_support says {supported.value}")
        return Awareness(Answer.UNKNOWN, "MPIX_GPU_query_support fails")
    query = getattr(library, "MPIX_Query_cuda_support", None)
    if query is not None:
        supports = int(query())
        return Awareness(_answer(supports), f"MPIX_Query_cuda_support says {supports}")
    return silent


def _answer(flag: int) -> Answer:
    return Answer.YES if flag == 1 else Answer.NO


def _memory_kinds() -> str:
    info = MPI.COMM_WORLD.Get_info()
    try:
        return info.get("mpi_memory_alloc_kinds") or ""
    finally:
        info.Free()
