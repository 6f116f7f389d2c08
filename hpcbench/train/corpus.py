"""Tokens for training and evaluation, and selection of samples. Samples do not depend on the layout."""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpcbench.errors import UserError
from hpcbench.train.initial import random_bits

Tokens = npt.NDArray[np.integer]

_COUNTED = 1 << 26
"""Maximum number of tokens that are counted for the unigram baseline."""
_BLOCKS = 64


@dataclass(frozen=True)
class Corpus:
    """Text that is split into a training part and a validation part.

    Attributes
    ----------
    train, valid
        Tokens of any integer dtype, in memory or memory-mapped.
    symbols
        Exclusive upper bound of token IDs: 256 for bytes, otherwise the vocabulary size of the model.
    where
        File or source, for error messages.
    known_digest
        Precomputed digest of a text that is too large to be read completely.
    """

    train: Tokens
    valid: Tokens
    symbols: int = 256
    where: str = "text"
    known_digest: str | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of both parts, or of selected blocks of a large file. Runs with the same digest use the same text."""
        return self.known_digest or hashlib.sha256(self.train.tobytes() + b"\0" + self.valid.tobytes()).hexdigest()

    def window(self, *, split: str, key: int, index: npt.NDArray[np.uint64], seq_len: int) -> npt.NDArray[np.int64]:
        """Return the samples with the given indices. Samples do not depend on the layout.

        Returns
        -------
        Tokens, [len(index), seq_len + 1]. Each sample starts at a random position of the text.

        Raises
        ------
        UserError
            A token is not in the vocabulary.
        """
        tokens = self.train if split == "train" else self.valid
        starts = random_bits(key, index) % np.uint64(len(tokens) - seq_len)
        places = starts[:, None].astype(np.int64) + np.arange(seq_len + 1)
        windows: npt.NDArray[np.int64] = tokens[places].astype(np.int64)
        self._refuse_foreign(windows, places, split)
        return windows

    def check_blocks(self) -> None:
        """Check that all tokens are in the vocabulary. In a large text, evenly distributed blocks are checked.

        Raises
        ------
        UserError
            A token is not in the vocabulary.
        """
        for split, tokens in (("train", self.train), ("valid", self.valid)):
            for part in _blocks(len(tokens)):
                self._refuse_foreign(tokens[part], np.arange(part.start, part.stop), split)

    def _refuse_foreign(self, tokens: Tokens, places: npt.NDArray[np.int64], split: str) -> None:
        if tokens.size and (np.max(tokens) >= self.symbols or np.min(tokens) < 0):
            first = int(np.argmax((tokens >= self.symbols) | (tokens < 0)))
            place = int(places.flat[first]) + (len(self.train) if split == "valid" else 0)
            raise UserError(
                f"{self.where}: position {place} contains token {int(tokens.flat[first])}, but model.vocab is "
                f"{self.symbols}: increase model.vocab, or give the file that belongs to the model"
            )

    @property
    def uniform_loss(self) -> float:
        """Loss of a uniform model in nats per token."""
        return math.log(self.symbols)

    def unigram_loss(self) -> float:
        """Return the validation loss of a unigram model (token frequencies only) in nats per token."""
        counts = self._counts(self.train) + 1.0
        surprise = -np.log(counts / counts.sum())
        seen = self._counts(self.valid)
        return float(seen @ surprise / seen.sum())

    @property
    def unigram_tokens(self) -> int:
        """Number of training tokens used for the frequencies of `unigram_loss`.

        In a very large text, the tokens of only some blocks are counted.
        """
        return sum(part.stop - part.start for part in _blocks(len(self.train)))

    def _counts(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        counts = np.zeros(self.symbols, dtype=np.int64)
        for part in _blocks(len(tokens)):
            counts += np.bincount(tokens[part], minlength=self.symbols)
        return counts


def _blocks(n: int) -> list[slice]:
    """Return one slice of all `n` tokens, or evenly distributed blocks if `n` is too large."""
    if n <= _COUNTED:
        return [slice(0, n)]
    size = _COUNTED // _BLOCKS
    return [slice(start, start + size) for start in np.linspace(0, n - size, _BLOCKS).astype(np.int64).tolist()]
