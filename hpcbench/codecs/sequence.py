"""GPU kernels for each operation of a codec family, and their memory requirements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpcbench.codecs.types import Type

STATE_HEAD = 4
"""Size of ``hb_state`` (kernels/gpu/order.h) in 64-bit words."""
OPERATIONS = ("encode", "decode", "decode_add", "decode_add_encode")
_PIECE = 8 * 4096  # bytes of the chunks that a block of threads encodes at once
_SPARSE_CHUNK = 65536
_SPARSE_HEAD = 16
_BINS = 3 * 2048


@dataclass(frozen=True)
class Sequence:
    """The kernels of a family."""

    source: str
    """File name in kernels/gpu."""
    kernels: Mapping[str, tuple[str, ...]]
    """Kernels of each operation in `OPERATIONS`, in launch order."""
    block_bytes: int
    """Bytes of values that a thread block processes at a time."""
    state: Callable[[int, Type, int], int] | None = None
    """Function of the number of values, the type and the parameter.

    The function returns the number of zero-initialized 64-bit words that the kernels share.

    Without a function, the kernels take no state, parameter or encoded length, and cannot fail.
    """
    sums: bool = False
    """Whether `decode_add_encode` requires memory for n float32 values after the state."""


def _chunk_state(n: int, kind: Type, param: int) -> int:
    return STATE_HEAD + 2 * -(-n * kind.size // _PIECE)


def _sparse_state(n: int, kind: Type, param: int) -> int:
    return _SPARSE_HEAD + 2 * -(-n // _SPARSE_CHUNK)


def _topk_state(n: int, kind: Type, param: int) -> int:
    return _BINS + _sparse_state(n, kind, param)


def _row_state(n: int, kind: Type, width: int) -> int:
    return _SPARSE_HEAD + 2 * -(-(n // width) // max(1, _SPARSE_CHUNK // width))


def _sparse(*select: str) -> dict[str, tuple[str, ...]]:
    return {
        "encode": ("hb_fold", *(f"hb_{name}" for name in select), "hb_encode"),
        "decode": ("hb_decode",),
        "decode_add": ("hb_decode_add",),
        "decode_add_encode": (
            "hb_sum_decode",
            "hb_sum_fold",
            *(f"hb_sum_{name}" for name in select),
            "hb_sum_encode",
        ),
    }


_EACH = {operation: (f"hb_{operation}",) for operation in OPERATIONS}
_TILES = Sequence("gpu.cu", _EACH, 8192)
_CHUNKS = Sequence("chunked.cu", _EACH, _PIECE, _chunk_state)
_SEQUENCES = {
    "mpc": _CHUNKS,
    "xpk": _CHUNKS,
    "topk": Sequence("sparse.cu", _sparse("select", "select", "select"), 8192, _topk_state, sums=True),
    "threshold": Sequence("sparse.cu", _sparse(), 8192, _sparse_state, sums=True),
    "rowsparse": Sequence("sparse.cu", _sparse(), 8192, _row_state, sums=True),
}

CONVERSIONS = Sequence(
    "convert.cu",
    {
        "round": ("hb_round",),
        "add a residual": ("hb_add_residual",),
        "widen": ("hb_widen",),
        "widen and add": ("hb_widen_add",),
    },
    8192,
)
"""Kernels that convert between values and the dtype in which they are sent, independent of codecs."""

SUMS = Sequence("sum.cu", {"add": ("hb_sum",)}, 8192)
"""Kernel that adds values of one dtype, independent of codecs."""


def sequence_of(family: str) -> Sequence:
    """Return the GPU kernels of a family in `library.FAMILIES`."""
    return _SEQUENCES.get(family, _TILES)
