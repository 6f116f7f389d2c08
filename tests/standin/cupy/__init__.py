"""A stand-in for CuPy on machines without a GPU: memory of the host behind lazy streams, and emulated kernels.

It has what hpcbench and its GPU tests use of CuPy. All other names raise AttributeError.

- Arrays: `ndarray` (contiguous views, `get`, `set`, filling with a number, CUDA array interface, DLPack), `asarray`,
  `asnumpy`, `empty`, `full`, `zeros`, `empty_like`, `zeros_like`, `copyto`, `from_dlpack`.
- Kernels: `RawModule` and `cuda.compiler.compile_using_nvrtc` take the files of kernels/gpu, which the emulator of
  tests/codecs runs. As in CuPy, source that `RawModule` is given is compiled with ``-ftz=true``: subnormal float32 are
  then zero.
- `cuda`: streams, events, memory of the device and pinned memory, memory hooks, and functions of `cuda.runtime`.

It is stricter than CuPy:

- A stream does its work only when a caller waits for it, so a missing wait shows as poison.
- New memory and freed memory are poison.
- These raise: an implicit conversion to NumPy; an array of the host where one of the device is needed; a copy in a
  wrong direction or beyond an allocation; a stream that does not exist or was destroyed; a kernel argument that has
  not 64 bits.

It has one device and no blocking streams. It does not cover PyTorch on a GPU, the CUDA driver, the memory order
between GPU threads, a GPU-aware MPI library, or time. `use_standin.py` makes it importable.
"""

from numpy import float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64  # noqa: F401

from cupy import cuda  # noqa: F401
from cupy.arrays import (  # noqa: F401
    asarray,
    asnumpy,
    copyto,
    empty,
    empty_like,
    from_dlpack,
    full,
    ndarray,
    zeros,
    zeros_like,
)
from cupy.cuda.memory import get_default_memory_pool, get_default_pinned_memory_pool  # noqa: F401
from cupy.modules import RawModule  # noqa: F401

__version__ = "14.2.0+standin"
