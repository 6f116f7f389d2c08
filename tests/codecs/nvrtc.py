"""Compilation of device code with NVIDIA's run-time compiler, without a GPU or driver.

As a program, the module reads jobs in JSON from stdin. Tests can therefore run several compilers at once, including two
compiler versions, which cannot share a process. CUDA 13 supports no architecture older than ``sm_75``.
"""

import ctypes
import json
import struct
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

LIBRARIES = {12: ("cuda_nvrtc", "libnvrtc.so.12"), 13: ("cu13", "libnvrtc.so.13")}
"""Folder of the wheel under ``nvidia`` and file name of the library, by major version."""


@dataclass(frozen=True)
class Kernel:
    """Resource usage of a compiled kernel.

    Parameters
    ----------
    instructions
        Code size in instructions of 16 bytes, including padding.
    registers
        Registers per thread.
    stack
        Local memory per thread in bytes: spilled registers, dynamically indexed arrays, and calls.
    shared
        Shared memory per block in bytes.
    """

    instructions: int
    registers: int
    stack: int
    shared: int


def library_path(major: int) -> Path | None:
    """Return the path of the library if the version's wheel is installed."""
    folder, name = LIBRARIES[major]
    candidates = (Path(place) / "nvidia" / folder / "lib" / name for place in sys.path if place)
    return next((path for path in candidates if path.is_file()), None)


class Compiler:
    """A version of the compiler.

    Raises
    ------
    ImportError
        The version is not installed.
    """

    def __init__(self, major: int) -> None:
        path = library_path(major)
        if path is None:
            raise ImportError(f"no NVRTC of CUDA {major}: `pip install '.[test]'` on Linux, x86_64 or aarch64")
        # the library opens these files by name, which succeeds once they are loaded
        for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(path))

    def compile(self, source: Path, options: list[str]) -> bytes:
        """Compile a file to a cubin.

        Raises
        ------
        ValueError
            Compilation failed. The exception contains the compiler's message.
        """
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        call = self._library
        name = str(source).encode()
        assert call.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), name, 0, None, None) == 0
        arguments = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        try:
            if call.nvrtcCompileProgram(program, len(options), arguments):
                call.nvrtcGetProgramLogSize(program, ctypes.byref(size))
                log = ctypes.create_string_buffer(size.value)
                call.nvrtcGetProgramLog(program, log)
                raise ValueError(log.value.decode())
            call.nvrtcGetCUBINSize(program, ctypes.byref(size))
            cubin = ctypes.create_string_buffer(size.value)
            assert call.nvrtcGetCUBIN(program, cubin) == 0
            return cubin.raw
        finally:
            call.nvrtcDestroyProgram(ctypes.byref(program))


def kernels_of(cubin: bytes) -> dict[str, Kernel]:
    """Return the kernels in a cubin, which is a 64-bit ELF file.

    Notes
    -----
    The code of a kernel is in section ``.text.NAME``, and its static shared memory is in ``.nv.shared.NAME``.
    ``.nv.info`` is a list of attributes. Each attribute has one byte for the format, one for the kind, and two for the
    size or value. Format 4 is followed by a payload. The payload of kind 0x11 is a symbol and its stack frame size in
    bytes. The payload of kind 0x2f is a symbol and its number of registers.
    """
    headers, count, names_at = struct.unpack_from("<Q", cubin, 40)[0], *struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, headers + 64 * k) for k in range(count)]
    strings = sections[names_at][4]

    def text(at: int) -> str:
        return cubin[at : cubin.index(b"\0", at)].decode()

    by_name = {text(strings + s[0]): s for s in sections}
    symbols = by_name[".symtab"]
    symbol_strings = sections[symbols[6]][4]
    attributes: dict[tuple[int, str], int] = {}
    info = by_name[".nv.info"]
    at, end = info[4], info[4] + info[5]
    while at < end:
        form, kind, length = struct.unpack_from("<BBH", cubin, at)
        if form == 4 and kind in (0x11, 0x2F):
            symbol, value = struct.unpack_from("<II", cubin, at + 4)
            name = text(symbol_strings + struct.unpack_from("<I", cubin, symbols[4] + 24 * symbol)[0])
            attributes[kind, name] = value
        at += 4 + (length if form == 4 else 0)
    kernels = {}
    for name, section in by_name.items():
        if name.startswith(".text."):
            kernel = name[len(".text.") :]
            shared = by_name.get(f".nv.shared.{kernel}")
            registers, stack = attributes[0x2F, kernel], attributes[0x11, kernel]
            kernels[kernel] = Kernel(section[5] // 16, registers, stack, shared[5] if shared else 0)
    return kernels


def main() -> None:
    """Read the major version and jobs from stdin.

    Each job consists of a file and options. The output contains one line of kernels per job.
    """
    work = json.load(sys.stdin)
    compiler = Compiler(work["major"])
    for source, options in work["jobs"]:
        kernels = kernels_of(compiler.compile(Path(source), options))
        print(json.dumps({name: asdict(kernel) for name, kernel in kernels.items()}), flush=True)


if __name__ == "__main__":
    main()
