"""Fixtures for tests of the fakes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes import Fake, FakeFlux, FakeLSF


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the test's directory. Jobs write to the directory of submission, which must not be the checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fake_of() -> Iterator[Callable[..., Fake]]:
    """Return a function that creates ``lsf`` or ``flux`` fakes whose minutes last one second.

    Jobs run in the test's directory.
    """
    with ExitStack() as stack:

        def make(system: str, **options: Any) -> Fake:
            kind = {"lsf": FakeLSF, "flux": FakeFlux}[system]
            return stack.enter_context(kind(**{"minute": 1.0, "terminate_interval": 1.0, **options}))

        yield make


@pytest.fixture
def lsf(fake_of: Callable[..., Fake]) -> Fake:
    """Return a fake LSF that behaves as on a Sierra-class machine."""
    return fake_of("lsf")


@pytest.fixture
def flux(fake_of: Callable[..., Fake]) -> Fake:
    """Return a fake Flux."""
    return fake_of("flux")
