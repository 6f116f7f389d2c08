"""GPU device for codec measurements, which uses CuPy and the codec kernels."""

from typing import Any

import numpy as np

from hpcbench.codecs.cuda import BFloat16, CudaCodec
from hpcbench.codecs.device import cuda
from hpcbench.codecs.library import kernels
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16, Array
from hpcbench.errors import UserError


class BenchGpu:
    """CuPy's current device, as an implementation of hpcbench.bench.device.BenchDevice.

    Raises
    ------
    UserError
        CuPy, a GPU or the kernel library is missing. Codecs on a GPU also need the kernel library, which computes
        encoded sizes.
    """

    def __init__(self) -> None:
        try:
            kernels()
            self._device = cuda()
        except (ImportError, RuntimeError) as error:
            raise UserError(f"--device gpu: {error}") from None
        import cupy

        self._cupy: Any = cupy
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.instruction_set = f"sm_{cupy.cuda.Device().compute_capability}"
        self.description = f"{properties['name'].decode()}, kernels {self.instruction_set}"

    def codec(self, name: str) -> Any:
        """Return the codec with this name on this GPU."""
        return CudaCodec(get_codec(name), self._device)

    def has(self, name: str) -> bool:
        """Return whether the codec has GPU kernels."""
        try:
            self.codec(name)
        except TypeError:
            return False
        return True

    def put(self, x: Array) -> Any:
        """Copy an array to the GPU."""
        if x.dtype == BFLOAT16:
            return BFloat16(self._cupy.asarray(x.view(np.uint16)))
        return self._cupy.asarray(x)

    def get(self, x: Any) -> Array:
        """Copy an array to the host."""
        if isinstance(x, BFloat16):
            return np.asarray(self._cupy.asnumpy(x.words)).view(BFLOAT16)
        return np.asarray(self._cupy.asnumpy(x))

    def empty(self, n: int, dtype: np.dtype[Any]) -> Any:
        """Allocate an array on the GPU."""
        if dtype == BFLOAT16:
            return BFloat16(self._cupy.empty(n, np.uint16))
        return self._cupy.empty(n, dtype)

    def copy(self, target: Any, source: Any) -> None:
        """Start a copy on the GPU."""
        self._cupy.copyto(getattr(target, "words", target), getattr(source, "words", source))

    def wait(self) -> None:
        """Wait for the current stream."""
        self._cupy.cuda.get_current_stream().synchronize()
