"""The files of messages below a directory, and what is known of the run that each is of."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcbench.codecs.types import BFLOAT16, Array
from hpcbench.contract import kept
from hpcbench.contract.kept import KeptMessage
from hpcbench.contract.settings import Settings
from hpcbench.contract.text import printable
from hpcbench.errors import UserError
from hpcbench.files import exists, read_json

_REMEDY = "submit a study with `train: {keep_messages: {steps: [20, 60], each: 2}}`, then give its directory"
_DEPTH = 6
"""Directories between the given one and a file of messages, at most: results/STUDY/NUMBER/runs/RUN/messages."""


@dataclass(frozen=True)
class Source:
    """A file of messages."""

    path: Path
    study: str
    run: str
    scheme: str
    """Scheme of the run; its directory's name where no run.json tells."""
    model: str
    tokens: int | None
    """Tokens that a rank's gradient messages are sums over, at most; None where no run.json tells."""


@dataclass(frozen=True)
class Sample:
    """A message of a file."""

    source: Source
    rank: int
    step: int
    message: KeptMessage
    values: Array


def sources(path: Path) -> list[Source]:
    """The files of messages of a run, or of all runs below a directory.

    Raises
    ------
    UserError
        There are none.
    """
    where = printable(str(path))
    if not exists(path):
        raise UserError(f"{where}: no such directory: give a run's or a submission's; {_REMEDY}")
    if not path.is_dir():
        raise UserError(f"{where}: is a file, and messages lie in directories of runs: {_REMEDY}")
    found = sorted(set(_below(path)), key=_order)
    if not found:
        raise UserError(f"{where}: no run in it has kept messages: {_REMEDY}")
    known: dict[Path, tuple[str, str, str, str, int | None]] = {}
    for file in found:
        directory = file.parent.parent
        if directory not in known:
            known[directory] = _run(directory.resolve())
    return [Source(file, *known[file.parent.parent]) for file in found]


def samples(source: Source) -> tuple[list[Sample], int]:
    """The messages of a file, and how many the run left out for lack of room.

    Raises
    ------
    UserError
        The file cannot be read, or is none.
    """
    own = kept.read(source.path)
    return [
        Sample(source, own.rank, own.step, message, values)
        for message in own.messages
        if (values := _values(message)).size
    ], own.left_out


def _values(message: KeptMessage) -> Array:
    dtype = BFLOAT16 if message.dtype == "bfloat16" else np.dtype(message.dtype)
    return np.frombuffer(message.values, dtype)


def _below(path: Path) -> Iterator[Path]:
    name = kept.file_name("*", "*")
    if path.name == kept.DIRECTORY:
        yield from path.glob(name)
    for depth in range(_DEPTH):
        yield from path.glob("/".join(["*"] * depth + [kept.DIRECTORY, name]))


def _order(path: Path) -> tuple[str, list[int]]:
    numbers = [int(word) for word in path.stem.split("-") if word.isdecimal()]
    return str(path.parent), numbers


def _run(directory: Path) -> tuple[str, str, str, str, int | None]:
    """Study and name of the run, its scheme, its model, and the tokens of a gradient message."""
    run = Settings.read(read_json(directory / "run.json") or {})
    scheme = run.scheme.name or directory.name
    return run.study or "", run.run or directory.name, scheme, run.model.name or "", _tokens(run)


def _tokens(run: Settings) -> int | None:
    """Tokens that a rank computes before it sends gradients: all of a step, or of a micro-batch with ZeRO 2 and 3."""
    train, dp, cp = run.train, run.layout.dp, run.layout.cp
    batch, micro, length, zero = train.global_batch, train.micro_batch, train.seq_len, train.zero
    if batch is None or micro is None or length is None or zero is None or not dp or not cp:
        return None
    return math.ceil((micro if zero >= 2 else batch / dp) * length / cp)
