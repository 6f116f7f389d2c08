"""Fixtures for the Slurm and LSF tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Programs, end_jobs, small_lsf


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """An empty program directory that is first on PATH. Pauses between attempts take no time."""
    programs = Programs(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{programs.directory}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("hpcbench.batch.schedulers.submit_command.WAITS", (0.0, 0.0, 0.0))
    return programs


@pytest.fixture
def lsf(programs: Programs) -> Iterator[Programs]:
    """A small fake LSF that runs jobs."""
    small_lsf(programs)
    yield programs
    end_jobs(programs)


HOSTILE = ["a b", "'; touch pwned; '", '"a"', "$(touch pwned)", "`touch pwned`"]
HOSTILE += ["a\n#BSUB -q x\n\\", "-n 4", "ƒ", "%jx"]


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory whose name contains shell code."""
    path = tmp_path / "base" / str(request.param)
    path.mkdir(parents=True)
    return path
