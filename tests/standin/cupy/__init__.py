"""A stand-in for CuPy on machines without a GPU: memory of the host behind lazy streams, and emulated kernels.

It has what hpcbench and its GPU tests use of CuPy, and raises AttributeError for all else:

- `ndarray` (contiguous views, `get`, `set`, fill by a scalar, CUDA array interface, DLPack), `asarray`, `asnumpy`, `empty`, `full`,
  `zeros`, `empty_like`, `zeros_like`, `copyto`, `from_dlpack`;
- `RawModule` and `cuda.compiler.compile_using_nvrtc`: kernels of kernels/gpu by the emulator of tests/codecs. As in CuPy, source
  given to `RawModule` is compiled with ``-ftz=true``, and then subnormal float32 are zero;
- `cuda`: streams, events, device and pinned memory, memory hooks, and the functions of `cuda.runtime`.

It is stricter than CuPy. No work of a stream is done before somebody waits for it, so that a missing wait shows as poison. New memory
and freed memory are poison. An implicit conversion to NumPy, an array of the host where one of the device is needed, a copy in a wrong
direction or beyond an allocation, a foreign or destroyed stream, and a kernel argument of another size than 64 bits raise.

It has one device, no blocking streams, and no elementwise kernels but those named. It shows nothing of memory order between
threads of a GPU, of PyTorch on a GPU, of the CUDA driver and of time. `use_standin.py` says how to get it.
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
