"""``hpcbench report --bundle``: packs submissions with their report, for whoever wants to make it themselves."""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import printable
from hpcbench.errors import UserError
from hpcbench.files import read_json
from hpcbench.present.markdown import escape
from hpcbench.report.build import table_names
from hpcbench.report.bundle import MANIFEST, check_name, load_quietly, write
from hpcbench.report.bundle.names import Names, names_of, without_host_lists
from hpcbench.report.formats import Request
from hpcbench.report.sections import sections_of

OPTION = "--bundle"
FORMS = ("md", "json", "html")
"""Formats of the report that goes with the submissions."""
_OUT = ("checkpoint", "__pycache__")
"""Directories whose content is no result."""
_LARGEST = 1 << 30
"""Bytes of a file that is packed."""


@dataclass
class _Packed:
    """What one submission becomes."""

    name: str
    """Name of its directory in the bundle."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Size and digest of each file, by its path."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Why, by path."""
    remains: list[str] = field(default_factory=list)
    """Places where a name is still part of a longer word."""


def pack(
    submissions: Sequence[Submission], path: Path, *, anonymous: bool = False, replaced: Mapping[str, str] | None = None
) -> None:
    """Write a bundle, and say on standard error what it holds.

    Parameters
    ----------
    submissions
        What to pack; each has a directory.
    path
        The file.
    anonymous
        Whether to replace the names of hosts and users.
    replaced
        Further words, each with what stands in its place.

    Raises
    ------
    UserError
        It cannot be written, or there is no submission.
    """
    check_name(path, OPTION)
    own = [one for one in submissions if one.root is not None]
    if not own or len(own) < len(submissions):
        raise UserError(f"{OPTION}: packs submissions: give directories that `hpcbench submit` made, no single logs")
    names = names_of(own, replaced or {}, hosts_and_users=anonymous)
    with tempfile.TemporaryDirectory(prefix="hpcbench-bundle-") as place:
        packed = [_copy(one, Path(place), names, anonymous=anonymous) for one in own]
        for one in packed:
            _report(Path(place) / one.name, names)
            _manifest(Path(place), one, names, anonymous=anonymous)
        inside = sorted(file for file in Path(place).rglob("*") if file.is_file())
        files = ((file.relative_to(place).as_posix(), file, int(file.stat().st_mtime)) for file in inside)
        write(path, files, OPTION)
    _say(path, packed, names)


def _copy(submission: Submission, place: Path, names: Names, *, anonymous: bool) -> _Packed:
    root = submission.root
    assert root is not None
    base = f"{submission.plan.study}-{root.resolve().name}"
    name = next(n for k in range(1, 10**6) if not (place / (n := base if k == 1 else f"{base}-{k}")).exists())
    found = _Packed(names.replace(name))
    target = place / found.name
    target.mkdir()
    for file in _files(root, found):
        inside = names.replace(file.relative_to(root).as_posix())
        content = _content(file, root, names, anonymous=anonymous)
        if content is None:
            found.left_out[inside] = "is no text, in which names could be replaced"
            continue
        copy = target / inside
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        time = file.stat().st_mtime
        os.utime(copy, (time, time))
    return found


def _files(root: Path, found: _Packed) -> Iterator[Path]:
    """Files that are packed; why others are not goes to `found`."""
    for directory, below, names in os.walk(root):
        here = Path(directory)
        for name in [one for one in below if one in _OUT or (here / one).is_symlink()]:
            below.remove(name)
            found.left_out[(here / name).relative_to(root).as_posix()] = "checkpoints and caches are no results"
        for name in sorted(names):
            path, inside = here / name, (here / name).relative_to(root).as_posix()
            if path.is_symlink() or not path.is_file():
                found.left_out[inside] = "is no plain file"
            elif path.stat().st_size > _LARGEST:
                found.left_out[inside] = f"is larger than {_LARGEST >> 30} GiB"
            elif os.access(path, os.R_OK):
                yield path
            else:
                found.left_out[inside] = "cannot be read"


def _content(file: Path, root: Path, names: Names, *, anonymous: bool) -> bytes | None:
    """A file as it is packed; None where names cannot be replaced in it."""
    raw = file.read_bytes()
    inside = file.relative_to(root).as_posix()
    if inside == "provenance/submit.json":
        about = read_json(file) or {}
        about.pop("environment", None)  # no filter knows all secrets
        raw = _json(about)
    elif inside == "scheduler.json" and anonymous:
        raw = _json(without_host_lists(read_json(file) or {}))
    if not names.words:
        return raw
    try:
        return names.replace(raw.decode("utf-8")).encode()
    except UnicodeDecodeError:
        return None


def _report(root: Path, names: Names) -> None:
    """The report of what is packed, as it will be read: in Markdown, JSON and, where it can be drawn, as a page."""
    directory = root / "report"
    directory.mkdir(exist_ok=True)
    sections = sections_of([load_quietly(root)])
    for form in FORMS:
        suffix = form
        request = Request(sections, table_names("all"), directory / f"report.{suffix}")
        try:
            words = request.write(form)
        except UserError as error:  # no matplotlib
            words = f"There is no page: {error}\n"
            suffix = "html.txt"
        (directory / f"report.{suffix}").write_text(without_place(words, root), encoding="utf-8")


def without_place(words: str, root: Path) -> str:
    """A report that does not say where it was written, in Markdown with backslashes or without."""
    for path in (str(root), escape(str(root))):
        words = words.replace(f"{path}/", "").replace(path, root.name)
    return words


def _manifest(place: Path, packed: _Packed, names: Names, *, anonymous: bool) -> None:
    root = place / packed.name
    for file in sorted(one for one in root.rglob("*") if one.is_file()):
        content = file.read_bytes()
        inside = file.relative_to(root).as_posix()
        packed.files[inside] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        if names.words:
            lines = dict.fromkeys(line for _, line in names.left(content.decode("utf-8", "replace")))
            packed.remains += [f"{packed.name}/{inside}:{line}" for line in lines]
    about = {
        "schema": 1,
        "version": hpcbench.__version__,
        "anonymous": anonymous,
        "left_out": packed.left_out,
        "files": packed.files,
    }
    (root / MANIFEST).write_bytes(_json(about))


def _say(path: Path, packed: Sequence[_Packed], names: Names) -> None:
    files = sum(len(one.files) for one in packed)
    size = path.stat().st_size
    print(
        f"hpcbench: {path}: {files} files of {len(packed)} submission{'s' * (len(packed) > 1)}, {size} B",
        file=sys.stderr,
    )
    for one in packed:
        for inside, why in one.left_out.items():
            print(f"hpcbench: left out: {one.name}/{printable(inside)}: {why}", file=sys.stderr)
    if names.words:
        print(f"hpcbench: {len(names.words)} names are replaced", file=sys.stderr)
    if names.shared:
        shared = ", ".join(sorted(names.shared))
        print(
            f"hpcbench: {shared}: also words of the files: replaced in paths below /home and addresses only",
            file=sys.stderr,
        )
    remains = [place for one in packed for place in one.remains]
    if remains:
        more = f", and {len(remains) - 3} more" if len(remains) > 3 else ""
        some = ", ".join(map(printable, remains[:3]))
        print(f"hpcbench: names are still part of longer words: {some}{more}: look, or say --replace", file=sys.stderr)


def _json(data: Any) -> bytes:
    return f"{json.dumps(data, indent=1)}\n".encode()
