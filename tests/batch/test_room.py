"""Tests of disk space for results: free space, quota, and number of files."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcbench.batch.room import check_room
from hpcbench.errors import UserError

GIB = 1 << 30


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Function that sets the free space, the number of free files, and the errors of a simulated file system."""

    def plant(free: int = 1000 * GIB, files: int = 10**6, refuses: int = 0) -> None:
        def allocate(_file: int, _begin: int, _length: int) -> None:
            if refuses:
                raise OSError(refuses, os.strerror(refuses))

        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
        monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_files=10**6, f_favail=files))
        monkeypatch.setattr("os.posix_fallocate", allocate)

    return plant


def room(root: Path) -> str:
    notes = check_room(root, runs=100, steps=1000)
    assert list(root.iterdir()) == [], "the test file is removed"
    return notes


def test_ample_space_gives_no_notes(tmp_path: Path, disk: Callable[..., None]) -> None:
    disk()
    assert room(tmp_path) == ""
    disk(free=2 * GIB)
    assert room(tmp_path) == ("2.0 GiB are free for results; logs need about 138.1 MiB, plus checkpoints and traces")


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ({"free": 50 << 20}, "only 50.0 MiB are free, but the logs need 138.1 MiB"),
        ({"files": 10}, "only 10 more files can be created, but the runs need 2000"),
        ({"refuses": errno.EDQUOT}, r"your quota leaves no space for the logs \(138.1 MiB\)"),
        ({"refuses": errno.ENOSPC}, "the file system leaves no space for the logs"),
    ],
)
def test_too_little_space_is_one_line_with_the_remedy(
    tmp_path: Path, disk: Callable[..., None], planted: dict[str, int], message: str
) -> None:
    disk(**planted)
    with pytest.raises(UserError, match=rf"{message}.*: free some space, or choose another directory with --out$"):
        room(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_cannot_reserve_space_is_accepted(tmp_path: Path, disk: Callable[..., None]) -> None:
    disk(refuses=errno.EOPNOTSUPP)
    assert room(tmp_path) == ""
