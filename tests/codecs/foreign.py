"""Kernels for other processors, cross-compiled with the options of a wheel, and run under qemu-user."""

import ctypes
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kept import cache_file, digest

from hpcbench.codecs.library import FAMILIES, Kernels
from hpcbench.codecs.types import Type
from hpcbench.resources import data_dir

HERE = Path(__file__).parent
KERNELS = data_dir("kernels")
PROCESSORS = {"aarch64": ("aarch64-linux-gnu", "qemu-aarch64"), "ppc64le": ("powerpc64le-linux-gnu", "qemu-ppc64le")}
"""Debian's compiler prefix and the emulator for each processor. Keys are processor names as printed by ``uname -m``."""


def programs(processor: str) -> tuple[str, ...]:
    """Return the programs that tests for a processor require."""
    compiler, emulator = PROCESSORS[processor]
    return f"{compiler}-g++", emulator, "cmake"


def build(processor: str, *options: str) -> Path:
    """Compile the kernels for a processor with the build files of a wheel, or return them from the cache."""
    compiler = f"{PROCESSORS[processor][0]}-g++"

    def compile_it(target: Path) -> None:
        place = target.with_suffix(".build")
        target_system = ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}"]
        _run("cmake", "-S", KERNELS, "-B", place, *target_system, f"-DCMAKE_CXX_COMPILER={compiler}", *options)
        _run("cmake", "--build", place)
        (place / "libhpcbench_kernels.so").rename(target)
        _run("rm", "-r", place)

    return cache_file([processor, _run(compiler, "--version"), *options, digest(KERNELS)], ".so", compile_it)


def serve(processor: str | None) -> Path:
    """Compile, for a processor, the program that runs a library's functions on request.

    None selects this machine's processor.
    """
    compiler = f"{PROCESSORS[processor][0]}-g++" if processor else "g++"

    def compile_it(target: Path) -> None:
        _run(compiler, "-std=gnu++17", "-O1", "-ffp-contract=off", f"-I{KERNELS}", HERE / "foreign.cpp", "-o", target)

    return cache_file([_run(compiler, "--version"), digest(KERNELS, HERE / "foreign.cpp")], "", compile_it)


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.stdout


class Foreign:
    """A process that runs a library's functions. Codecs use the process as their `Kernels`.

    Parameters
    ----------
    library
        Compiled kernels.
    processor
        Processor of `library`, or None for this machine's processor.
    """

    def __init__(self, library: Path, processor: str | None = None) -> None:
        emulator = []
        if processor:
            compiler, qemu = PROCESSORS[processor]
            emulator = [qemu, "-L", f"/usr/{compiler}"]
        command = [*emulator, serve(processor), library]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> "Foreign":
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)

    def _ask(
        self, op: int, family: int, param: int, kind: int, n: int, last: int, *data: bytes
    ) -> tuple[int, bytes, bytes]:
        """Call a function.

        Return the function's result, the bytes that it wrote, and the second input, which it may modify.
        """
        assert self._process.stdin and self._process.stdout
        first, second, out = data or (b"", b"", b"")
        head = struct.pack("<9Q", op, family, param, kind, n, len(first), len(second), len(out), last)
        self._process.stdin.write(head + first + second + out)
        self._process.stdin.flush()
        result, size = struct.unpack("<2Q", self._process.stdout.read(16))
        return result, self._process.stdout.read(size), self._process.stdout.read(len(second))

    def arithmetic(self) -> bytes:
        """Return the output bytes of AdamW steps, sums of squares and 16-bit conversions."""
        return self._ask(4, 0, 0, 0, 0, 0)[1]

    def kernels(self) -> Kernels:
        """Return the functions of the process in the form that codecs call."""
        return cast(Kernels, SimpleNamespace(ops={name: self._ops(k) for k, name in enumerate(FAMILIES)}))

    def _ops(self, family: int) -> Any:
        def wire_bytes(param: int, kind: int, n: int) -> int:
            return self._ask(0, family, param, kind, n, 0)[0]

        def encode(param: int, kind: int, x: int, n: int, wire: int, residual: int | None, seed: int) -> int:
            values = ctypes.string_at(x, n * Type(kind).size)
            error = ctypes.string_at(residual, 4 * n) if residual else b""
            room = bytes(wire_bytes(param, kind, n))
            used, out, error = self._ask(1, family, param, kind, n, seed, values, error, room)
            ctypes.memmove(wire, out, used)
            if residual:
                ctypes.memmove(residual, error, 4 * n)
            return used

        def decode(param: int, kind: int, wire: int, size: int, n: int, out: int, target: int, add: bool) -> int:
            before = ctypes.string_at(out, n * Type(target).size)
            data = ctypes.string_at(wire, size), b"", before
            refused, after, _ = self._ask(2, family, param, kind, n, target | add << 8, *data)
            ctypes.memmove(out, after, len(after))
            return refused

        def hop(param: int, kind: int, wire: int, size: int, local: int, n: int, out: int, seed: int) -> int:
            data = ctypes.string_at(wire, size), ctypes.string_at(local, n * Type(kind).size)
            room = bytes(wire_bytes(param, kind, n))
            used, after, _ = self._ask(3, family, param, kind, n, seed, *data, room)
            ctypes.memmove(out, after, min(used, len(after)))
            return used

        return SimpleNamespace(wire_bytes=wire_bytes, encode=encode, decode=decode, decode_add_encode=hop)
