"""Kernels of kernels/gpu, compiled for the CPU by the emulator of tests/codecs."""

import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulator
import numpy as np

from cupy.arrays import ndarray
from cupy.cuda.compiler import compile_using_nvrtc
from cupy.cuda.memory import holder
from cupy.cuda.stream import get_current_stream, put
from hpcbench.codecs.device import THREADS, Build


class RawModule:
    """Kernels from source code, or from a file that contains the output of `compile_using_nvrtc`."""

    def __init__(self, *, code: str | None = None, path: str | None = None, options: tuple[str, ...] = ()) -> None:
        if (code is None) == (path is None) or not isinstance(path, (str, type(None))):
            raise TypeError("either code or path, each a string")
        # CuPy appends this option to the caller's options
        cubin = Path(path).read_bytes() if path else compile_using_nvrtc(code or "", (*options, "-ftz=true"))[0]
        compiled = json.loads(cubin)
        values = dict(option[2:].split("=", 1) for option in compiled["options"] if option.startswith("-DHB_"))
        family, kind, out = (int(values[f"HB_{name}"]) for name in ("CODEC", "TYPE", "OUT"))
        source = re.fullmatch(r'#include "(.*)"\n', compiled["source"])
        assert source, compiled["source"]
        self._build = Build(source[1], family, int(values["HB_PARAM"].removesuffix("ull")), kind, out)
        self._flushes = "-ftz=true" in compiled["options"]

    def get_function(self, name: str) -> Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]:
        """Return a function that launches a kernel.

        Arguments have 64 bits, and device arrays are passed as addresses.
        """
        kernels, flushes = emulator.library(self._build), self._flushes
        if not hasattr(kernels, f"run_{name}"):
            raise KeyError(f"CUDA_ERROR_NOT_FOUND: no kernel {name}")

        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            assert isinstance(grid, tuple) and len(grid) == 1 and grid[0] > 0, grid
            assert block == (THREADS,), block
            values = [_word(argument) for argument in arguments]
            keep = [holder(word, 0) for word in values]

            def run(keep: object = keep) -> None:
                emulator.run(kernels, name, emulator.Launch(grid[0], 0, 0, 1), values, flushes=flushes)

            put(get_current_stream().ptr, run)

        return launch


def _word(argument: Any) -> int:
    if isinstance(argument, ndarray):
        return argument.data.ptr
    if isinstance(argument, np.ndarray):
        raise TypeError("You are trying to pass a numpy.ndarray as a kernel parameter")
    if isinstance(argument, np.generic) and argument.itemsize != 8:
        raise TypeError(f"a kernel's parameter of 64 bits is given {argument.dtype}")
    return operator.index(argument)
