"""Samples of a rank. The order of samples is the same in every layout."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from hpcbench.contract.shards import cut_evenly
from hpcbench.parallel.pipeline import MicroBatch
from hpcbench.train.corpus import Corpus
from hpcbench.train.initial import key_of


class Batches:
    """Micro-batches of one rank.

    Parameters
    ----------
    corpus
        Corpus of the run.
    seed, seq_len, global_batch, micro_batch
        Settings of the run.
    rank, size
        Index of this rank's part of the samples, and number of parts. Each part is contiguous in the global batch.
    device
        Device of the returned tokens.
    samples
        Number of different training samples, after which the same samples recur, or None if none recurs.
    own
        Function that selects this rank's positions of tokens, [b, s], if ranks share samples.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        seed: int,
        seq_len: int,
        global_batch: int,
        micro_batch: int,
        rank: int,
        size: int,
        device: str,
        samples: int | None = None,
        own: Callable[[torch.Tensor], torch.Tensor] = lambda tokens: tokens,
    ) -> None:
        self._corpus = corpus
        self._seed = seed
        self._seq_len = seq_len
        self._global_batch = global_batch
        self._micro_batch = micro_batch
        self._rank, self._size = rank, size
        self._device, self._samples = device, samples
        self._own = own

    def train(self, step: int) -> list[MicroBatch]:
        """Return the micro-batches of this rank in global batch `step` (from 0)."""
        first = step * self._global_batch
        numbers = np.arange(first, first + self._global_batch, dtype=np.uint64)
        return self._cut("train", self._seed, numbers % np.uint64(self._samples) if self._samples else numbers)

    def valid(self, samples: int) -> list[MicroBatch]:
        """Return the validation samples of this rank, which do not depend on the seed."""
        return self._cut("valid", 0, np.arange(samples, dtype=np.uint64))

    def _cut(self, split: str, seed: int, samples: npt.NDArray[np.uint64]) -> list[MicroBatch]:
        mine = samples[cut_evenly(len(samples), self._size)[self._rank]]
        tokens = self._corpus.window(split=split, key=key_of(split, seed), index=mine, seq_len=self._seq_len)
        pieces = torch.split(torch.from_numpy(tokens).to(self._device), self._micro_batch)
        numbers = torch.split(torch.from_numpy(mine.astype(np.int64)), self._micro_batch)
        return [
            MicroBatch(self._own(piece[:, :-1]), self._own(piece[:, 1:]), tuple(number.tolist()))
            for piece, number in zip(pieces, numbers, strict=True)
            if len(piece)
        ]
