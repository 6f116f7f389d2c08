"""Compiles kernels/gpu/gpu.cu as plain C++ for one codec and one type, and runs its kernels.

`cuda_emulator.h` tells what the emulation shows and what not.
"""

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import FAMILIES
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import Array, Bytes, type_of
from hpcbench.resources import data_dir

HERE = Path(__file__).parent
KERNELS = data_dir("kernels")
OPTIONS = ["-std=gnu++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
SANITIZE = ["-fsanitize=alignment,bounds,shift", "-fno-sanitize-recover=all"]


@functools.cache
def compiled(name: str) -> Compiled:
    """The CPU's codec of a name."""
    codec = get_codec(name)
    assert isinstance(codec, Compiled)
    return codec


def macros(name: str, dtype: npt.DTypeLike, out: npt.DTypeLike, *, n: int = 0) -> tuple[str, ...]:
    """What chooses a codec and its types when gpu.cu is compiled."""
    kinds = [int(type_of(np.dtype(t))) for t in (dtype, out)]
    family = name if name in FAMILIES else name.partition(":")[0]
    return (
        f"-DHB_CODEC={FAMILIES.index(family)}",
        f"-DHB_PARAM={compiled(name).param(n)}ull",
        f"-DHB_TYPE={kinds[0]}",
        f"-DHB_OUT={kinds[1]}",
    )


@functools.cache
def _directory() -> Path:
    path = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, path)
    return Path(path)


@functools.cache
def build(options: tuple[str, ...], kernels: Path = KERNELS) -> ctypes.CDLL:
    """The kernels for these macros, loaded."""
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "needs a C++ compiler, as building the package does"
    library = _directory() / f"{abs(hash((options, kernels))):x}.so"
    include = [f"-I{kernels / 'gpu'}", f"-I{HERE}"]
    command = [compiler, *OPTIONS, *SANITIZE, *include, *options, str(HERE / "gpu_emulator.cpp"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return ctypes.CDLL(str(library))


def build_all(options: list[tuple[str, ...]]) -> None:
    """Compile for all of these, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build, options))


class Launch(ctypes.Structure):
    """``emulated_launch`` of cuda_emulator.h."""

    _fields_ = (
        ("grid", ctypes.c_uint),
        ("first", ctypes.c_uint),
        ("backwards", ctypes.c_uint),
        ("workers", ctypes.c_uint),
    )


def _address(array: Array | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


@dataclass
class Front:
    """The kernels of one codec and its types, with the arguments of `Codec`.

    Parameters
    ----------
    library
        From `build`.
    grid
        Blocks of a launch. Few, so that warps go round.
    first
        Block to begin with.
    backwards
        Threads of a block run from the last to the first.
    """

    library: ctypes.CDLL
    grid: int = 3
    first: int = 0
    backwards: bool = False

    def _run(self, name: str, *arguments: Array | int | None) -> None:
        launch = Launch(self.grid, self.first, self.backwards)
        values = (ctypes.c_ulonglong(a) if isinstance(a, int) else _address(a) for a in arguments)
        getattr(self.library, f"run_{name}")(ctypes.byref(launch), *values)

    def encode(self, x: Array, wire: Bytes, residual: Array | None = None, seed: int = 0) -> None:
        self._run("encode", x, x.size, wire, residual, seed)

    def decode(self, wire: Bytes, out: Array, *, accumulate: bool = False) -> None:
        self._run("decode_add" if accumulate else "decode", wire, out.size, out)

    def decode_add_encode(self, wire: Bytes, local: Array, out: Bytes, seed: int = 0) -> None:
        self._run("decode_add_encode", wire, local, local.size, out, seed)
