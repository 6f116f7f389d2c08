"""Fixtures for the doctor tests."""

from pathlib import Path

import pytest
from machine import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without a scheduler, MPI or a GPU, to which a test adds programs. The user is called root."""
    for name in ("LOADEDMODULES", "MPICH_GPU_SUPPORT_ENABLED", "LMOD_SYSTEM_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setenv("HOME", str(tmp_path))  # a login shell then reads no profile
    monkeypatch.setattr("hpcbench.batch.schedulers.attempt.PATIENCE", 5.0)
    return Machine(tmp_path / "bin", monkeypatch)
