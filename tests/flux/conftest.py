"""Fixtures for end-to-end tests with the fake Flux, from submission to report."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_sites import Place, open_places


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    """Factory of sites with their fakes, in the test's working directory."""
    with open_places(tmp_path, monkeypatch, "tuolumne") as make:
        yield make
