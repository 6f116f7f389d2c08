"""Bundles: archives of submissions, from which others can reproduce the report.

A bundle is a tar file with one directory per submission. A manifest in this directory lists all files with their
digests. Bundles are untrusted: only regular files below the archive's directory are unpacked, all files must match the
manifest, and schedulers are not queried about the jobs. The unpacked files are deleted on exit.
"""

import atexit
import hashlib
import lzma
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from hpcbench.batch.tracking.track import track
from hpcbench.collect.submission import Submission, load
from hpcbench.contract.submission import FILE
from hpcbench.contract.text import make_printable
from hpcbench.contract.values import get_member, get_text
from hpcbench.errors import UserError
from hpcbench.files import read_json

MANIFEST = "BUNDLE.json"
"""Manifest file that lists the files of a bundled submission."""
SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".tar")


def is_archive(path: Path) -> bool:
    """Return whether a path is a file with the suffix of a bundle."""
    return path.name.endswith(SUFFIXES) and path.is_file()


def load_bundle(path: Path) -> list[Submission]:
    """Load the submissions of a bundle."""
    place = Path(tempfile.mkdtemp(prefix="hpcbench-bundle-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    unpack(path, place)
    roots = sorted(file.parent for file in place.glob(f"*/{FILE}"))
    where = make_printable(str(path))
    if not roots:
        raise UserError(f"{where}: contains no submission: give a file that `hpcbench report --bundle` wrote")
    return [_load(root, where) for root in roots]


def unpack(path: Path, target: Path) -> None:
    """Unpack an archive into a directory."""
    where = make_printable(str(path))
    try:
        with tarfile.open(path) as tar:
            for entry in tar:
                _unpack_entry(tar, entry, target, where)
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{where}: the archive is damaged ({make_printable(str(error), 80)}): copy it again") from None
    except OSError as error:
        raise UserError(f"{where}: cannot be unpacked: {error.strerror or make_printable(str(error), 80)}") from None


def _unpack_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo, target: Path, where: str) -> None:
    name = PurePosixPath(entry.name)
    if entry.isdir():
        return
    content = tar.extractfile(entry) if entry.isfile() else None
    if content is None or name.is_absolute() or ".." in name.parts or not name.parts:
        raise UserError(
            f"{where}: {make_printable(entry.name, 80)}: is not a regular file: nothing was read from the archive"
        )
    file = target / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb") as stream:
        shutil.copyfileobj(content, stream)


def _load(root: Path, where: str) -> Submission:
    """Load a submission after checking its files against the manifest. Schedulers are not queried."""
    listed = get_member(read_json(root / MANIFEST), "files")
    if not isinstance(listed, dict):
        raise UserError(
            f"{where}: {root.name}: {MANIFEST} is missing: give a file that `hpcbench report --bundle` wrote"
        )
    files = {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}
    del files[MANIFEST]
    for name in sorted(files.keys() | listed.keys()):
        if name not in files or name not in listed:
            change = "was added" if name in files else "is missing"
            raise UserError(f"{where}: {root.name}/{make_printable(name)}: {change} after packing: get a new copy")
        if hashlib.sha256(files[name].read_bytes()).hexdigest() != get_text(listed, name, "sha256"):
            raise UserError(f"{where}: {root.name}/{make_printable(name)}: was changed after packing: get a new copy")
    tracked = track(root, ask=False)
    return load(root, {job: status.job(job) for job, status in tracked.jobs.items()})
