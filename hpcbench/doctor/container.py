"""Container checks: the runtime, the image, and the start of a rank."""

import os
import re
import shlex
from pathlib import Path

import hpcbench
from hpcbench.batch.schedulers.attempt import attempt
from hpcbench.batch.scripts.containers import PROGRAMS
from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.site import Site
from hpcbench.doctor.check import Check, report_missing, report_ok, report_unknown
from hpcbench.doctor.job_shell import in_job, job_environment
from hpcbench.doctor.ranks import PATIENCE, last_error, launcher_of, listed_hosts, rank_command
from hpcbench.study.container import Container

_FIND = ["sh", "-c", 'command -v -- "$0"']
_INSIDE = "import hpcbench; print('hpcbench=' + hpcbench.__version__)"
_START_BY_HAND = "start the command by hand; docs/how-to/containers.md lists what an image must contain"


def check_container(site: Site, *, run: bool) -> list[Check]:
    """Check the container described in the site file. Without a container, return no checks.

    Parameters
    ----------
    site
        Site with the container.
    run
        Whether to start ranks if the site is a cluster.
    """
    container = site.container
    if container is None:
        return []
    starts = run or site.scheduler.kind == "local"
    checks = [_image(container)]
    if container.kind is None:
        remedy = "set container.kind in the site file, or in each study"
        return [report_unknown("container", "the site file names an image but no kind", remedy), *checks]
    program = PROGRAMS[container.kind]
    here = _plugin(site) if container.kind == "pyxis" else _program(site, container.kind, program, starts=starts)
    checks.insert(0, here)
    if not starts:
        remedy = "start a rank in the container with hpcbench doctor --run, where this is allowed"
        return [*checks, report_unknown("rank in the container", "not started on a cluster's login node", remedy)]
    if any(check.failed for check in checks):
        return checks
    if container.image is None:
        return checks if container.kind == "pyxis" else [*checks, _on_node(site, container.kind, program)]
    return [*checks, _rank_inside(site)]


def _program(site: Site, kind: str, program: str, *, starts: bool) -> Check:
    """Check the container runtime on this node, with the site's modules and setup."""
    name = f"container {kind}"
    path = attempt(in_job(site, [*_FIND, program])).out.split()
    if path:
        return report_ok(name, path[-1], needed=True)
    fact = f"{program} is not on PATH"
    if site.scheduler.kind == "local":
        return report_missing(name, fact, _remedy(kind, program), needed=True)
    where = "on this node; compute nodes may have it"
    return report_unknown(name, f"{fact} {where}", _remedy(kind, program), needed=not starts)


def _remedy(kind: str, program: str) -> str:
    return f"add the module of {program} to modules: of the site file, install it, or correct container.kind ({kind})"


def _plugin(site: Site) -> Check:
    """Check that srun supports the pyxis options."""
    name = "container pyxis"
    answer = attempt(in_job(site, [launcher_of(site), "--help"]))
    if "--container-image" in answer.out + answer.err:
        return report_ok(name, "srun has --container-image", needed=True)
    if not answer.ok:
        return report_unknown(name, answer.problem, "run this on the machine's login node", needed=True)
    remedy = (
        "ask the site for pyxis and enroot, or set container.kind to a program that the site has, such as apptainer"
    )
    return report_missing(
        name, "srun has no --container-image: Slurm's plugin pyxis is not installed", remedy, needed=True
    )


def _image(container: Container) -> Check:
    """Check that the image file or directory is readable."""
    name = "container image"
    if container.image is None:
        remedy = "`hpcbench submit STUDY --dry-run --check` checks the image of a study"
        return report_unknown(name, "the site file names no image, so each study must name one", remedy)
    image = container.image
    if not image.startswith("/"):
        return report_unknown(name, f"{image} is a name, not an absolute path: it is searched for when a rank starts")
    if not Path(image).exists():
        kind = container.kind
        build = (
            f"{kind} build {shlex.quote(image)} studies/hpcbench.def" if kind in ("apptainer", "singularity") else ""
        )
        remedy = f"build it ({build or 'docs/how-to/containers.md'}), or correct container.image"
        return report_missing(name, f"{image} does not exist", remedy, needed=True)
    if not os.access(image, os.R_OK):
        return report_missing(name, f"{image} cannot be read", "ask its owner for read permission", needed=True)
    return report_ok(name, image, needed=True)


def _on_node(site: Site, kind: str, program: str) -> Check:
    """Check the container runtime on a rank's node."""
    name = "container on the node of a rank"
    try:
        _, launch = solve(site, nodes=1, ranks_per_node=1, program=launcher_of(site))
    except ValueError as error:
        return report_unknown(name, f"no rank fits on a node of the site: {error}", needed=True)
    with listed_hosts(launch, 1) as launch_words:
        answer = attempt(in_job(site, [*launch_words, *_FIND, program]), seconds=PATIENCE, env=job_environment())
    paths = [line.strip() for line in answer.out.splitlines() if line.strip().endswith(f"/{program}")]
    if paths:
        return report_ok(name, paths[-1], needed=True)
    if answer.status is None:
        return report_unknown(name, answer.problem, "check whether the job is waiting for a node", needed=True)
    return report_missing(name, f"{program} is not on PATH on that node", _remedy(kind, program), needed=True)


def _rank_inside(site: Site) -> Check:
    """Start a rank in the image, as a job does, and check the image's hpcbench version."""
    name = "rank in the container"
    try:
        with rank_command(site, 1) as command:
            answer = attempt(in_job(site, [*command, "-c", _INSIDE]), seconds=PATIENCE, env=job_environment())
    except ValueError as error:
        return report_unknown(name, f"cannot be started: {error}", needed=True)
    line = shlex.join(command)
    version = re.search(r"hpcbench=(\S+)", answer.out)
    if version and version[1] == hpcbench.__version__:
        return report_ok(name, f"{line}: hpcbench {version[1]}", needed=True)
    if version:
        fact = f"{line}: hpcbench {version[1]}, but jobs are submitted with hpcbench {hpcbench.__version__}"
        return report_missing(name, fact, "build the image again with this version", needed=True)
    if answer.status is None:
        return report_unknown(
            name, f"{line}: {answer.problem}", "check whether the job is waiting for a node", needed=True
        )
    return report_missing(name, f"{line}: {last_error(answer.err) or answer.problem}", _START_BY_HAND, needed=True)
