"""Implementation of ``hpcbench report --bundle``, which packs submissions for others."""

import hashlib
import json
import os
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import hpcbench
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.files import read_json
from hpcbench.report.bundle import MANIFEST, SUFFIXES
from hpcbench.report.bundle.names import Names, find_names, remove_host_lists

_OUT = ("checkpoint", "__pycache__")
"""Directories that contain no results."""
_LARGEST = 1 << 30
"""Maximum size in bytes of a packed file."""


def check_options(path: Path | None, anonymous: bool, replace: Sequence[str]) -> dict[str, str]:
    """Return the replacements of ``--replace``. ``OLD`` without ``=NEW`` becomes ``name-1``, ``name-2``, ..."""
    if path is None and (anonymous or replace):
        raise UserError(f"--{'anonymous' if anonymous else 'replace'}: applies only to bundles: add --bundle FILE")
    if path is not None and not path.name.endswith(SUFFIXES):
        raise UserError(
            f"--bundle {make_printable(str(path))}: not the name of a bundle: use a name that ends with "
            f"{' or '.join(SUFFIXES)}"
        )
    replacements = {}
    for k, option in enumerate(replace, 1):
        old, sign, new = option.partition("=")
        if not old or (sign and not new):
            raise UserError(
                f"--replace {make_printable(option, 40)}: give OLD=NEW, or only OLD for an automatic new name"
            )
        replacements[old] = new or f"name-{k}"
    return replacements


def pack(submissions: Sequence[Submission], path: Path, *, anonymous: bool, replaced: Mapping[str, str]) -> None:
    """Write a bundle atomically, and list omitted files on standard error.

    The suffix of `path` selects the compression. `anonymous` replaces host and user names; `replaced` maps additional
    words to their replacements.
    """
    roots = [(submission.plan.study, submission.root) for submission in submissions if submission.root is not None]
    if not roots or len(roots) < len(submissions):
        raise UserError("--bundle: single logs cannot be packed: give directories that `hpcbench submit` created")
    names = find_names(submissions, replaced, hosts_and_users=anonymous)
    growing = path.with_name(f".{path.name}.part")
    mode: Literal["w:xz", "w:gz", "w"] = "w:xz" if path.suffix == ".xz" else "w" if path.suffix == ".tar" else "w:gz"
    counts: Counter[str] = Counter()
    parts: list[str] = []
    try:
        with tarfile.open(growing, mode) as tar:
            for study, root in roots:
                name = names.replace(f"{study}-{root.resolve().name}")
                counts[name] += 1
                unique = name if counts[name] == 1 else f"{name}-{counts[name]}"
                parts += _add_submission(tar, root, unique, names, anonymous=anonymous)
        growing.replace(path)
    except OSError as error:
        raise UserError(f"--bundle {make_printable(str(path))}: cannot be written: {error.strerror}") from None
    finally:
        growing.unlink(missing_ok=True)
    if names.replacements:
        _print_line(f"names replaced: {len(names.replacements)}")
    if names.shared:
        shared = ", ".join(sorted(names.shared))
        _print_line(
            f"{shared}: also occur as ordinary words, so they are replaced only in paths below /home and in addresses"
        )
    if parts:
        more = f", and {len(parts) - 3} more" if len(parts) > 3 else ""
        _print_line(
            f"names remain as parts of longer words: {', '.join(parts[:3])}{more}: check these lines, and remove "
            "the words with --replace"
        )


def _add_submission(tar: tarfile.TarFile, root: Path, name: str, names: Names, *, anonymous: bool) -> list[str]:
    """Pack the files of a submission. Return the locations where a name remains as part of a longer word."""
    files: dict[str, dict[str, Any]] = {}
    parts: list[str] = []
    for file in _list_files(root):
        inside = names.replace(file.relative_to(root).as_posix())
        reason = _find_reason_to_leave_out(file)
        content = None if reason else _read_content(file, root, names, anonymous=anonymous)
        if content is None:
            _print_line(f"left out: {name}/{make_printable(inside)}: {reason or 'not text: names cannot be replaced'}")
            continue
        parts += [f"{name}/{make_printable(inside)}:{line}" for line in names.lines_with_parts(content)]
        files[inside] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        _add(tar, f"{name}/{inside}", content, file.stat().st_mtime)
    about = {"schema": 1, "version": hpcbench.__version__, "anonymous": anonymous, "files": files}
    _add(tar, f"{name}/{MANIFEST}", _encode_json(about), 0)
    return parts


def _add(tar: tarfile.TarFile, name: str, content: bytes, time: float) -> None:
    entry = tarfile.TarInfo(name)  # omits the file's owner
    entry.size, entry.mtime = len(content), int(time)
    tar.addfile(entry, BytesIO(content))


def _list_files(root: Path) -> Iterator[Path]:
    """Yield all files to consider, and the directories that are omitted with all their files."""
    for directory, below, names in os.walk(root):
        here = Path(directory)
        left_out = [name for name in below if name in _OUT or (here / name).is_symlink()]
        below[:] = sorted(set(below) - set(left_out))
        yield from (here / name for name in sorted([*left_out, *names]))


def _find_reason_to_leave_out(path: Path) -> str:
    if path.is_dir() and not path.is_symlink():
        return "checkpoints and caches are not results"
    if path.is_symlink() or not path.is_file():
        return "not a regular file"
    if path.stat().st_size > _LARGEST:
        return f"is larger than {_LARGEST >> 30} GiB"
    return "" if os.access(path, os.R_OK) else "cannot be read"


def _read_content(file: Path, root: Path, names: Names, *, anonymous: bool) -> bytes | None:
    """Return the content to pack, or None if names cannot be replaced in the file."""
    content = file.read_bytes()
    inside = file.relative_to(root).as_posix()
    if inside == "provenance/submit.json":
        about = read_json(file) or {}
        about.pop("environment", None)  # no filter can remove all secrets
        content = _encode_json(about)
    elif inside == "scheduler.json" and anonymous:
        content = _encode_json(remove_host_lists(read_json(file) or {}))
    try:
        return names.replace(content.decode("utf-8")).encode() if names.replacements else content
    except UnicodeDecodeError:
        return None


def _print_line(line: str) -> None:
    print(f"hpcbench: {line}", file=sys.stderr)


def _encode_json(data: Any) -> bytes:
    return f"{json.dumps(data, indent=1)}\n".encode()
