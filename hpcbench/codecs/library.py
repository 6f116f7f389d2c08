"""Compiled CPU kernels: location, loading, and selection of the instruction set."""

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

_NAME = "libhpcbench_kernels.so"
_ABI = 8
FAMILIES = (
    "zfp",
    "mpc",
    "xpk",
    "fp16",
    "bf16",
    "fp8e4m3",
    "fp8e5m2",
    "int8",
    "int4",
    "sign",
    "topk",
    "threshold",
    "rowsparse",
    "2:4",
    "grouped",
    "mx",
    "nvfp4",
)
"""Codec families in the order of kernels/hb_names.h."""
MALFORMED = 2**64 - 1
"""Return value of `decode_add_encode` for malformed bytes."""
INSTRUCTION_SETS = ("avx512", "avx2", "sse2", "generic")
"""Instruction sets of the kernel builds, fastest first. ``generic`` is plain C++."""


_U32, _U64, _F64, _POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p


class Ops(ctypes.Structure):
    """The struct ``hb_ops`` of kernels/hb_kernels.h, which documents the arguments."""

    _fields_ = (
        ("wire_bytes", ctypes.CFUNCTYPE(_U64, _U64, _U32, _U64)),
        ("encode", ctypes.CFUNCTYPE(_U64, _U64, _U32, _POINTER, _U64, _POINTER, _POINTER, _U64)),
        ("decode", ctypes.CFUNCTYPE(_U32, _U64, _U32, _POINTER, _U64, _U64, _POINTER, _U32, _U32)),
        (
            "decode_add_encode",
            ctypes.CFUNCTYPE(_U64, _U64, _U32, _POINTER, _U64, _POINTER, _U64, _POINTER, _U64),
        ),
    )


class AdamWStep(ctypes.Structure):
    """The struct ``hb_adamw`` of kernels/hb_kernels.h, which documents the fields."""

    _fields_ = (
        *((name, _F64) for name in ("keep", "factor", "take1", "keep2", "take2", "grown", "eps", "size")),
        ("ends", _POINTER),
    )


class Flat(ctypes.Structure):
    """The struct ``hb_flat`` of kernels/hb_kernels.h."""

    _fields_ = (
        (
            "adamw",
            ctypes.CFUNCTYPE(None, _U32, ctypes.POINTER(AdamWStep), _POINTER, _POINTER, _POINTER, _POINTER, _U64, _U64),
        ),
        ("squares", ctypes.CFUNCTYPE(_F64, _U32, _POINTER, _U64)),
    )


class Halves(ctypes.Structure):
    """The struct ``hb_halves`` of kernels/hb_kernels.h, which documents the arguments."""

    _fields_ = (
        ("narrow", ctypes.CFUNCTYPE(None, _U32, _POINTER, _U64, _POINTER, _POINTER)),
        ("widen", ctypes.CFUNCTYPE(None, _U32, _POINTER, _U64, _POINTER, _U32)),
        ("add", ctypes.CFUNCTYPE(None, _U32, _POINTER, _POINTER, _U64)),
    )


class _Table(ctypes.Structure):
    """The struct ``hb_kernels`` of kernels/hb_kernels.h."""

    _fields_ = (
        ("abi", _U32),
        ("lanes", _U32),
        ("name", ctypes.c_char_p),
        ("ops", ctypes.POINTER(Ops) * len(FAMILIES)),
        ("flat", ctypes.POINTER(Flat)),
        ("halves", ctypes.POINTER(Halves)),
    )


class Kernels:
    """Kernel functions of one build. Calls release the GIL."""

    def __init__(self, library: ctypes.CDLL, table: _Table) -> None:
        self._library = library  # keeps the code loaded
        self.instruction_set: str = table.name.decode()
        self.ops: dict[str, Any] = {family: table.ops[k].contents for k, family in enumerate(FAMILIES)}
        self.flat: Any = table.flat.contents
        self.halves: Any = table.halves.contents


def library_path() -> Path:
    """Return the path of the kernel library: next to this file, or in site-packages after an editable install.

    Raises
    ------
    ImportError
        The kernels were not built. The message says how to build them.
    """
    here = Path(__file__).resolve().parent
    installed = here / _NAME
    if installed.is_file():
        return installed
    # An editable install puts the library into site-packages, at the path that it would have in a wheel.
    for place in _site_directories():
        path = place / "hpcbench" / "codecs" / _NAME
        if path.is_file():
            return path
    raise ImportError(
        f"the compiled kernels ({_NAME}) are not installed: run `pip install .` or `pip install -e .` "
        "in the hpcbench checkout (needs g++ and make)"
    )


def _site_directories() -> list[Path]:
    import site
    import sysconfig

    directories = [Path(sysconfig.get_path("platlib")), *map(Path, site.getsitepackages())]
    if site.ENABLE_USER_SITE:
        directories.append(Path(site.getusersitepackages()))
    return directories


@functools.cache
def kernels(instruction_set: str | None = None) -> Kernels:
    """Return the kernel functions of one build.

    Parameters
    ----------
    instruction_set
        One of `INSTRUCTION_SETS`. If None, use ``HPCBENCH_ISA`` if set, or the fastest instruction set of this
        processor.

    Raises
    ------
    ImportError
        The kernels were not built or belong to a different version.
    ValueError
        The processor or the library does not support the instruction set.
    """
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
        find = library.hb_kernels_for
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"{path}: cannot be loaded ({error}): build the library again with `pip install -e .`"
        ) from error
    find.restype = ctypes.POINTER(_Table)
    find.argtypes = [ctypes.c_char_p]
    wanted = instruction_set if instruction_set is not None else os.environ.get("HPCBENCH_ISA") or None
    table: Any = find(wanted.encode() if wanted else None)
    if not table:
        raise ValueError(
            f"no kernels for instruction set {wanted!r} (from HPCBENCH_ISA): use an instruction set that this "
            f"machine supports ({', '.join(INSTRUCTION_SETS)})"
        )
    if table.contents.abi != _ABI:
        raise ImportError(
            f"{path}: the kernels belong to another version of hpcbench: build the kernels again with `pip install -e "
            ".`"
        )
    return Kernels(library, table.contents)
