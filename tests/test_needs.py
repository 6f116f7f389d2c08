"""Tests that a missing program leads to skips that name the remedy, and that all tests of such programs use `need`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import slurm_on_one_machine
import tools
from needs import link_all_but

from hpcbench.testing.hosts import requirements

TESTS = Path(__file__).parent
ROOT = TESTS.parent
Capture = pytest.CaptureFixture[str]
PACKAGES = sorted({tool.package for tool in tools.TEST.values()})
APT = """\
#!/bin/sh
echo "$@ $(test -x POLICY && echo without daemons)" >> CALLS
case "$*" in *absent*) echo "E: no package absent" >&2; exit 100;; esac
"""


def lack(names: list[str], place: Path) -> str:
    """Return a PATH without some programs."""
    directories = [Path(directory) for directory in os.environ["PATH"].split(os.pathsep)]
    copies = [link_all_but(names, path, place / f"{k}") for k, path in enumerate(directories) if path.is_dir()]
    return os.pathsep.join(map(str, copies))


def run_pytest(place: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest with hpcbench's plugins, but without the settings of the test suite."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    inherited = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    path = os.pathsep.join(map(str, (TESTS, place)))
    changes = {
        "PYTHONPATH": path,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # plugins take a second to load
        **environment,
    }
    return subprocess.run(command, cwd=place, env={**inherited, **changes}, capture_output=True, text=True)


# ---------------------------------------------------------------- apt-get


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Put a fake apt-get first on PATH.

    Return a function that lists the calls of apt-get.
    """
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(APT.replace("POLICY", str(tmp_path / "policy")).replace("CALLS", str(calls)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return lambda: calls.read_text().splitlines() if calls.exists() else []


def test_root_gets_what_the_distribution_has_after_one_line(
    apt: Callable[[], list[str]], tmp_path: Path, capfd: Capture
) -> None:
    tools.install(dict.fromkeys(("munge", "absent")), tmp_path / "policy")
    install = "install -y --no-install-recommends"
    assert [line.removeprefix(" ".join((*tools._APT[1:], ""))) for line in apt()] == [
        "update ",
        f"{install} munge absent without daemons",
        f"{install} --simulate munge without daemons",
        f"{install} --simulate absent without daemons",
        f"{install} munge without daemons",
    ]
    printed = capfd.readouterr()
    [line] = printed.out.splitlines()
    assert line.endswith(": apt-get install --no-install-recommends munge absent")
    assert printed.err == "apt-get: E: no package absent\n"
    assert not (tmp_path / "policy").exists()


def test_a_policy_about_daemons_stays(apt: Callable[[], list[str]], tmp_path: Path) -> None:
    (tmp_path / "policy").write_text("theirs")
    tools.install({"munge": None}, tmp_path / "policy")
    assert len(apt()) == 2 and (tmp_path / "policy").read_text() == "theirs"


@pytest.mark.parametrize("case", ["a plain user", "another distribution", "nothing is missing"])
def test_otherwise_nothing_is_installed(
    case: str, apt: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    if case == "a plain user":
        monkeypatch.setattr("os.geteuid", lambda: 1000)
    if case == "another distribution":
        monkeypatch.setenv("PATH", "/nowhere")
    tools.install({} if case == "nothing is missing" else {"munge": None}, tmp_path / "policy")
    assert not apt() and capfd.readouterr().out == ""


def test_without_a_compiler_make_ends_with_the_remedy(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert tools.main("build") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("hpcbench cannot be built here without g++") and "apt-get install" in line
    assert tools.main("test") == 0


def test_the_gate_installs_nothing_that_make_would_not() -> None:
    installed = re.findall(r"apt-get install (.*)", (ROOT / ".ci" / "run").read_text())
    assert [[word for word in line.split() if word[0] != "-"] for line in installed] == [["make", "python3"]]
    recipes = (ROOT / "Makefile").read_text()
    assert re.search(r"^test: tools ", recipes, re.MULTILINE) and re.search(
        r"^test-long: tools ", recipes, re.MULTILINE
    )


# ---------------------------------------------------------------- the list


def test_what_hosts_and_clusters_ask_for_is_listed() -> None:
    asked = {*requirements._TOOLS, *slurm_on_one_machine._SLURM, *slurm_on_one_machine._ACCOUNTING}
    assert asked - set(tools.TEST) == {"bash"}


def test_a_test_is_skipped_through_need_or_for_lack_of_a_gpu() -> None:
    other = re.compile(r"pytest\.skip\(|importorskip|mark\.skip|unittest.*[sS]kip")
    reasons = {
        (path.name, line.strip())
        for path in TESTS.rglob("*.py")
        if path not in (Path(__file__), TESTS / "needs.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if other.search(line)
    }
    assert {name for name, line in reasons if not re.search(r"WHY_NOT|NO_GPU", line)} == {"test_gpu.py"}


# ---------------------------------------------------------------- the fixture

PLANTED = """
import subprocess
from tools import explain_missing

def test_asks(need):
    need(explain_missing("ch-run"))
    assert subprocess.run(["ch-run"]).returncode == 0

def test_forgets():
    subprocess.run(["ch-run"])

def test_asks_again(need):
    test_asks(need)
"""
PLANTED_FILE = "test_planted.py"
"""Name of the file. pytest searches the current directory otherwise, which contains copies of PATH."""
REASON = "training in a container: ch-run missing here: apt-get install --no-install-recommends charliecloud"


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n2")], ids=["one process", "two processes"])
def test_a_test_that_forgets_to_ask_fails_where_the_program_is_installed(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / PLANTED_FILE).write_text(PLANTED)
    program = tmp_path / "bin" / "ch-run"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = os.pathsep.join((str(program.parent), lack(["ch-run"], tmp_path)))
    done = run_pytest(tmp_path, PLANTED_FILE, "-p", "needs", *options, PATH=path, TMPDIR=str(tmp_path))
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout
    assert "FAILED test_planted.py::test_forgets - FileNotFoundError" in done.stdout
    assert not list(tmp_path.glob("hpcbench-path-*")) and "not tested here" not in done.stdout


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n2")], ids=["one process", "two processes"])
def test_the_last_line_says_what_was_not_tested(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / PLANTED_FILE).write_text(PLANTED.replace("def test_forgets", "def forgets"))
    path = lack(["ch-run"], tmp_path)
    done = run_pytest(tmp_path, PLANTED_FILE, "-p", "needs", *options, PATH=path)
    assert done.returncode == 0 and "2 skipped" in done.stdout
    assert done.stdout.splitlines()[-1] == f"not tested here: 2 x {REASON}"
    done = run_pytest(tmp_path, PLANTED_FILE, "-p", "needs", *options, PATH=path, CI="true")
    assert done.returncode == 1 and "2 failed" in done.stdout and REASON in done.stdout


# ---------------------------------------------------------------- the suite without each package

ONLY_NEEDS = """
import json
import os
import pytest

class Ending:
    @pytest.fixture(scope="session")
    def need(self):
        def check(reason):
            pytest.skip(reason or "nothing is missing")
        return check

@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    session.config.pluginmanager.register(Ending())

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    needing = [item for item in session.items if "need" in getattr(item, "fixturenames", ())]
    for case in json.loads(os.environ["CASES"]):
        chosen = [item for item in needing if case["tests"] is None or item.nodeid in case["tests"]]
        child = os.fork()
        if not child:
            os.environ.update(PATH=case["path"], ENDS=case["ends"])
            for item, following in zip(chosen, [*chosen[1:], None]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    return True

def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        reason = report.longrepr[2] if report.skipped else report.longreprtext
        with open(os.environ["ENDS"], "a") as out:
            print(json.dumps([report.nodeid, report.outcome, reason]), file=out)
"""
"""A plugin that runs tests with the fixture `need`, and ends each test at its first call of `need`.

The tests are imported once. Each case is a fork with its own PATH and tests.
"""


def find_users() -> list[Path]:
    """Return the test files that may use `need`, directly or through fixtures of their folders."""
    conftests = {path.parent for path in TESTS.rglob("conftest.py") if "need(" in path.read_text(encoding="utf-8")}
    return [
        path
        for path in sorted(TESTS.rglob("test_*.py"))
        if path != Path(__file__)
        and (conftests.intersection(path.parents) or "need(" in path.read_text(encoding="utf-8"))
    ]


def run_without(lacking: dict[str, list[str]], place: Path, chosen: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """For each case, run tests that use `need` while some programs are missing.

    Parameters
    ----------
    lacking
        Missing programs by case. The modules are imported without the programs of the first case.
    chosen
        Tests by case. A case that is not listed runs all tests.

    Returns
    -------
    Why each test was skipped, by case and test.
    """
    (place / "only_needs.py").write_text(ONLY_NEEDS)
    cases = []
    for name, programs in lacking.items():
        (place / name).mkdir()
        path = lack(programs, place / name)
        cases.append({"path": path, "ends": str(place / f"{name}.json"), "tests": chosen.get(name)})
    listed = sorted({test.partition("::")[0] for tests in chosen.values() for test in tests})
    options = ["-q", "-p", "only_needs", "-p", "xdist.plugin", "-m", "", "--rootdir", str(ROOT)]
    options += ["-c", str(ROOT / "pyproject.toml")]
    files = [str(ROOT / file) for file in listed] or [str(path) for path in find_users()]
    done = run_pytest(place, *options, *files, CASES=json.dumps(cases), PATH=str(cases[0]["path"]))
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = {}
    for name in lacking:
        reports = [json.loads(line) for line in (place / f"{name}.json").read_text().splitlines()]
        assert {outcome for _, outcome, _ in reports} == {"skipped"}, reports
        skipped[name] = {test: reason.removeprefix("Skipped: ") for test, _, reason in reports}
    return skipped


def find_programs(package: str) -> list[str]:
    return [name for name, tool in tools.TEST.items() if tool.package == package]


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Reasons of the tests that ask for a package's programs while only these are missing, by package and test."""
    place = tmp_path_factory.mktemp("lacking")
    bare = run_without({"everything": list(tools.TEST)}, place, {})["everything"]
    chosen = {}
    for package in PACKAGES:
        names = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, find_programs(package)))})(?!\w)")
        chosen[package] = [test for test, reason in bare.items() if names.search(reason)]
    lacking = {package: find_programs(package) for package, tests in chosen.items() if tests}
    return run_without(lacking, place, chosen)


@pytest.mark.long
@pytest.mark.parametrize("package", PACKAGES)
def test_without_a_package_its_tests_are_skipped_with_the_remedy(
    package: str, reasons: dict[str, dict[str, str]], need: Callable[[str | None], None]
) -> None:
    if package in ("slurm-wlm", "slurmdbd", "mariadb-server", "munge") and os.geteuid():
        need("without root, a Slurm cluster is denied whatever is installed: run as root")
    assert package in reasons, "no test asks for it"
    for reason in reasons[package].values():
        assert any(program in reason for program in find_programs(package))
        assert "apt-get install" in reason and package in reason
