"""Corpus of a run (bytes, tokens or token files), split into disjoint training and validation parts."""

import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.contract.text_split import is_valid, split_pieces
from hpcbench.contract.training import Data
from hpcbench.errors import UserError
from hpcbench.train.corpus import Corpus, Tokens
from hpcbench.train.token_files import TokenFile, examine

_MAPPED = ("megatron", "numpy")
"""Sources that already contain tokens."""


def load(data: Data, seq_len: int, vocab: int = 256) -> Corpus:
    """Read the corpus of a run.

    Parameters
    ----------
    data
        Source of the corpus.
    seq_len
        Number of tokens per sample.
    vocab
        Exclusive upper bound of token IDs.

    Raises
    ------
    UserError
        A file cannot be read or has the wrong format, or one part is too short for a sample.
    """
    return _checked(_find(data, vocab), data, seq_len, vocab)


def _checked(source: Corpus | TokenFile, data: Data, seq_len: int, vocab: int) -> Corpus:
    corpus = source.corpus(data, vocab) if isinstance(source, TokenFile) else source
    corpus.check_blocks()
    unit = "tokens" if data.source in _MAPPED or data.tokenizer else "bytes"
    for name, half in (("training", corpus.train), ("validation", corpus.valid)):
        if len(half) <= seq_len + 1:
            where = data.path or data.source
            raise UserError(
                f"{where}: the {name} split has {len(half)} {unit}, which is too short for seq_len {seq_len}: "
                "give a longer text, or change data.valid_fraction"
            )
    return corpus


def load_shared(comm: MPI.Comm, progress: Progress, data: Data, seq_len: int, vocab: int = 256) -> Corpus:
    """Read the corpus on one rank and broadcast it. Parallel file systems are thereby spared many small reads.

    Token files are only examined on this rank. Every rank then maps the files into memory (see `TokenFile`).

    Raises
    ------
    UserError
        `load` failed. All ranks raise the error with the message of the first rank.
    """
    outcome: Corpus | TokenFile | UserError | None = None
    if comm.rank == 0:
        try:
            outcome = _find(data, vocab)
            _checked(outcome, data, seq_len, vocab)
        except UserError as error:
            outcome = error
    progress.complete([comm.Ibarrier()])  # ranks that busy-wait in bcast could take the core of the reading rank
    outcome = comm.bcast(outcome)
    if isinstance(outcome, TokenFile):
        return outcome.corpus(data, vocab)
    if not isinstance(outcome, Corpus):
        raise outcome or UserError("the first rank sent no text")
    return outcome


def _find(data: Data, vocab: int) -> Corpus | TokenFile:
    if data.source in _MAPPED:
        return examine(data)
    documents = _stdlib() if data.source == "stdlib" else _file(data.path or "", characters=data.tokenizer is not None)
    halves: dict[bool, list[bytes]] = {False: [], True: []}
    for content in documents:
        halves[is_valid(content, data.valid_fraction)].append(content)
    where = data.path or data.source
    if data.tokenizer is None:
        return Corpus(_join(halves[False]), _join(halves[True]), where=where)
    encode = _encoder(data.tokenizer, vocab, where)
    return Corpus(encode(halves[False]), encode(halves[True]), vocab, where)


def _join(contents: list[bytes]) -> Tokens:
    return np.frombuffer(b"\n".join(contents), dtype=np.uint8)


def _stdlib() -> Iterator[bytes]:
    """Yield the standard library sources of the running interpreter, without tests and installed packages."""
    apart = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
    files = []
    for folder, below, names in os.walk(sysconfig.get_paths()["stdlib"]):
        below[:] = set(below) - apart  # there may be many packages
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    for path in sorted(files):
        yield path.read_bytes()


def _file(path: str, *, characters: bool = False) -> Iterator[bytes]:
    """Yield the pieces of a text file. Each piece is treated like a file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: data.path must name a readable text file") from None
    yield from split_pieces(content, characters=characters)


def _encoder(path: str, vocab: int, where: str) -> Callable[[Iterable[bytes]], Tokens]:
    """Return a function that tokenizes documents, given a tokenizer file of the library `tokenizers`.

    Raises
    ------
    UserError
        The library or the file is missing, or the tokenizer's vocabulary is larger than the vocabulary of the model.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UserError(
            "data.tokenizer: the library tokenizers is not installed: pip install tokenizers, or leave "
            "data.tokenizer out to train on bytes"
        ) from None
    try:
        tokenizer = Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
    except Exception as error:  # the library raises no narrower exception
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0][:200]
        raise UserError(
            f"{path}: {reason}: data.tokenizer must name a tokenizer.json of the library tokenizers"
        ) from None
    if (size := tokenizer.get_vocab_size()) > vocab:
        raise UserError(f"{path}: has {size} tokens, but model.vocab is {vocab}: set model.vocab to {size} or more")

    def encode(documents: Iterable[bytes]) -> Tokens:
        tokens: list[Tokens] = [np.zeros(0, dtype=np.int32)]
        for content in documents:
            try:
                document = content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{where}: not UTF-8 ({error.reason}, in {content[:40]!r} ...), but a tokenizer reads only "
                    "text: leave data.tokenizer out to train on bytes"
                ) from None
            tokens.append(np.array(tokenizer.encode(document, add_special_tokens=False).ids, dtype=np.int32))
        return np.concatenate(tokens)

    return encode
