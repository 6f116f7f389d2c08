"""Compiler and launcher that run GPU kernels as C++ code on the CPU.

`cuda_emulator.h` documents the limits of the emulation.
"""

import ctypes
import functools
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from kept import cache_file, digest

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.device import Build
from hpcbench.codecs.library import FAMILIES
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.sequence import sequence_of
from hpcbench.codecs.types import type_of
from hpcbench.resources import data_dir

HERE = Path(__file__).parent
KERNELS = data_dir("kernels")
OPTIONS = ["-std=gnu++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", "-w"]
if (sys.platform, platform.machine()) == ("linux", "x86_64"):
    OPTIONS.append("-mtls-dialect=gnu2")  # avoids a call that saves all registers to read a thread-local variable
SANITIZE = ["-fsanitize=alignment,bounds,shift", "-fno-sanitize-recover=all"]
EMULATOR = [HERE / name for name in ("emulator.cpp", "cuda_emulator.h")]


@functools.cache
def compiled(name: str) -> Compiled:
    """Return the CPU codec with this name."""
    codec = get_codec(name)
    assert isinstance(codec, Compiled)
    return codec


def build_of(name: str, dtype: npt.DTypeLike, out: npt.DTypeLike) -> Build:
    """Return the compile options of a codec's kernels for an input dtype and an output dtype."""
    codec = compiled(name)
    sequence = sequence_of(codec.family)
    param = codec.param(0) if sequence.state is None else 0
    kinds = (type_of(np.dtype(t)) for t in (dtype, out))
    return Build(sequence.source, FAMILIES.index(codec.family), param, *kinds)


@functools.cache
def library(build: Build, kernels: Path = KERNELS) -> ctypes.CDLL:
    """Compile and load the kernels of a source tree.

    Raises
    ------
    SyntaxError
        The kernels do not compile.
    """
    source = kernels / "gpu" / build.source
    names = re.findall(r"^HB_KERNEL (\w+)\(", source.read_text(), re.MULTILINE)
    options = [option for option in build.options() if option.startswith("-D")]
    options += ["-DHB_NAMES=" + " ".join(f"X({name})" for name in names)]
    command = [compiler(), *OPTIONS, *SANITIZE, *options]
    places = [f'-DHB_SOURCE="{source}"', f"-I{HERE}", str(HERE / "emulator.cpp")]

    def compile_it(target: Path) -> None:
        done = subprocess.run([*command, *places, "-o", str(target)], capture_output=True, text=True)
        if done.returncode:
            raise SyntaxError(done.stderr[-3000:])

    key = [*command, build.source, version(), digest(kernels, *EMULATOR)]
    return ctypes.CDLL(str(cache_file(key, ".so", compile_it)))


def compiler() -> str:
    path = shutil.which("g++") or shutil.which("c++")
    assert path, "needs a C++ compiler, as building the package does"
    return path


@functools.cache
def version() -> str:
    """Return the compiler's version and target machine."""
    return subprocess.run([compiler(), "-v"], capture_output=True, text=True, check=True).stderr


def compile_all(builds: Iterable[Build]) -> None:
    """Compile these libraries in advance, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(library, builds))


class Launch(ctypes.Structure):
    """The struct ``emulated_launch`` of cuda_emulator.h."""

    _fields_ = tuple((name, ctypes.c_uint) for name in ("grid", "first", "backwards", "workers"))


def run(kernels: ctypes.CDLL, name: str, launch: Launch, arguments: Sequence[int], *, flushes: bool = False) -> None:
    """Run a kernel. All kernel arguments have 64 bits.

    Parameters
    ----------
    flushes
        Whether the kernel flushes subnormal values to 0. Only x86-64 supports this.
    """
    argument_words = (ctypes.c_ulonglong * len(arguments))(*arguments)
    if flushes:
        kernels.flush_subnormals(1)
    try:
        getattr(kernels, f"run_{name}")(ctypes.byref(launch), argument_words)
    finally:
        if flushes:
            kernels.flush_subnormals(0)
