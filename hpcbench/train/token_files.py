"""Memory-mapped token files: NumPy arrays, raw binary files, and Megatron-LM file pairs (.bin and .idx)."""

import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from hpcbench.contract.training import Data
from hpcbench.errors import UserError
from hpcbench.train.corpus import Corpus, Tokens

_WHOLE = 1 << 26
"""Maximum size in bytes of a file that is read completely to compute the digest."""
_BLOCK, _BLOCKS = 1 << 20, 64

_HEADER = struct.Struct("<9sQBQQ")
"""Header of an index file: magic, version, dtype code, number of sequences, and number of document entries."""
_MAGIC = b"MMIDIDX\0\0"
_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_CHUNK = 1 << 20
"""Number of index entries that are checked at a time."""


@dataclass(frozen=True)
class TokenFile:
    """Location and format of the tokens in a file.

    Every rank maps the file into memory and reads only the pages of its own samples. The tokens are never broadcast,
    because a corpus may be larger than the memory of a node. Only the first rank reads the index and computes the
    digest.
    """

    path: str
    dtype: str
    offset: int
    """Offset of the first token in bytes."""
    count: int
    digest: str = ""

    def corpus(self, data: Data, vocab: int) -> Corpus:
        """Return the tokens as a corpus. The last part is used for evaluation, and the rest for training.

        Raises
        ------
        UserError
            The file cannot be mapped, or is smaller than on the first rank.
        """
        tokens = self.map()
        cut = self.count - int(self.count * data.valid_fraction)
        return Corpus(tokens[:cut], tokens[cut:], vocab, self.path, self.digest)

    def map(self) -> Tokens:
        """Return a read-only view of all tokens, [count]."""
        if not self.count:
            return np.zeros(0, self.dtype)
        try:
            return np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=(self.count,))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "the file is smaller than on the first rank"
            raise UserError(
                f"{self.path}: {reason}: make the same file available on all nodes, because every rank reads it"
            ) from None


def examine(data: Data) -> TokenFile:
    """Locate the tokens of a run, and compute their digest.

    Raises
    ------
    UserError
        A file is missing, is damaged, or has the wrong format.
    """
    path = data.path or ""
    try:
        if data.source == "megatron":
            file = _megatron(path.removesuffix(".bin").removesuffix(".idx"))
        else:
            file = _array(path) if path.endswith(".npy") else _bare(path, data.dtype or "uint16")
        return TokenFile(file.path, file.dtype, file.offset, file.count, _digest(file))
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror}: data.path must name readable tokens") from None


def _digest(file: TokenFile) -> str:
    """Return the SHA-256 of all tokens or, for a large file, of its size, modification time, and some blocks."""
    size = file.count * np.dtype(file.dtype).itemsize
    digest = hashlib.sha256()
    with Path(file.path).open("rb") as stream:
        starts: Sequence[int] = range(0, size, _BLOCK)
        if size > _WHOLE:
            digest.update(f"{size} {os.fstat(stream.fileno()).st_mtime_ns} ".encode())
            starts = [k * (size - _BLOCK) // (_BLOCKS - 1) for k in range(_BLOCKS)]
        for start in starts:
            stream.seek(file.offset + start)
            digest.update(stream.read(min(_BLOCK, size - start)))
    return digest.hexdigest()


def _bare(path: str, dtype: str) -> TokenFile:
    """Locate the tokens of a raw binary file, which must be little-endian."""
    kind = np.dtype(dtype).newbyteorder("<")
    count, left_over = divmod(Path(path).stat().st_size, kind.itemsize)
    if left_over:
        raise UserError(f"{path}: {left_over} bytes remain after {count} tokens: check data.dtype ({dtype})")
    return TokenFile(path, kind.str, 0, count)


def _array(path: str) -> TokenFile:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # NumPy evaluates the header as Python, so a damaged header may raise any exception
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: not a NumPy array: {reason[:200]}: write the file with numpy.save") from None
    if not isinstance(array, np.memmap) or array.ndim != 1 or array.dtype.kind not in "iu":
        shape = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        raise UserError(f"{path}: contains {shape}: data.path must name a one-dimensional array of integers")
    return TokenFile(path, array.dtype.str, array.offset, array.size)


def _megatron(prefix: str) -> TokenFile:
    """Locate the tokens of ``PREFIX.bin``, described by ``PREFIX.idx`` (version 1). Documents must be in order.

    After the header, the index contains the length of each sequence (int32), the byte offset of each sequence in the
    other file (int64), and the first sequence of each document (int64), followed by the number of sequences. A list of
    modes (one int8 per sequence) may follow.
    """
    path = f"{prefix}.idx"

    def refuse(reason: str) -> NoReturn:
        raise UserError(f"{path}: {reason}: write the pair again with Megatron's preprocess_data.py")

    size = Path(path).stat().st_size
    with Path(path).open("rb") as stream:
        header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size or header[:9] != _MAGIC:
        refuse("not an index of tokens: the file does not begin with MMIDIDX and a complete header")
    _, version, code, sequences, documents = _HEADER.unpack(header)
    if version != 1:
        refuse(f"version {version} of the index is not supported")
    if code not in _DTYPES:
        refuse(f"code {code} is not a supported dtype of tokens")
    expected = _HEADER.size + 12 * sequences + 8 * documents
    if size not in (expected, expected + sequences):
        refuse(
            f"the index has {size} bytes, but {sequences} sequences and {documents} document entries require {expected}"
        )
    dtype = np.dtype(_DTYPES[code])
    count = 0
    if sequences:
        lengths = np.memmap(path, "<i4", "r", _HEADER.size, (sequences,))
        starts = np.memmap(path, "<i8", "r", _HEADER.size + 4 * sequences, (sequences,))
        for first in range(0, sequences, _CHUNK):
            part = lengths[first : first + _CHUNK].astype(np.int64)
            ends = count + np.cumsum(part)
            wrong = (part < 0) | (starts[first : first + _CHUNK] != (ends - part) * dtype.itemsize)
            if wrong.any():
                refuse(f"sequence {first + int(np.argmax(wrong))} does not begin where the previous sequence ends")
            count = int(ends[-1])
    if documents:
        last = int(np.memmap(path, "<i8", "r", expected - 8, (1,))[0])
        if last != sequences:
            refuse(f"the documents end at sequence {last}, but there are {sequences} sequences")
    tokens = f"{prefix}.bin"
    if (nbytes := Path(tokens).stat().st_size) != count * dtype.itemsize:
        raise UserError(
            f"{tokens}: has {nbytes} bytes, but {path} describes {count} tokens of {dtype.itemsize} bytes: check "
            "that both files belong to the same data, and that both copies are complete"
        )
    return TokenFile(tokens, dtype.str, 0, count)
