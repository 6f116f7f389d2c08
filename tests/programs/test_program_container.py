"""Tests of user programs in containers. The launcher starts ranks inside the image, and hpcbench stays outside."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcbench import __version__
from hpcbench.batch.plan_jobs import plan
from hpcbench.batch.scripts.render import render
from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.sites.site import Site
from hpcbench.batch.submit import Options, submit
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study

STUDY: dict[str, Any] = {
    "study": "mine",
    "program": {"command": "python play.py {seed}", "log": {"line": "loss (?P<loss>.*)"}, "steps": 2},
    "container": {"image": "/sw/it's mine.sif", "python": "/opt/py"},
    "nodes": 1,
    "ranks_per_node": 2,
    "repeats": 1,
}


def script(directory: Path, kind: str, start: str = "rank", nodes: int = 1) -> tuple[list[str], list[str]]:
    """Return the launcher's arguments, and the arguments between them and the rank's command."""
    (directory / "at").mkdir(exist_ok=True)
    program = {**STUDY["program"], "start": start, "directory": "at"}
    path = directory / "s.yaml"
    path.write_text(json.dumps({**STUDY, "program": program, "nodes": nodes, "walltime": "10m"}), encoding="utf-8")
    data = load_site("perlmutter")[0].model_dump(exclude_unset=True)
    site = Site.model_validate({**data, "container": {"kind": kind}, "python": "/host/py"})
    study = load_study(path)
    jobs, _ = plan(expand(study, site.capacity), study, site, dry_run=True)
    text = render(jobs[0], site=site, study="mine", root="/r")
    (launch,) = (line for line in text.splitlines() if line.startswith("launch=("))
    (line,) = (line for line in text.splitlines() if "hpcbench.programs" in line)
    arguments = shlex.split(line)
    run = ["run", "r1-baseline", "/host/py", "-u", "-m", "hpcbench.programs", "runs/r1-baseline/run.json"]
    assert arguments[:7] == run and arguments[7] == "${launch[@]}" and arguments[-1] == "/opt/py", arguments
    return shlex.split(launch.removeprefix("launch=(").removesuffix(")")), arguments[8:-1]


def test_the_image_comes_between_launcher_and_rank(tmp_path: Path) -> None:
    launch, inside = script(tmp_path, "apptainer", nodes=2)
    assert launch[0] == "srun" and inside[:2] == ["apptainer", "exec"] and inside[-1] == "/sw/it's mine.sif"
    binds = [inside[k + 1] for k, word in enumerate(inside) if word == "--bind"]
    assert binds == ["/r:/r", f"{tmp_path / 'at'}:{tmp_path / 'at'}"], "the program's directory is visible inside"


def test_a_command_that_starts_its_own_ranks_is_the_only_one_in_its_container(tmp_path: Path) -> None:
    assert "--join" in script(tmp_path, "charliecloud")[1]
    launch, inside = script(tmp_path, "charliecloud", "node")
    assert launch == ["env"] and "ch-run" in inside and "--join" not in inside
    launch, inside = script(tmp_path, "pyxis", "node")  # srun starts the container, even on one node
    assert launch[0] == "srun" and "--container-image=/sw/it's mine.sif" in launch and inside == []


APPTAINER = """\
#!{python}
import os, sys
words = sys.argv[2:]
with open({seen!r}, "a") as out:
    print(" ".join(sys.argv[1:]), file=out)
while words[0].startswith("--"):
    option, value, *words = words
    if option == "--pwd":
        os.chdir(value)
os.environ |= {environment!r}
os.execv(sys.executable, [sys.executable, *words[2:]])
"""
LAUNCHER = """\
#!{python}
import os, sys
os.environ |= dict(PMI_RANK="0", PMI_SIZE="1")
words = sys.argv[sys.argv.index("apptainer"):]
os.execvp(words[0], words)
"""


@pytest.mark.parametrize(
    ("inside", "status", "message"),
    [
        ({}, 0, '"state": "completed", "steps": 2'),
        ({"HPCBENCH_VERSION": "0.0.7"}, 1, f"has hpcbench {__version__}, but the job needs 0.0.7: build the image"),
    ],
)
def test_a_program_runs_in_an_image(tmp_path: Path, inside: dict[str, str], status: int, message: str) -> None:
    """The stand-in starts this interpreter instead of the image's, as if the image had the same contents."""
    seen = tmp_path / "seen"
    (tmp_path / "bin").mkdir()
    for name, text in (("apptainer", APPTAINER), ("launcher", LAUNCHER)):
        path = tmp_path / "bin" / name
        path.write_text(text.format(python=sys.executable, seen=str(seen), environment=inside), encoding="utf-8")
        path.chmod(0o755)
    site = {
        "site": "fake",
        "scheduler": {"kind": "local"},
        "launcher": {"kind": "mpich", "program": str(tmp_path / "bin" / "launcher")},
        "node": {"cores": 4},
        "container": {"kind": "apptainer"},
        "python": sys.executable,
        "checked": "never",
    }
    (tmp_path / "fake.yaml").write_text(json.dumps(site), encoding="utf-8")
    (tmp_path / "play.py").write_text("import sys\nfor k in 1, 2: print('loss', sys.argv[1])\n", encoding="utf-8")
    (tmp_path / "s.yaml").write_text(json.dumps({**STUDY, "ranks_per_node": 1}), encoding="utf-8")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")  # scratch directories are often links, which are not bound
    options = Options(site=str(tmp_path / "fake.yaml"), dry_run=True, out=tmp_path / "link")
    root = submit(tmp_path / "s.yaml", options).root
    (job,) = root.glob("jobs/*/job.sh")
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(job)], env=environment, capture_output=True, text=True, check=False)
    (log,) = root.glob("runs/*/log.txt")
    assert done.returncode == status, done.stderr
    assert message in log.read_text(encoding="utf-8")
    output = seen.read_text(encoding="utf-8")
    assert output.startswith(
        f"exec --bind {tmp_path}:{tmp_path} --pwd {root} {STUDY['container']['image']} /opt/py -u -m "
    )
    assert "hpcbench.programs.rank runs/r1-baseline/run.json" in output, "and no path of the host without its links"
