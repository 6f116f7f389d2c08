"""Fixtures for end-to-end tests with the fake LSF, from submission to report."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_sites import Place, open_places


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    """Factory of sites with their fakes, in the test's working directory."""
    with open_places(tmp_path, monkeypatch, "lassen") as make:
        yield make


@pytest.fixture
def mpich() -> dict[str, object]:
    """Settings of a site that uses this machine's MPI library, and fewer cores than the site file declares."""
    program = str(Path(sys.executable).with_name("mpiexec"))
    return {"launcher": {"kind": "mpich", "program": program}, "oversubscribe": True}
