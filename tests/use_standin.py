"""Lets `import cupy` give the stand-in of standin/cupy. Only who calls `use` has it: no path leads there by itself."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from kept import KEPT

from hpcbench.codecs import device
from hpcbench.comm import accelerator

HERE = Path(__file__).parent
PLACES = [str(HERE / "standin"), str(HERE / "codecs")]
"""The stand-in, and the emulator that it runs kernels by."""


def has_gpu() -> bool:
    """Whether CuPy finds a GPU here. Then the tests for GPUs run on it, and nothing stands in for it."""
    try:
        device.cuda()
    except (ImportError, RuntimeError):
        return False
    return True


def use() -> dict[str, ModuleType]:
    """Take the stand-in from now on, in this process. Return the modules of CuPy that were imported.

    Raises
    ------
    RuntimeError
        A GPU is here.
    """
    if has_gpu():
        raise RuntimeError("a GPU is here: nothing stands in for it")
    imported = forget()
    sys.path[:0] = PLACES
    os.environ["CUPY_CACHE_DIR"] = str(KEPT / "standin")  # no GPU could load what the stand-in compiles
    return imported


def forget() -> dict[str, ModuleType]:
    """Forget CuPy and the devices that were made of it. Return its modules."""
    device._device.cache_clear()
    accelerator._accelerator.cache_clear()
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "cupy"}


@contextmanager
def standin() -> Iterator[None]:
    """Take the stand-in for a while."""
    path, cache = sys.path[:], os.environ.get("CUPY_CACHE_DIR")
    imported = use()
    try:
        yield
    finally:
        forget()
        sys.modules.update(imported)
        sys.path[:] = path
        del os.environ["CUPY_CACHE_DIR"]
        if cache is not None:
            os.environ["CUPY_CACHE_DIR"] = cache
