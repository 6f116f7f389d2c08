"""Shipped sites with fake schedulers, where a test sets the behavior of each run's ranks."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import Fake, FakeFlux, FakeLSF
from fakes.sites import read_options

from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.submit import Options, SubmitResult, submit
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.state import State
from hpcbench.report.main import report

STAND_IN = """\
#!{python} -ES
import json, os, signal, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "ranks.txt"), "a") as out:
    print(os.environ.get("HPCBENCH_ATTEMPT"), os.environ["HPCBENCH_FAKE_HOST"], os.environ["PMI_RANK"], file=out)
if os.environ["PMI_RANK"] != "0":
    sys.exit()
directory = os.path.dirname(sys.argv[-1])
name = os.path.basename(directory)
with open(os.path.join(here, "acts.json")) as file:
    act = json.load(file).get(name, "ok")
def end(state):
    print(json.dumps(dict(event="end", time="2026-01-01T00:00:00Z", state=state, steps=9, seconds=0.1)), flush=True)
open(os.path.join(here, "began." + name), "a").close()
checkpoint = os.path.join(directory, "checkpoint", "step-000007")
if act == "stop" and not os.path.isdir(checkpoint):
    while not os.path.exists(os.path.join(directory, "stop")):
        time.sleep(0.02)
    os.makedirs(checkpoint)
    end("stopped")
    sys.exit(75)
if act == "hold":
    while not os.path.exists(os.path.join(here, "go")):
        time.sleep(0.02)
if act == "deaf":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)
if act == "fail":
    sys.exit("RuntimeError: boom")
end("completed")
"""
STUDY: dict[str, Any] = {
    "study": "fake",
    "model": {"name": "mini", "layers": 2, "hidden": 32, "heads": 2, "vocab": 256},
    "data": {"source": "stdlib"},
    "train": {"steps": 9, "warmup_steps": 2, "global_batch": 4, "micro_batch": 1, "seq_len": 32, "precision": "fp32"},
    "nodes": 2,
    "ranks_per_node": 1,
    "layout": {"tp": 1, "pp": 1},
    "matrix": {"scheme": ["baseline"]},
    "account": "bank",
    "walltime": "1h",
    "repeats": 1,
    "pairing": "allocation",
}


class Place:
    """A directory with a study and a copy of a shipped site. The scheduler is a fake on PATH.

    Parameters
    ----------
    name
        Name of the site.
    real
        Whether ranks train on this machine's cores. If not, stand-ins replace the ranks.
    site
        Fields of the site to change. ``a__b`` stands for ``a: {b: ...}``.
    fake
        Additional options of the fake.
    """

    def __init__(
        self, directory: Path, name: str, *, real: bool = False, site: dict[str, Any] | None = None, **fake: Any
    ) -> None:
        self.directory = directory
        data = load_site(name)[0].model_dump(mode="json", exclude_unset=True)
        stand_in = directory / "stand-in"
        stand_in.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
        stand_in.chmod(0o755)
        data["python"] = sys.executable if real else str(stand_in)
        if real:
            data |= {"device": "cpu", "oversubscribe": True, "threads": 1}
        for path, value in (site or {}).items():
            section, _, key = path.rpartition("__")
            (data[section] if section else data)[key] = value
        self.site = directory / "site.yaml"
        self.site.write_text(json.dumps(data), encoding="utf-8")
        self.study = directory / "study.yaml"
        system = data["scheduler"]["kind"]
        quick: dict[str, Any] = {"nodes": 4, "terminate_interval": 0.5, "directory": directory / "pretended"}
        options = {**read_options(str(self.site), system), **quick, **fake}
        self.fake: Fake = {"lsf": FakeLSF, "flux": FakeFlux}[system](**options)
        self.acts({})
        self.write_study()

    def write_study(self, **changes: Any) -> None:
        """Write the study with changed fields."""
        self.study.write_text(json.dumps({**STUDY, **changes}), encoding="utf-8")

    def acts(self, acts: dict[str, str]) -> None:
        """Set the behavior of rank 0 by run ID: ok, stop (once, when asked), hold (until `go`), deaf, or fail."""
        (self.directory / "acts.json").write_text(json.dumps(acts), encoding="utf-8")

    def go(self) -> None:
        """Let the ranks that wait (`hold`) continue."""
        (self.directory / "go").touch()

    def began(self, run: str = "r1-baseline") -> None:
        """Wait until the run's ranks have started."""
        wait_for(lambda: (self.directory / f"began.{run}").exists())

    def submit(self, **options: Any) -> SubmitResult:
        """Submit the study, like `hpcbench submit`."""
        return submit(self.study, Options(site=str(self.site), **options))

    @property
    def root(self) -> Path:
        """Directory of the first submission."""
        return self.directory / "results" / "fake" / "001"

    @property
    def ranks(self) -> list[tuple[str, str, int]]:
        """Return the attempt, fake host and number of each started rank."""
        lines = (self.directory / "ranks.txt").read_text(encoding="utf-8").splitlines()
        return [(attempt, host, int(rank)) for attempt, host, rank in map(str.split, lines)]


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait until the condition holds. Fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.1)


def wait_until_over(place: Place, root: Path) -> Tracked:
    """Wait until the fake has no jobs left, and return the state of the submission."""
    place.fake.wait(seconds=120)
    wait_for(lambda: track(root).over)
    return track(root)


def states(tracked: Tracked) -> list[State]:
    """Return the states of all runs, in order."""
    return [status.state for status in tracked.runs.values()]


def read_report(capsys: pytest.CaptureFixture[str], root: Path) -> tuple[int, str]:
    """Return the exit status of `hpcbench report`, and its output joined into one line."""
    capsys.readouterr()
    status = report([root])
    return status, " ".join(capsys.readouterr().out.split())


@contextlib.contextmanager
def on_path(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the fake, with its programs first on PATH."""
    with fake:
        monkeypatch.setenv("PATH", fake.environment["PATH"])
        yield fake


def launch_lines(root: Path) -> list[str]:
    """Return the launch line of each script."""
    scripts = [path.read_text(encoding="utf-8").splitlines() for path in sorted(root.glob("jobs/*/job.sh"))]
    return [
        line.removeprefix("launch=(").removesuffix(")") for lines in scripts for line in lines if "launch=(" in line
    ]


@contextlib.contextmanager
def open_places(root: Path, monkeypatch: pytest.MonkeyPatch, site: str) -> Iterator[Callable[..., Place]]:
    """Provide a factory of sites with their fakes. `root` becomes the working directory, `site` the default."""
    monkeypatch.chdir(root)
    lock = root / "tmp"
    lock.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(lock))
    monkeypatch.setenv("TMPDIR", str(lock))
    with contextlib.ExitStack() as stack:

        def make(name: str = site, **options: Any) -> Place:
            place = Place(root, name, **options)
            stack.enter_context(on_path(place.fake, monkeypatch))
            return place

        yield make
