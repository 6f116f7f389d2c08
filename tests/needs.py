"""Fixture ``need`` for tests of programs that `make test` cannot install everywhere. Such tests are skipped, or fail in
CI.

Programs listed in tools.py are hidden from tests without the fixture even if they are installed. A test that does not
request the fixture therefore fails on every machine. For this purpose, each directory on PATH is replaced with a link
to it, or to a copy without the programs. The last line of a test run lists what was not tested, with the remedies.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import pytest
from tools import TEST


class Search:
    """Replacement of the directories on PATH, with or without the programs listed in tools.py."""

    def __init__(self) -> None:
        self._before = os.environ["PATH"]
        self._place = Path(tempfile.mkdtemp(prefix="hpcbench-path-"))
        self._links: dict[Path, dict[bool, Path]] = {}
        self._complete = True
        path = []
        for number, directory in enumerate(map(Path, self._before.split(os.pathsep))):
            if any((directory / name).exists() for name in TEST):
                link = self._place / str(number)
                link.symlink_to(directory)
                self._links[link] = {True: directory, False: link_all_but(TEST, directory, self._place / f"{number}-")}
                directory = link
            path.append(str(directory))
        os.environ["PATH"] = os.pathsep.join(path)

    def show(self, complete: bool) -> None:
        """Show all programs, or hide the programs listed in tools.py."""
        if complete != self._complete:
            for link, targets in self._links.items():
                link.unlink()
                link.symlink_to(targets[complete])
            self._complete = complete

    def close(self) -> None:
        """Restore PATH."""
        os.environ["PATH"] = self._before
        shutil.rmtree(self._place)


def link_all_but(names: Iterable[str], directory: Path, copy: Path) -> Path:
    """Copy a directory of programs as links, and omit some of the programs."""
    copy.mkdir()
    for name in {path.name for path in directory.iterdir()} - set(names):
        (copy / name).symlink_to(directory / name)
    return copy


@pytest.fixture(scope="session")
def need() -> Callable[[str | None], None]:
    """Function that skips the test if a reason is given. In CI, the test fails."""

    def check(reason: str | None) -> None:
        if reason and os.environ.get("CI"):
            pytest.fail(reason)
        if reason:
            pytest.skip(reason)

    return check


SEARCH = pytest.StashKey[Search]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):  # this process runs tests
        config.stash[SEARCH] = Search()
        config.stash[SEARCH].show(False)  # modules are imported before a test can call need


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[SEARCH].show("need" in getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    item.config.stash[SEARCH].show(True)  # fixtures of several tests may be finalized here


def _find_skipped(config: pytest.Config) -> list[pytest.TestReport]:
    """Return the reports of skipped tests, excluding GPU tests."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker, whose tests are counted by another process
        return []
    return [report for report in reporter.stats.get("skipped", []) if "gpu" not in report.keywords]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail in CI if tests were skipped, because everything except a GPU can be installed there."""
    if os.environ.get("CI") and _find_skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_unconfigure(config: pytest.Config) -> Generator[None, None, None]:
    """Print as the last line what was not tested, with the remedies."""
    yield
    if SEARCH in config.stash:
        config.stash[SEARCH].close()
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in _find_skipped(config))
    if reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        print(f"not tested here: {listed}")
