"""Floating-point values from a user's file: ``FILE``, or ``FILE:KEY`` if a file contains several arrays.

Files are memory-mapped, so only the measured part of a large checkpoint is loaded.
"""

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from hpcbench.codecs.types import BFLOAT16, Array
from hpcbench.errors import UserError

KNOWN = ".npy, .npz:KEY, .bin, .safetensors:KEY, .pt:KEY"
_SAFETENSORS = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": BFLOAT16}
_LONGEST_HEADER = 100_000_000
"""Maximum header size in bytes, a limit of the safetensors format."""


def open_values(source: str, dtype: np.dtype[Any]) -> Array | None:
    """Open the values of a file as one vector with the file's dtype. Return None if the file type is unknown.

    Parameters
    ----------
    source
        ``FILE`` or ``FILE:KEY``.
    dtype
        Type of the values in a ``.bin`` file.

    Raises
    ------
    UserError
        The file is missing or damaged, or does not contain the array. The message names the file.
    """
    path, key = _split(source)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        if path.exists():
            raise UserError(f"--data {path}: unknown kind of file. Use one of {KNOWN}")
        return None
    if not path.is_file():
        raise UserError(f"--data {path}: {'is a directory. Name a file' if path.is_dir() else 'no such file'}")
    try:
        values = reader(path, key, dtype)
    except OSError as error:
        raise UserError(f"--data {path}: cannot be read: {error.strerror or error}") from None
    if values.dtype == np.dtype("V2"):  # NumPy stores bfloat16 as V2.
        values = values.view(BFLOAT16)
    if values.dtype != BFLOAT16 and values.dtype.kind != "f":
        raise UserError(f"--data {source}: contains {values.dtype}, not floating-point values. Name another array")
    return values.reshape(-1)


def _split(source: str) -> tuple[Path, str]:
    """Split a source into file and key, whose names may contain colons."""
    parts = source.split(":")
    for k in range(len(parts), 0, -1):
        path = Path(":".join(parts[:k]))
        if path.is_file():
            return path, ":".join(parts[k:])
    name, _, key = source.rpartition(":")
    return (Path(name), key) if Path(name).suffix else (Path(source), "")


def _choose(path: Path, key: str, arrays: Mapping[str, Any]) -> str:
    """Return the name of the array with this key, or of the file's only array."""
    if key in arrays:
        return key
    names = ", ".join(list(arrays)[:8]) + (", ..." if len(arrays) > 8 else "")
    if not arrays:
        raise UserError(f"--data {path}: contains no array")
    if key:
        raise UserError(f"--data {path}:{key}: the file has no array {key!r}. Use one of {names}")
    if len(arrays) > 1:
        raise UserError(
            f"--data {path}: contains {len(arrays)} arrays. Choose one with {path}:KEY, where KEY is one of {names}"
        )
    return next(iter(arrays))


def _refuse_key(path: Path, key: str) -> None:
    if key:
        raise UserError(f"--data {path}:{key}: a {path.suffix} file contains one array. Leave out :{key}")


def _read_npy(path: Path, key: str, _: np.dtype[Any]) -> Array:
    _refuse_key(path, key)
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(values, np.ndarray):
            raise ValueError("it contains several arrays. Rename the file to .npz")
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"--data {path}: not a NumPy array: {error}") from None
    return values


def _read_npz(path: Path, key: str, _: np.dtype[Any]) -> Array:
    try:
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, NpzFile):
            raise ValueError("it contains a single array. Rename the file to .npy")
        with arrays:
            values: Array = arrays[_choose(path, key, arrays)]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"--data {path}: not a NumPy archive: {error}") from None
    return values


def _read_bin(path: Path, key: str, dtype: np.dtype[Any]) -> Array:
    _refuse_key(path, key)
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise UserError(
            f"--data {path}: {size} bytes are not a multiple of the size of {dtype}. Set --type, or fix the file"
        )
    return np.memmap(path, dtype=dtype, mode="r") if size else np.empty(0, dtype)


def _read_safetensors(path: Path, key: str, _: np.dtype[Any]) -> Array:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
            raise UserError(f"--data {path}: not a safetensors file: the length of its header is wrong")
        try:
            header = json.loads(file.read(length))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            kinds = {name: str(entry["dtype"]) for name, entry in tensors.items()}
            places = {name: tuple(map(int, entry["data_offsets"])) for name, entry in tensors.items()}
            counts = {name: math.prod(map(int, entry["shape"])) for name, entry in tensors.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UserError(f"--data {path}: not a safetensors file: its header cannot be read") from None
    name = _choose(path, key, tensors)
    dtype = _SAFETENSORS.get(kinds[name])
    if dtype is None:
        raise UserError(f"--data {path}:{name}: contains {kinds[name]}, not floating-point values of 16 bits or more")
    begin = places[name][0] if places[name] else -1
    end = begin + counts[name] * dtype.itemsize
    if begin < 0 or places[name] != (begin, end) or 8 + length + end > size:
        raise UserError(
            f"--data {path}:{name}: lies outside of the file. The file is truncated, or its header is wrong"
        )
    if not counts[name]:
        return np.empty(0, dtype)
    values: Array = np.memmap(path, dtype=dtype, mode="r", offset=8 + length + begin, shape=(counts[name],))
    return values


def _read_torch(path: Path, key: str, _: np.dtype[Any]) -> Array:
    try:
        import torch
    except ImportError:
        raise UserError(f"--data {path}: needs PyTorch. Install it with `pip install torch`") from None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises KeyError, UnpicklingError, RuntimeError, ...
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"--data {path}: not a PyTorch file of tensors: {reason}") from None
    tensors = dict(_list_tensors(content, ""))
    tensor = tensors[_choose(path, key, tensors)].detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(BFLOAT16)
    return np.asarray(tensor.numpy())


def _list_tensors(content: Any, prefix: str) -> list[tuple[str, Any]]:
    """List the tensors of nested dictionaries, with their keys joined by dots."""
    if isinstance(content, Mapping):
        return [
            pair
            for key, value in content.items()
            for pair in _list_tensors(value, f"{prefix}.{key}" if prefix else str(key))
        ]
    return [(prefix, content)] if hasattr(content, "detach") else []


_READERS: dict[str, Callable[[Path, str, np.dtype[Any]], Array]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".bin": _read_bin,
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
    ".pth": _read_torch,
}
