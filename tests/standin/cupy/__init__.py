"""A stand-in for CuPy on machines without a GPU: host memory with lazy streams, and emulated kernels.

The stand-in implements the parts of CuPy that hpcbench and its GPU tests use. Any other name raises AttributeError.

- Arrays: `ndarray` (contiguous views, `get`, `set`, filling with a number, CUDA array interface, DLPack), `asarray`,
  `asnumpy`, `empty`, `full`, `zeros`, `empty_like`, `zeros_like`, `copyto`, `from_dlpack`.
- Kernels: `RawModule` and `cuda.compiler.compile_using_nvrtc` accept the files of kernels/gpu, which the emulator of
  tests/codecs runs. As in CuPy, source passed to `RawModule` is compiled with ``-ftz=true``, so subnormal float32
  values become zero.
- `cuda`: streams, events, device memory, pinned memory, memory hooks, and functions of `cuda.runtime`.

The stand-in is stricter than CuPy:

- A stream does no work until a caller waits for it, so a missing wait results in poison.
- New and freed memory contains poison.
- The following raise: an implicit conversion to NumPy; a host array where a device array is needed; a copy in a
  wrong direction or beyond an allocation; a stream that does not exist or was destroyed; a kernel argument that does
  not have 64 bits.

There is one device, and there are no blocking streams. The stand-in does not cover PyTorch on a GPU, the CUDA driver,
the memory order between GPU threads, GPU-aware MPI libraries, or time. `use_standin.py` makes the stand-in importable.
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
