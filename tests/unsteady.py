"""``pytest -n N --once-more K`` repeats up to K tests that failed in parallel, each run alone at the end.

A test that passes when repeated is reported as unsteady, with its first output, and does not fail the run.
docs/decisions.md explains why.
"""

import subprocess
import sys

import pytest


class OnceMore:
    """Plugin state: the failed tests, and their results when run alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.failed: dict[str, str] = {}
        self.alone = ""
        self.passed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            name = report.nodeid.rpartition("@")[0] if "@" in report.nodeid.rpartition("]")[2] else report.nodeid
            self.failed[name] = self.failed.get(name, "") + report.longreprtext + report.capstderr

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not 0 < len(self.failed) <= self._most:
            return
        # Otherwise, `addopts` would deselect long tests.
        selection = ["-m", session.config.option.markexpr]
        command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *selection, *self.failed]
        done = subprocess.run(command, cwd=session.config.invocation_params.dir, capture_output=True, text=True)
        self.alone, self.passed = done.stdout + done.stderr, done.returncode == 0
        if self.passed:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter
        if self.passed:
            write.section("UNSTEADY: failed in parallel, passed alone", red=True, bold=True)
            for name, output in self.failed.items():
                write.line(f"UNSTEADY {name}", red=True, bold=True)
                write.line(output)
        elif self.alone:
            write.section("failed in parallel, and failed alone", red=True, bold=True)
            write.line(self.alone)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--once-more", type=int, default=0, metavar="K", help="run up to K failed tests once more, alone")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--once-more") and not hasattr(config, "workerinput"):  # not in xdist's workers
        config.pluginmanager.register(OnceMore(config.getoption("--once-more")), "once-more")
