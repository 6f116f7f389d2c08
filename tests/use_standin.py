"""Functions that replace CuPy with the stand-in of standin/cupy. Only code that calls `use` imports the stand-in."""

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
"""Directories of the stand-in and of the emulator that runs its kernels."""


def has_gpu() -> bool:
    """Return whether CuPy finds a GPU, in which case GPU tests run on it, without the stand-in."""
    try:
        device.cuda()
    except (ImportError, RuntimeError):
        return False
    return True


def use() -> dict[str, ModuleType]:
    """Use the stand-in in this process. Return the CuPy modules that had been imported.

    Raises
    ------
    RuntimeError
        This machine has a GPU.
    """
    if has_gpu():
        raise RuntimeError("a GPU is here: nothing stands in for it")
    imported = forget()
    sys.path[:0] = PLACES
    os.environ["CUPY_CACHE_DIR"] = str(KEPT / "standin")  # a GPU cannot load the stand-in's compiled kernels
    return imported


def forget() -> dict[str, ModuleType]:
    """Remove CuPy and its devices from the imported modules. Return these modules."""
    device._device.cache_clear()
    accelerator._accelerator.cache_clear()
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "cupy"}


@contextmanager
def standin() -> Iterator[None]:
    """Use the stand-in within a block."""
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
