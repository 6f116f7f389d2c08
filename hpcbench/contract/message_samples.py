"""Messages that a run keeps: what ranks gave to their channels in some steps, before any codec, a file a rank and step.

A file is a ZIP archive without compression: ``about.json`` says what it holds, and ``0``, ``1`` and so on are the
values of its messages. The archive's checksums tell a file that was cut or changed.
"""

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError

DIRECTORY = "messages"
"""Directory of the files, below the run's directory."""
_ABOUT = "about.json"
_REMEDY = "remove it, or run again with train.keep_messages"


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A tensor in a message, which lies there row by row."""

    name: str
    """Name of a parameter; empty where the message is one tensor."""
    shape: tuple[int, ...]
    begin: int
    """Its first value's place in the message."""


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """What a rank gave to a channel: a rank's own values, in the type in which they travel."""

    channel: str
    """Dimension, phase and kind of the channel in words; on a tensor grid its axis follows."""
    operation: str
    place: int
    """Number of the message among those of its channel in the step, from 0 on."""
    dtype: str
    """Name of the type of the values, such as ``bfloat16``."""
    size: int
    """Values of the whole message. The file holds the first of them."""
    parts: tuple[MessagePart, ...]
    values: bytes


@dataclass(frozen=True, slots=True)
class SampledStep:
    """The messages of one rank in one step."""

    rank: int
    step: int
    messages: tuple[SampledMessage, ...]
    left_out: int = 0
    """Messages that were chosen and had no room."""


def name_file(step: int | str, rank: int | str) -> str:
    """Return the name of a rank's file of a step; ``*`` for any."""
    return f"step-{step}-rank-{rank}.zip"


def write_samples(directory: Path, kept: SampledStep) -> None:
    """Write a rank's file as a whole or not at all; one that is there is replaced. The directory must be there."""
    about = {
        "schema": 1,
        "rank": kept.rank,
        "step": kept.step,
        "left_out": kept.left_out,
        "messages": [
            {
                "channel": message.channel,
                "operation": message.operation,
                "place": message.place,
                "dtype": message.dtype,
                "size": message.size,
                "parts": [[part.name, list(part.shape), part.begin] for part in message.parts],
            }
            for message in kept.messages
        ],
    }
    path = directory / name_file(kept.step, kept.rank)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_ABOUT, json.dumps(about))
            for k, message in enumerate(kept.messages):
                archive.writestr(str(k), message.values)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_samples(path: Path) -> SampledStep:
    """Return a rank's file.

    Raises
    ------
    UserError
        It cannot be read, was cut or changed, or is none.
    """
    where = make_printable(str(path))
    try:
        with zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read(_ABOUT))
            messages = [
                SampledMessage(
                    **{
                        **fields,
                        "parts": tuple(
                            MessagePart(name, tuple(shape), begin) for name, shape, begin in fields["parts"]
                        ),
                    },
                    values=archive.read(str(k)),
                )
                for k, fields in enumerate(about["messages"])
            ]
            return SampledStep(about["rank"], about["step"], tuple(messages), about["left_out"])
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, EOFError, NotImplementedError):
        raise UserError(f"{where}: not a whole file of messages: it was cut or changed: {_REMEDY}") from None
