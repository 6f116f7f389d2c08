"""Message sample files, which contain the messages of some steps before encoding. Each rank writes a file per step.

A file is an uncompressed ZIP archive. ``about.json`` describes the content, and ``0``, ``1`` and so on contain message
values. The archive's checksums detect truncated or modified files.
"""

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError

DIRECTORY = "messages"
"""Directory of the files, relative to the run's directory."""
_ABOUT = "about.json"
_REMEDY = "remove the file, or run again with train.keep_messages"


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A tensor in a message, in row-major order."""

    name: str
    """Parameter name, or an empty string if the message is a single tensor."""
    shape: tuple[int, ...]
    begin: int
    """Index of the tensor's first value in the message."""


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """Values that a rank passed to a channel, in the number format of the message."""

    channel: str
    """Dimension, phase and kind of the channel as text, followed by the axis on a tensor grid."""
    operation: str
    place: int
    """Index of the message among the channel's messages in the step, starting at 0."""
    dtype: str
    """Name of the dtype, such as ``bfloat16``."""
    size: int
    """Number of values in the complete message. The file may contain only the first values."""
    parts: tuple[MessagePart, ...]
    values: bytes


@dataclass(frozen=True, slots=True)
class SampledStep:
    """Messages of one rank in one step."""

    rank: int
    step: int
    messages: tuple[SampledMessage, ...]
    left_out: int = 0
    """Number of selected messages that were omitted because of the size limit."""


def name_file(step: int | str, rank: int | str) -> str:
    """Return the file name for a rank and step. ``*`` matches any rank or step."""
    return f"step-{step}-rank-{rank}.zip"


def write_samples(directory: Path, sample: SampledStep) -> None:
    """Write a rank's file atomically. An existing file is replaced. The directory must exist."""
    about = {
        "schema": 1,
        "rank": sample.rank,
        "step": sample.step,
        "left_out": sample.left_out,
        "messages": [
            {
                "channel": message.channel,
                "operation": message.operation,
                "place": message.place,
                "dtype": message.dtype,
                "size": message.size,
                "parts": [[part.name, list(part.shape), part.begin] for part in message.parts],
            }
            for message in sample.messages
        ],
    }
    path = directory / name_file(sample.step, sample.rank)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_ABOUT, json.dumps(about))
            for k, message in enumerate(sample.messages):
                archive.writestr(str(k), message.values)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_samples(path: Path) -> SampledStep:
    """Read a rank's file.

    Raises
    ------
    UserError
        The file cannot be read, is damaged, or is not a file of message samples.
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
        raise UserError(f"{where}: not a complete file of message samples (truncated or changed): {_REMEDY}") from None
