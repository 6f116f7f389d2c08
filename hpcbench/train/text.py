"""Text to train on, as bytes: no file is in both the training and the validation half."""

import hashlib
import math
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.errors import UserError
from hpcbench.train.config import Data
from hpcbench.train.initial import key_of, random_bits

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Corpus:
    """Two halves of a text."""

    train: Bytes
    valid: Bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of both halves: runs with the same one have read the same text."""
        return hashlib.sha256(self.train.tobytes() + b"\0" + self.valid.tobytes()).hexdigest()

    def window(self, *, split: str, key: int, index: npt.NDArray[np.uint64], seq_len: int) -> npt.NDArray[np.int64]:
        """Samples by their numbers, the same in every layout.

        Returns
        -------
        [len(index), seq_len + 1]: a random piece of the text for each number.
        """
        text = self.train if split == "train" else self.valid
        starts = random_bits(key, index) % np.uint64(len(text) - seq_len)
        places = starts[:, None].astype(np.int64) + np.arange(seq_len + 1)
        windows: npt.NDArray[np.int64] = text[places].astype(np.int64)
        return windows

    def unigram_loss(self) -> float:
        """Nats a byte of the validation half costs a model that knows only how often each byte comes."""
        counts = np.bincount(self.train, minlength=256) + 1.0
        surprise = -np.log(counts / counts.sum())
        return float(np.bincount(self.valid, minlength=256) @ surprise / len(self.valid))


UNIFORM_LOSS = math.log(256)
"""Nats a byte costs a model that knows nothing."""


def load(data: Data, seq_len: int) -> Corpus:
    """Read the text of a run.

    Raises
    ------
    UserError
        A file cannot be read, or a half is too short for one sample.
    """
    documents = _stdlib() if data.source == "stdlib" else _file(data.path or "")
    halves: dict[bool, list[bytes]] = {False: [], True: []}
    for content in documents:
        halves[_is_valid(content, data.valid_fraction)].append(content)
    corpus = Corpus(_join(halves[False]), _join(halves[True]))
    for name, half in (("training", corpus.train), ("validation", corpus.valid)):
        if len(half) <= seq_len + 1:
            where = data.path or data.source
            raise UserError(
                f"{where}: the {name} half has {len(half)} bytes, too few for seq_len {seq_len}: "
                "give a longer text or change data.valid_fraction"
            )
    return corpus


def load_shared(comm: MPI.Comm, progress: Progress, data: Data, seq_len: int) -> Corpus:
    """As `load`, but only one rank reads: a thousand small files from every rank would choke a parallel file system.

    Raises
    ------
    UserError
        On every rank, with the first one's words.
    """
    outcome: Corpus | UserError | None = None
    if comm.rank == 0:
        try:
            outcome = load(data, seq_len)
        except UserError as error:
            outcome = error
    progress.complete([comm.Ibarrier()])  # a rank that waits inside bcast would take the reader's core
    outcome = comm.bcast(outcome)
    if not isinstance(outcome, Corpus):
        raise outcome or UserError("the first rank sent no text")
    return outcome


def _is_valid(content: bytes, fraction: float) -> bool:
    """By content, so that two copies of a text fall into the same half."""
    return key_of("split", hashlib.sha256(content).hexdigest()) < fraction * 2**64


def _join(contents: list[bytes]) -> Bytes:
    return np.frombuffer(b"\n".join(contents), dtype=np.uint8)


def _stdlib() -> Iterator[bytes]:
    """The sources of the running interpreter's standard library, without its tests and what was installed later."""
    root = Path(sysconfig.get_paths()["stdlib"])
    apart = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
    files = (path for path in root.rglob("*.py") if not apart.intersection(path.relative_to(root).parts))
    for path in sorted(files):
        yield path.read_bytes()


def _file(path: str) -> Iterator[bytes]:
    """A text file in pieces of 64 KiB, which take the place of files."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: data.path must name a readable text file") from None
    for start in range(0, len(content), 2**16):
        yield content[start : start + 2**16]
