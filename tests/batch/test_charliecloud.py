"""Test of training in a real Charliecloud container, which needs no root privileges.

The image takes little time to build, because it contains only an interpreter path that does not exist on the host.
The directories of the system and of the packages are bind-mounted.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import explain_missing

from hpcbench.batch.sites.site import Site
from hpcbench.doctor.check import Health
from hpcbench.doctor.container import check_container
from hpcbench.doctor.ranks import check_interpreter, check_world

STUDY = """\
study: contained
model: {name: mini, layers: 1, hidden: 16, heads: 2, vocab: 256}
data: {source: file, path: text, valid_fraction: 0.5}
train: {steps: 3, warmup_steps: 1, global_batch: 2, seq_len: 16, eval_samples: 2}
layout: {dp: 2}
scheme: naive-int8
baseline: {scheme: naive-int8}
repeats: 1
container: {image: IMAGE, python: /inside/python, args: [ARGS]}
"""
SITE = """\
site: here
scheduler: {kind: local}
launcher: {kind: mpich}
oversubscribe: true
container: {kind: charliecloud, binds: [BINDS]}
checked: never
"""


def why_not() -> str | None:
    """Return the reason why ch-run cannot work here, or None if it can."""
    if reason := explain_missing("ch-run", "unshare"):
        return reason
    if subprocess.run(["unshare", "--user", "true"], stderr=subprocess.DEVNULL).returncode:
        return "training in a container: user namespaces are denied here: allow them (sysctl user.max_user_namespaces)"
    return None


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Image with mount points, the host's links, and the files that ch-run replaces with the host's files."""
    root = tmp_path_factory.mktemp("image")
    for name in ("bin", "lib", "lib64", "sbin"):
        link = Path("/") / name
        if link.is_symlink():
            (root / name).symlink_to(link.readlink())
        elif link.is_dir():
            (root / name).mkdir()
    for name in ("dev", "proc", "sys", "tmp", "usr", "inside", "etc"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    python = root / "inside" / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    for place in bound():
        (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return root


def bound() -> list[str]:
    """Return the directories of the interpreter and its packages, and TMPDIR. ch-run binds /tmp itself."""
    import hpcbench

    places = [sys.prefix, sys.base_prefix, Path(hpcbench.__file__).parents[1], Path(__file__).parents[2]]
    places += [os.environ.get("TMPDIR", "/tmp"), "/usr"]
    # links to the interpreter must also be valid inside
    step = Path(sys.executable)
    while step.is_symlink():
        step = step.parent / step.readlink()
        places.append(step.parent)
    tops = {f"/{Path(place).absolute().parts[1]}" for place in places}
    return sorted({*(os.path.realpath(top) for top in tops), *tops} - {"/bin", "/lib", "/lib64", "/sbin", "/tmp"})


def submit(folder: Path, image: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    (folder / "text").write_bytes(bytes(range(256)) * 1500)
    (folder / "study.yaml").write_text(STUDY.replace("IMAGE", str(image)).replace("ARGS", ", ".join(args)))
    (folder / "site.yaml").write_text(SITE.replace("BINDS", ", ".join(bound())))
    hpcbench = str(Path(sys.executable).with_name("hpcbench"))
    done = subprocess.run(
        [hpcbench, "submit", "study.yaml", "--site", "site.yaml", "--out", "out", "--wait"],
        cwd=folder,
        env={**os.environ, "USER": os.environ.get("USER", "me")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done, folder / "out/001/runs/r1-naive-int8"


def test_ranks_train_over_mpi_in_a_container(image: Path, tmp_path: Path, need: Callable[[str | None], None]) -> None:
    need(why_not())
    done, run = submit(tmp_path, image)
    errors = (run / "err.txt").read_text() if run.is_dir() else ""
    assert done.returncode == 0, done.stderr + done.stdout + errors
    assert "(charliecloud), with the image's own hpcbench and MPI library" in " ".join(done.stdout.split())
    events = {}
    for line in (run / "log.txt").read_text().splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            events[event["event"]] = event
    assert events["environment"]["container"] == f"charliecloud {image}"
    assert len(events["environment"]["world"]) == 2 and events["end"]["state"] == "completed"
    (dp,) = [channel for channel in events["traffic"]["channels"] if channel["dimension"] == "DP"]
    assert 0 < dp["wire_bytes"] < dp["message_bytes"] / 3, "the two ranks exchange encoded messages"
    assert not Path("/inside/python").exists(), "the interpreter of the image"


def test_ranks_that_do_not_see_their_launcher_are_refused_with_the_remedy(
    image: Path, tmp_path: Path, need: Callable[[str | None], None]
) -> None:
    """A container that hides the launcher's variables starts each rank in its own world of size 1."""
    need(why_not())
    done, run = submit(tmp_path, image, "'--unset-env=PMI*'")
    assert done.returncode == 1, done.stdout
    errors = (run / "err.txt").read_text()
    assert "the launcher started a world of 1 ranks, but the run needs 2" in errors
    assert f"the MPI library in charliecloud {image} must use the launcher's interface" in errors


def test_an_image_that_is_not_there_is_one_line(tmp_path: Path, need: Callable[[str | None], None]) -> None:
    need(why_not())
    done, _ = submit(tmp_path, Path("/nowhere/image"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "hpcbench: study.yaml:9: container.image: /nowhere/image does not exist: build it, or check the path"
    ]


def test_the_doctor_starts_a_rank_in_the_image(
    image: Path, tmp_path: Path, need: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    need(why_not())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", os.environ.get("USER", "me"))
    container = {"kind": "charliecloud", "binds": bound(), "image": str(image), "python": "/inside/python"}
    site = {"site": "here", "scheduler": {"kind": "local"}, "launcher": {"kind": "mpich"}, "checked": "never"}
    here = Site.model_validate({**site, "oversubscribe": True, "python": "/nowhere/python", "container": container})
    checks = check_container(here, run=False)
    assert [(check.name, check.health) for check in checks] == [
        (name, Health.OK) for name in ("container charliecloud", "container image", "rank in the container")
    ], checks
    checks = [*check_interpreter(here, run=False), *check_world(here, run=False)]
    assert not [check for check in checks if check.failed], "both paths are those of the image"
