"""Fixtures of the batch tests."""

from pathlib import Path

import pytest
from batch_fakes import Fake


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A fake site in a directory whose name contains shell code, with its own locks and results."""
    lock = tmp_path / "tmp"
    lock.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(lock))
    monkeypatch.setenv("TMPDIR", str(lock))
    directory = tmp_path / 'it\'s a $(touch pwned) `touch pwned` "dir"; touch pwned'
    fake = Fake(directory)
    monkeypatch.chdir(directory)
    return fake
