"""Fixtures for end-to-end tests with the fake LSF, from submission to report."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fake_sites import Place, on_path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    """Factory of sites with their fakes, in the test's working directory."""
    monkeypatch.chdir(tmp_path)
    lock = tmp_path / "tmp"
    lock.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(lock))
    monkeypatch.setenv("TMPDIR", str(lock))
    with ExitStack() as stack:

        def make(name: str = "lassen", **options: Any) -> Place:
            place = Place(tmp_path, name, **options)
            stack.enter_context(on_path(place.fake, monkeypatch))
            return place

        yield make


@pytest.fixture
def mpich() -> dict[str, object]:
    """Settings of a site that uses this machine's MPI library, and fewer cores than the site file declares."""
    program = str(Path(sys.executable).with_name("mpiexec"))
    return {"launcher": {"kind": "mpich", "program": program}, "oversubscribe": True}
