"""Which kernels make an operation of a codec family on a GPU, and what they need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpcbench.codecs.types import Type

STATE_HEAD = 4
"""Words of 64 bits that ``hb_state`` of kernels/gpu/order.h has."""
_OPERATIONS = ("encode", "decode", "decode_add", "decode_add_encode")


@dataclass(frozen=True)
class Sequence:
    """The kernels of a family."""

    source: str
    """File in kernels/gpu."""
    kernels: Mapping[str, tuple[str, ...]]
    """Of each operation, in order."""
    block_bytes: int
    """Of values that a block of threads takes at a time."""
    state: Callable[[int, Type], int] | None
    """Words of 64 bits that the kernels share, for n values. None: the kernels take no state, no parameter and no
    length of the wire; they cannot fail."""


def _one_each(*operations: str) -> dict[str, tuple[str, ...]]:
    return {operation: (f"hb_{operation}",) for operation in operations}


def _chunk_state(n: int, kind: Type) -> int:
    return STATE_HEAD + 2 * -(-n * kind.size // (8 * 4096))


_TILES = Sequence("gpu.cu", _one_each(*_OPERATIONS), 8192, None)
_CHUNKS = Sequence("chunked.cu", _one_each(*_OPERATIONS), 8 * 4096, _chunk_state)
_SEQUENCES = {"mpc": _CHUNKS, "xpk": _CHUNKS}


def sequence_of(family: str) -> Sequence:
    """The kernels of a family of `library.FAMILIES`."""
    return _SEQUENCES.get(family, _TILES)
