"""Split of a text file into a training and a validation half, identical on the login node and in the run."""

import hashlib
from collections.abc import Iterable, Iterator

PIECE_BYTES = 2**16
"""Size of a text file's pieces in bytes. A piece is never split between the halves."""


def split_pieces(content: bytes, *, characters: bool = False) -> Iterator[bytes]:
    """Yield the pieces of a text file.

    Parameters
    ----------
    characters
        Whether to extend each piece to the end of a UTF-8 character.
    """
    start = 0
    while start < len(content):
        stop = min(start + PIECE_BYTES, len(content))
        while characters and stop < len(content) and content[stop] & 0xC0 == 0x80:  # within a UTF-8 character
            stop += 1
        yield content[start:stop]
        start = stop


def is_valid(piece: bytes, fraction: float) -> bool:
    """Return whether a piece is in the validation half.

    The result depends only on the content of the piece, so identical pieces are in the same half.
    """
    digest = hashlib.sha256(f"split\0{hashlib.sha256(piece).hexdigest()}".encode()).digest()
    return int.from_bytes(digest[:8], "little") < fraction * 2**64


def count_half_bytes(pieces: Iterable[bytes], fraction: float) -> dict[str, int]:
    """Count the bytes of each half, including a line break between any two consecutive pieces."""
    sizes: dict[str, list[int]] = {"training": [], "validation": []}
    for piece in pieces:
        sizes["validation" if is_valid(piece, fraction) else "training"].append(len(piece))
    return {name: sum(half) + max(0, len(half) - 1) for name, half in sizes.items()}
