"""Tests of the doctor's container checks."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from machine import Machine

import hpcbench
from hpcbench.batch.scripts.containers import PROGRAMS
from hpcbench.batch.sites.site import Site
from hpcbench.doctor.check import Check, Health
from hpcbench.doctor.container import check_container
from hpcbench.doctor.examine import examine

START = """\
while [ $# -gt 0 ]; do
  case $1 in *.sif) shift; exec "$@" ;; esac
  shift
done
"""
"""A container program that runs the command on the host."""
LAUNCH = """\
until [ "$1" = apptainer ] || [ "$1" = sh ]; do shift; done
exec "$@"
"""
"""A launcher that starts one rank on this machine."""


def site(kind: str | None, image: str | None = None, scheduler: str = "slurm", **changes: Any) -> Site:
    launcher = "srun" if scheduler == "slurm" else "mpich"
    data: dict[str, Any] = {"site": "here", "scheduler": {"kind": scheduler}, "launcher": {"kind": launcher}}
    container = {name: value for name, value in (("kind", kind), ("image", image)) if value}
    return Site.model_validate(
        {**data, "node": {"cores": 4}, "threads": 1, "checked": "never", "container": container, **changes}
    )


def named(checks: list[Check], name: str) -> Check:
    (check,) = (check for check in checks if check.name == name)
    return check


@pytest.fixture
def image(tmp_path: Path) -> str:
    path = tmp_path / "hpcbench.sif"
    path.touch()
    return str(path)


def python(tmp_path: Path, version: str) -> str:
    """Write an interpreter that reports this hpcbench version, and return its path."""
    path = tmp_path / "python-inside"
    path.write_text(f"#!/bin/sh\necho hpcbench={version}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_site_without_a_container_has_no_such_check() -> None:
    assert check_container(site(None).model_copy(update={"container": None}), run=False) == []


@pytest.mark.parametrize("kind", [kind for kind in PROGRAMS if kind != "pyxis"])
def test_the_program_of_each_kind_is_checked(machine: Machine, kind: str) -> None:
    program = PROGRAMS[kind]  # type: ignore[index]
    check = named(check_container(site(kind), run=False), f"container {kind}")
    assert check.failed and check.fact.startswith(f"{program} is not on PATH") and "container.kind" in check.remedy
    machine.script(program, "true")
    check = named(check_container(site(kind), run=False), f"container {kind}")
    assert check.health is Health.OK and check.fact == str(machine.directory / program)


def test_a_missing_program_of_a_local_site_is_a_failure(machine: Machine) -> None:
    check = named(check_container(site("apptainer", scheduler="local"), run=False), "container apptainer")
    assert check.failed and check.health is Health.MISSING, "a local site has no compute nodes that may have it"


@pytest.mark.parametrize(
    ("help", "health"), [("--container-image=[USER@]IMAGE", Health.OK), ("--nodes=N", Health.MISSING)]
)
def test_pyxis_is_an_option_of_srun(machine: Machine, help: str, health: Health) -> None:
    assert named(check_container(site("pyxis"), run=False), "container pyxis").health is Health.UNKNOWN
    machine.script("srun", f"echo '{help}'")
    check = named(check_container(site("pyxis"), run=False), "container pyxis")
    assert check.health is health and check.failed == (health is not Health.OK)


def test_the_image_must_be_there_and_readable(machine: Machine, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.script("apptainer", START)
    assert named(check_container(site("apptainer", image), run=False), "container image").health is Health.OK
    check = named(check_container(site("apptainer", "/nowhere/x.sif"), run=False), "container image")
    assert check.failed and check.fact == "/nowhere/x.sif does not exist"
    assert "apptainer build /nowhere/x.sif studies/hpcbench.def" in check.remedy
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "cannot be read" in named(check_container(site("apptainer", image), run=False), "container image").fact


def test_images_that_are_not_files_are_unknown(machine: Machine) -> None:
    for kind, text in (("shifter", "docker:org/x:1"), ("apptainer", None)):
        check = named(check_container(site(kind, text), run=False), "container image")
        assert check.health is Health.UNKNOWN and not check.failed


def test_on_a_cluster_a_rank_starts_only_if_asked(machine: Machine, image: str, tmp_path: Path) -> None:
    machine.script("apptainer", START)
    machine.script("srun", f": > '{tmp_path}/started'\n{LAUNCH}")
    where = site("apptainer", image)
    where = where.model_copy(
        update={"container": where.container.model_copy(update={"python": python(tmp_path, hpcbench.__version__)})}  # type: ignore[union-attr]
    )
    check = named(check_container(where, run=False), "rank in the container")
    assert check.health is Health.UNKNOWN and "--run" in check.remedy
    assert not (tmp_path / "started").exists()
    check = named(check_container(where, run=True), "rank in the container")
    assert check.health is Health.OK and (tmp_path / "started").exists(), check
    assert re.search(rf"srun .*apptainer exec .*{re.escape(image)}", check.fact)


def test_a_program_that_only_compute_nodes_have_is_checked_there(machine: Machine, tmp_path: Path) -> None:
    """The study names the image, so only the program can be checked."""
    node = tmp_path / "node"
    node.mkdir()
    machine.script("srun", f'PATH="{node}:$PATH"\n{LAUNCH}')
    where = site("charliecloud")
    checks = check_container(where, run=True)
    assert not named(checks, "container charliecloud").failed, "only the compute node must have it"
    check = named(checks, "container on the node of a rank")
    assert check.failed and check.fact == "ch-run is not on PATH on that node" and check.remedy
    (node / "ch-run").write_text("#!/bin/sh\n")
    (node / "ch-run").chmod(0o755)
    checks = check_container(where, run=True)
    assert named(checks, "container on the node of a rank").fact == str(node / "ch-run")
    assert not any(check.failed for check in checks)


@pytest.mark.parametrize(
    ("inside", "fact", "remedy"),
    [
        (
            "0.0.1",
            f"hpcbench 0.0.1, but jobs are submitted with hpcbench {hpcbench.__version__}",
            "build the image again",
        ),
        (None, "ModuleNotFoundError: No module named 'hpcbench'", "start the command by hand"),
    ],
)
def test_an_image_with_another_hpcbench_or_none(
    machine: Machine, image: str, tmp_path: Path, inside: str | None, fact: str, remedy: str
) -> None:
    machine.script("apptainer", START)
    machine.script("mpiexec", LAUNCH)
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'hpcbench'\" >&2; exit 1\n")
    bare.chmod(0o755)
    where = site("apptainer", image, "local", launcher={"kind": "mpich", "program": str(machine.directory / "mpiexec")})
    interpreter = python(tmp_path, inside) if inside else str(bare)
    where = where.model_copy(
        update={"container": where.container.model_copy(update={"python": interpreter})}  # type: ignore[union-attr]
    )
    check = named(check_container(where, run=False), "rank in the container")
    assert check.failed and fact in check.fact and check.remedy.startswith(remedy), check


def test_the_doctor_reports_a_missing_container(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "site: mine\nscheduler: {kind: slurm}\nlauncher: {kind: srun}\nnode: {cores: 4}\nchecked: never\n"
        f"python: {sys.executable}\ncontainer: {{kind: apptainer, image: /nowhere/x.sif}}\n"
    )
    failed = {check.name for check in examine(str(path)) if check.failed}
    assert {"container apptainer", "container image"} <= failed
