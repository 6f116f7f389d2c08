"""Faults that are planted in a copy of the kernels and that a test's sweep must detect."""

import faulthandler
import functools
import multiprocessing
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from emulator import KERNELS

_NOT_CODE = 2
Sweep = Callable[[str, Path], object]
"""A function that runs all kernels of a codec, given the codec name and the kernel source tree."""


def plant_fault(folder: Path, file: str, old: str, new: str) -> Path:
    """Copy the kernels to `folder`, and make one replacement in one file."""
    kernels = folder / "kernels"
    shutil.copytree(KERNELS, kernels)
    text = (kernels / file).read_text()
    assert text.count(old) == 1, f"{file} must contain {old!r} exactly once"
    (kernels / file).write_text(text.replace(old, new))
    return kernels


def check_detected(sweep: Sweep, name: str, faulty: Path) -> None:
    """Check that a sweep succeeds with the correct kernels and fails with the faulty kernels."""
    assert _passes(sweep, name)
    assert fails(sweep, name, faulty)


@functools.cache
def _passes(sweep: Sweep, name: str) -> bool:
    return not fails(sweep, name, KERNELS)


def fails(sweep: Sweep, name: str, kernels: Path, seconds: float = 120.0) -> bool:
    """Return whether a sweep in a separate process raises, crashes or hangs."""
    child = multiprocessing.get_context("fork").Process(target=_quietly, args=(sweep, name, kernels))
    child.start()
    child.join(seconds)
    if child.is_alive():
        child.kill()
        child.join()
    assert child.exitcode != _NOT_CODE, "these kernels do not compile"
    return child.exitcode != 0


def _quietly(sweep: Sweep, name: str, kernels: Path) -> None:
    faulthandler.disable()
    try:
        sweep(name, kernels)
    except SyntaxError:
        sys.exit(_NOT_CODE)
    except Exception:
        sys.exit(1)
