"""A device for `CudaCodec` that runs the kernels on the CPU, with NumPy's arrays as its memory.

So the Python of the GPU back end and the kernels are tried together. `cuda_emulator.h` tells what that shows of a GPU.
Calls come to their end at once; the order of streams is not shown.
"""

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpcbench.codecs.device import Build, Cell, Device, View
from hpcbench.codecs.sequence import STATE_HEAD
from hpcbench.resources import data_dir

HERE = Path(__file__).parent
OPTIONS = ["-std=gnu++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", "-w"]
SANITIZE = ["-fsanitize=alignment,bounds,shift", "-fno-sanitize-recover=all"]
POISON = 0x5A5A5A5A5A5A5A5A


@functools.cache
def _directory() -> Path:
    path = Path(tempfile.gettempdir()) / "hpcbench-emulated"
    path.mkdir(exist_ok=True)
    return path


@functools.cache
def _sources() -> bytes:
    files = [*data_dir("kernels").rglob("*.h"), *data_dir("kernels").rglob("*.cu"), *HERE.glob("*emulator*")]
    return b"".join(path.read_bytes() for path in sorted(files) if path.is_file())


@functools.cache
def library(build: Build) -> ctypes.CDLL:
    """The kernels, compiled and loaded."""
    source = data_dir("kernels") / "gpu" / build.source
    names = re.findall(r"^HB_KERNEL (\w+)\(", source.read_text(), re.MULTILINE)
    options = [
        option for option in build.options() if not option.startswith(("-std", "--fmad"))
    ]
    options += [f'-DHB_SOURCE="{source}"', "-DHB_NAMES=" + " ".join(f"X({name})" for name in names), f"-I{HERE}"]
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "needs a C++ compiler, as building the package does"
    key = hashlib.sha256(_sources() + repr(options).encode()).hexdigest()[:16]
    target = _directory() / f"{key}.so"
    if not target.exists():
        part = target.with_suffix(f".{id(build)}")
        command = [compiler, *OPTIONS, *SANITIZE, *options, str(HERE / "kernel_emulator.cpp"), "-o", str(part)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        part.rename(target)
    return ctypes.CDLL(str(target))


class _Launch(ctypes.Structure):
    """``emulated_launch`` of cuda_emulator.h."""

    _fields_ = (("grid", ctypes.c_uint), ("first", ctypes.c_uint), ("backwards", ctypes.c_uint), ("workers", ctypes.c_uint))


class EmulatedCell(Cell):
    """Words of 64 bits, poisoned until a call begins."""

    def __init__(self, words: int) -> None:
        self.words = words
        self._memory = np.full(words + 8, POISON, dtype=np.uint64)
        self.pointer = self._memory.ctypes.data
        self.busy = False

    def begin(self, stream: int, zeros: int) -> None:
        assert not self.busy, "a cell serves two calls at once"
        self.busy = True
        self._memory[:zeros] = 0

    def end(self, stream: int) -> None:
        self.busy = False
        self._head = self._memory[:STATE_HEAD].copy()
        assert (self._memory[self.words :] == POISON).all(), "written behind the state"

    def wait(self) -> tuple[int, int]:
        return int(self._head[1]), int(self._head[2])


@dataclass
class EmulatedDevice(Device):
    """Few multiprocessors, so that blocks go round."""

    multiprocessors: int = 1
    backwards: bool = False
    workers: int = 1
    """Blocks at a time."""
    cells: int = 0
    launched: list[tuple[str, int]] = field(default_factory=list)

    def stream(self, stream: Any, array: Any) -> int:
        return int(stream or 0)

    def view(self, name: str, array: Any, stream: int) -> View:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name}: takes arrays of this device, not {type(array).__name__}")
        if array.ndim != 1 or not array.flags.c_contiguous:
            raise ValueError(f"{name}: values must be a contiguous vector, not shape {array.shape}")
        return View(array.ctypes.data, array.size, array.dtype, array.flags.writeable)

    def launch(self, build: Build, kernel: str, blocks: int, arguments: tuple[int, ...], stream: int) -> None:
        self.launched.append((kernel, blocks))
        words = (ctypes.c_ulonglong * len(arguments))(*arguments)
        launch = _Launch(blocks, 0, self.backwards, self.workers)
        getattr(library(build), f"run_{kernel}")(ctypes.byref(launch), words)

    def cell(self, words: int) -> Cell:
        self.cells += 1
        return EmulatedCell(words)
