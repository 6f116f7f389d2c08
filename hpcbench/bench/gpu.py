"""A GPU, by way of CuPy and the codecs' kernels for it."""

from importlib import import_module
from typing import Any

import numpy as np

from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16, Array
from hpcbench.errors import UserError


class _Bfloat16:
    """Words of 16 bits, which CuPy has, shown as values of bfloat16, which it has not."""

    def __init__(self, words: Any) -> None:
        self.words = words
        self.__cuda_array_interface__ = {**words.__cuda_array_interface__, "typestr": "<V2"}


class Gpu:
    """CuPy's current device. Implements hpcbench.bench.device.Device.

    Raises
    ------
    UserError
        There is no CuPy, no GPU, or no codec for it.
    """

    def __init__(self) -> None:
        try:
            self._cuda = import_module("hpcbench.codecs.cuda")
        except ImportError as error:
            raise UserError(f"--device gpu: this hpcbench has no codecs for GPUs ({error}): use --device cpu") from None
        try:
            self._cuda.cuda()
            self._cupy = import_module("cupy")
        except (ImportError, RuntimeError) as error:
            raise UserError(f"--device gpu: {error}") from None
        properties = self._cupy.cuda.runtime.getDeviceProperties(self._cupy.cuda.Device().id)
        self.instruction_set = f"sm_{self._cupy.cuda.Device().compute_capability}"
        self.description = f"{properties['name'].decode()}, kernels {self.instruction_set}"

    def codec(self, name: str) -> Any:
        return self._cuda.CudaCodec(get_codec(name))

    def has(self, name: str) -> bool:
        try:
            self.codec(name)
        except (TypeError, KeyError, NotImplementedError):
            return False
        return True

    def put(self, x: Array) -> Any:
        if x.dtype == BFLOAT16:
            return _Bfloat16(self._cupy.asarray(x.view(np.uint16)))
        return self._cupy.asarray(x)

    def get(self, x: Any) -> Array:
        if isinstance(x, _Bfloat16):
            return np.asarray(self._cupy.asnumpy(x.words)).view(BFLOAT16)
        return np.asarray(self._cupy.asnumpy(x))

    def empty(self, n: int, dtype: np.dtype[Any]) -> Any:
        if dtype == BFLOAT16:
            return _Bfloat16(self._cupy.empty(n, np.uint16))
        return self._cupy.empty(n, dtype)

    def copy(self, target: Any, source: Any) -> None:
        self._cupy.copyto(getattr(target, "words", target), getattr(source, "words", source))

    def wait(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()
