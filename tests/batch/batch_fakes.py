"""A site whose launcher is a script that records its arguments and behaves as a test specifies for each scheme."""

import json
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.state import State

LAUNCHER = """\
#!{python}
import json, os, signal, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
run = json.load(open(sys.argv[-1]))
act = json.load(open(os.path.join(here, "acts.json"))).get(run["scheme"]["name"], "ok")
with open(os.path.join(here, "calls.jsonl"), "a") as calls:
    call = dict(argv=sys.argv[1:], cwd=os.getcwd(), env=dict(os.environ), time=time.time(), run=run["run"])
    calls.write(json.dumps(call) + "\\n")
def end(state, reason=""):
    event = dict(event="end", time="2026-01-01T00:00:00Z", state=state, steps=1, seconds=0.1, reason=reason)
    print(json.dumps(event), flush=True)
if act == "sleep":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open(os.path.join(here, "children"), "w") as out:
        out.write(f"{{os.getpid()}} {{child.pid}} {{grandchild.pid}}")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
elif act in ("stop", "always stop"):
    directory = os.path.dirname(sys.argv[-1])
    if act == "always stop" or not os.path.isdir(os.path.join(directory, "checkpoint", "step-000007")):
        while not os.path.exists(os.path.join(directory, "stop")):
            time.sleep(0.02)
        os.makedirs(os.path.join(directory, "checkpoint", "step-000007"), exist_ok=True)
        end("stopped", "asked to stop after step 7")
        sys.exit(75)
    end("completed")
elif act == "wait":
    while not os.path.exists(os.path.join(here, "go")):
        time.sleep(0.02)
    end("completed")
elif act == "nap":
    time.sleep(0.5)
    end("completed")
elif act == "fail":
    print("boom: the reason", file=sys.stderr)
    sys.exit(3)
elif act == "nan":
    end("nan", "loss not finite at step 7")
    sys.exit(1)
elif act == "fill":
    with open(os.path.join(os.path.dirname(sys.argv[-1]), "filler"), "wb", buffering=0) as out:
        try:
            while out.write(bytes(4096)):
                pass
        except OSError:
            pass
    end("completed")
elif act == "mute":
    print("step    1/20 | loss 5.5 |")
elif act == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
else:
    end("completed")
with open(os.path.join(here, "calls.jsonl"), "a") as calls:
    calls.write(json.dumps(dict(ended=run["run"], time=time.time())) + "\\n")
"""

STUDY: dict[str, Any] = {
    "study": "fake",
    "model": "gpt-tiny",
    "train": {"steps": 20, "global_batch": 8},
    "layout": {"dp": 2, "tp": 2},
    "matrix": {"scheme": ["baseline", "naive-zfp8", "mzhybrid"]},
    "repeats": 1,
}


class Fake:
    """A directory with a study, a site, and the launcher that the site names."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.launcher = directory / "launch er"
        self.launcher.write_text(textwrap.dedent(LAUNCHER).format(python=sys.executable), encoding="utf-8")
        self.launcher.chmod(0o755)
        self.study = directory / "study.yaml"
        self.site = directory / "site.yaml"
        self.acts({})
        self.write_study()
        self.write_site()

    def acts(self, acts: dict[str, str]) -> None:
        """Set the launcher's behavior for each scheme to one of the following.

        ok, nap, wait (for a file named go), fail, nan, mute, fill (the disk), kill, sleep, stop (once, when asked to),
        always stop.
        """
        (self.directory / "acts.json").write_text(json.dumps(acts), encoding="utf-8")

    def write_study(self, **changes: Any) -> None:
        self.study.write_text(json.dumps({**STUDY, **changes}), encoding="utf-8")

    def write_site(self, **changes: Any) -> None:
        site = {
            "site": "fake",
            "scheduler": {"kind": "local"},
            "launcher": {"kind": "mpich", "program": str(self.launcher), "args": ["--extra arg"]},
            "python": "python of the ranks",
            "threads": 1,
            "oversubscribe": True,
            "checked": "never",
        }
        self.site.write_text(json.dumps({**site, **changes}), encoding="utf-8")

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Return the recorded starts and ends of the launcher, in order."""
        path = self.directory / "calls.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    @property
    def children(self) -> list[int]:
        """Return the process ids of a run that sleeps."""
        path = self.directory / "children"
        wait_for(lambda: path.exists() and path.read_text(encoding="utf-8").count(" ") == 2)
        return [int(pid) for pid in path.read_text(encoding="utf-8").split()]


def wait_for(condition: Callable[[], Any], seconds: float = 180.0) -> None:
    """Wait until the condition is true. Fail on a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.05)


def wait_until_over(root: Path) -> Tracked:
    """Wait until all runs of the submission have ended and the job has written its status file."""
    wait_for(lambda: track(root).over and State.RUNNING not in {s.state for s in track(root).jobs.values()})
    return track(root)
