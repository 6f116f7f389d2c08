"""Bundles: submissions as one file that somebody else can make the report of.

They are tar files, compressed by Zstandard, gzip or xz, written and read as streams. Who made a file, and as which user
of which machine, does not stand in them. What is read is taken for a stranger's: only plain files below the archive's
own directory are unpacked. They are there for as long as the program runs, are checked against their digests, and no
scheduler is asked about their jobs.
"""

import atexit
import contextlib
import hashlib
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from hpcbench.batch.tracking.track import track
from hpcbench.collect.submission import Submission, load
from hpcbench.contract.submission import FILE
from hpcbench.contract.text import printable
from hpcbench.contract.values import member, text
from hpcbench.errors import UserError
from hpcbench.files import read_json

MANIFEST = "BUNDLE.json"
"""Lists the files of each submission in a bundle."""
SUFFIXES = (".tar.zst", ".tar.gz", ".tgz", ".tar.xz")
_LARGEST = 64 << 30
"""Bytes that a bundle may unpack to."""
_MOST = 1_000_000
"""Files that it may hold."""
_CHUNK = 1 << 20
_LEVEL = 10


def is_archive(path: Path) -> bool:
    """Whether a path is called as a bundle is, and is a file."""
    return path.name.endswith(SUFFIXES) and path.is_file()


def check_name(path: Path, option: str) -> None:
    """Whether an archive of this name can be written here.

    Raises
    ------
    UserError
        Its suffix is not known, or its compression not installed.
    """
    if not path.name.endswith(SUFFIXES):
        raise UserError(f"{option} {printable(str(path))}: says no compression: end it with {', '.join(SUFFIXES)}")
    if path.name.endswith(".tar.zst"):
        _zstandard(f"{option} {printable(str(path))}", "or name it FILE.tar.gz, which needs nothing")


def write(path: Path, files: Iterable[tuple[str, Path | bytes, int]], option: str) -> None:
    """Write an archive; it is there whole or not at all.

    Parameters
    ----------
    path
        Its suffix says how it is compressed.
    files
        Name, content and time of each.
    option
        What messages begin with.

    Raises
    ------
    UserError
        It cannot be written, or a file cannot be read.
    """
    check_name(path, option)
    growing = path.with_name(f".{path.name}.part")
    try:
        with _writer(growing, path.name) as tar:
            for name, content, time in files:
                _add(tar, name, content, time)
        growing.replace(path)
    except OSError as error:
        raise UserError(f"{option} {printable(str(path))}: cannot be written: {error.strerror}") from None
    finally:
        growing.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, name: str, content: Path | bytes, time: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime = time
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, BytesIO(content))
        return
    with content.open("rb") as stream:
        entry.size = content.stat().st_size
        tar.addfile(entry, stream)


def submissions(path: Path) -> list[Submission]:
    """The submissions of a bundle.

    Raises
    ------
    UserError
        It is none, or its files are not those that were packed.
    """
    place = Path(tempfile.mkdtemp(prefix="hpcbench-bundle-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    unpack(path, place)
    roots = sorted(one.parent for one in place.glob(f"*/{FILE}"))
    where = printable(str(path))
    if not roots:
        raise UserError(f"{where}: holds no submission: give what `hpcbench report --bundle` wrote")
    for root in roots:
        _check(root, where)
    return [load_quietly(root) for root in roots]


def load_quietly(root: Path) -> Submission:
    """A submission as its files tell of it: its jobs' ids mean nothing to a scheduler elsewhere."""
    tracked = track(root, ask=False)
    return load(root, {job: status.job(job) for job, status in tracked.jobs.items()})


def _check(root: Path, where: str) -> None:
    listed = member(read_json(root / MANIFEST), "files")
    if not isinstance(listed, dict):
        raise UserError(f"{where}: {root.name}: has no {MANIFEST}: give what `hpcbench report --bundle` wrote")
    there = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()} - {MANIFEST}
    for name in sorted(there ^ set(listed)):
        what = "is missing" if name in listed else "was added"
        raise UserError(f"{where}: {root.name}/{printable(name)}: {what}: not what was packed")
    for name in sorted(there):
        if hashlib.sha256((root / name).read_bytes()).hexdigest() != text(listed, name, "sha256"):
            raise UserError(f"{where}: {root.name}/{printable(name)}: was changed since it was packed")


def unpack(path: Path, target: Path) -> None:
    """Unpack an archive into a directory.

    Raises
    ------
    UserError
        It is none, is damaged, or holds what no bundle does.
    """
    where = printable(str(path))
    try:
        with _reader(path, where) as tar:
            for count, entry in enumerate(tar, 1):
                if count > _MOST:
                    raise UserError(f"{where}: holds more than {_MOST} files: no bundle does")
                _unpack_one(tar, entry, target, where)
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{where}: not a whole archive: {printable(str(error), 80)}: fetch it again") from None
    except OSError as error:
        raise UserError(f"{where}: cannot be unpacked: {error.strerror or printable(str(error), 80)}") from None


def _unpack_one(tar: tarfile.TarFile, entry: tarfile.TarInfo, target: Path, where: str) -> None:
    name = PurePosixPath(entry.name)
    if entry.isdir():
        return
    if not entry.isfile() or name.is_absolute() or ".." in name.parts or not name.parts:
        raise UserError(f"{where}: {printable(entry.name, 80)}: is no plain file of a bundle: nothing is read of it")
    if tar.offset > _LARGEST or entry.size > _LARGEST:
        raise UserError(f"{where}: unpacks to more than {_LARGEST >> 30} GiB: no bundle does")
    content = tar.extractfile(entry)
    if content is None:
        return
    place = target.joinpath(*name.parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("xb") as stream:
        while chunk := content.read(_CHUNK):
            stream.write(chunk)


@contextlib.contextmanager
def _writer(path: Path, name: str) -> Iterator[tarfile.TarFile]:
    if name.endswith(".tar.zst"):
        compressor = _zstandard(name, "").ZstdCompressor(level=_LEVEL)
        with (
            path.open("wb") as raw,
            compressor.stream_writer(raw) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            yield tar
        return
    mode: Literal["w:xz", "w:gz"] = "w:xz" if name.endswith(".xz") else "w:gz"
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        yield tar


@contextlib.contextmanager
def _reader(path: Path, where: str) -> Iterator[tarfile.TarFile]:
    if path.name.endswith(".tar.zst"):
        remedy = "or ask for it as FILE.tar.gz, which needs nothing"
        zstandard = _zstandard(where, remedy)
        try:
            with (
                path.open("rb") as raw,
                zstandard.ZstdDecompressor().stream_reader(raw) as stream,
                tarfile.open(fileobj=stream, mode="r|") as tar,
            ):
                yield tar
        except zstandard.ZstdError as error:
            raise tarfile.ReadError(str(error)) from None
        return
    mode: Literal["r:xz", "r:gz"] = "r:xz" if path.name.endswith(".xz") else "r:gz"
    with tarfile.open(path, mode) as tar:
        yield tar


def _zstandard(what: str, remedy: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise UserError(f"{what}: needs zstandard: pip install zstandard, {remedy}") from None
    return zstandard
