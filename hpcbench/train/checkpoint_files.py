"""Checkpoint files on disk. Partially written checkpoints are never used."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash

COMPLETE = "complete.json"
"""File that is written last. The content is the index, and the sizes and digests of all other files."""
SCHEMA = 3
_KEPT = 2
_NAME = re.compile(r"step-([0-9]{6,})")
_CHUNK = 1 << 22


def rank_file(rank: int) -> str:
    """Return the file name of a rank."""
    return f"rank-{rank:05}.pt"


def numbered(directory: Path) -> dict[int, Path]:
    """Return all checkpoint directories, keyed by step. Checkpoints in progress have different names."""
    names = ((_NAME.fullmatch(path.name), path) for path in _children(directory))
    return {int(matched[1]): path for matched, path in names if matched}


def _children(directory: Path) -> Iterable[Path]:
    return directory.iterdir() if directory.is_dir() else ()


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write ``complete.json``, including a digest of its own content."""
    content = {**manifest, "xxh3": _content_digest(manifest)}
    write_durably(path / COMPLETE, json.dumps(content, separators=(",", ":")).encode())


def read_manifest(path: Path) -> dict[str, Any] | str:
    """Return the content of ``complete.json``, or an error message.

    If the file has a different schema version, only the version is returned.
    """
    try:
        data: dict[str, Any] = json.loads((path / COMPLETE).read_bytes())
        if int(data["schema"]) != SCHEMA:
            return {"schema": int(data["schema"])}
        if data.pop("xxh3") != _content_digest(data) or f"step-{data['step']:06}" != path.name:
            return f"{COMPLETE} is damaged"
        return data
    except OSError as error:
        return f"{COMPLETE}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{COMPLETE} is damaged"


def _content_digest(manifest: dict[str, Any]) -> str:
    return xxhash.xxh3_128(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def damage(path: Path, entry: dict[str, Any]) -> str | None:
    """Return a description of what is wrong with a rank's file, or None if the file is valid."""
    digest, size = xxhash.xxh3_128(), 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    if size != entry["bytes"]:
        return f"{path.name} has {size} bytes, but {entry['bytes']} bytes were written"
    return None if digest.hexdigest() == entry["xxh3"] else f"{path.name} does not contain the bytes that were written"


class _Digested:
    """Output stream that computes size and digest during writing, so that the file need not be read again."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = xxhash.xxh3_128()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._stream.write(data)

    def flush(self) -> None:
        self._stream.flush()


def write_rank(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Write a rank's file and sync it to disk. Return the file's size and digest in the form that `damage` expects."""
    with path.open("wb") as stream:
        digested = _Digested(stream)
        try:
            torch.save(state, digested)  # type: ignore[arg-type]
        except RuntimeError as error:  # raised by PyTorch's writer if the stream cannot be written
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        stream.flush()
        os.fsync(stream.fileno())
    return {"bytes": digested.size, "xxh3": digested.digest.hexdigest()}


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and sync it to disk."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def fresh(partial: Path) -> None:
    """Create an empty directory for writing, and remove any previous directory of that name."""
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def publish(partial: Path, final: Path) -> None:
    """Rename the directory to its final name."""
    _sync(partial)
    shutil.rmtree(
        final, ignore_errors=True
    )  # an existing directory must be damaged, otherwise the run would have resumed from it
    partial.rename(final)
    _sync(final.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prune(directory: Path, step: int, damaged: Set[Path]) -> None:
    """Remove all checkpoints except the checkpoint of this step and the previous checkpoint.

    Also remove incomplete checkpoints.
    """
    usable = {number: path for number, path in numbered(directory).items() if number <= step and path not in damaged}
    remaining = {usable[number] for number in sorted(usable)[-_KEPT:]}
    for path in list(_children(directory)):
        if path not in remaining and path.name.startswith("step-"):
            shutil.rmtree(path, ignore_errors=True)
