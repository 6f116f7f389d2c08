"""Planning of jobs: shared allocations, launch commands, and limits."""

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from hpcbench.batch.device_notes import list_device_notes
from hpcbench.batch.match_runs import matching
from hpcbench.batch.scripts.containers import check
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.scripts.launchers import program_name, solve
from hpcbench.batch.scripts.refused import lost
from hpcbench.batch.sites.find_launcher import find_sibling
from hpcbench.batch.sites.limits import check_number, limits
from hpcbench.batch.sites.site import Site
from hpcbench.contract.expert_fit import describe_expert_placement
from hpcbench.contract.grid_fit import describe_placement
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.study.container import Container, merge_containers
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.load import Loaded
from hpcbench.study.schema import ProgramStudy, SchemeEntry, Study
from hpcbench.study.settle import idle_rules
from hpcbench.study.systems import read_systems


def choose(runs: list[ExpandedRun], only: str) -> list[ExpandedRun]:
    """Return the runs that match an expression, as defined by `matching`."""
    values = {run.id: {"scheme": run.scheme_name, "repeat": run.repeat, **run.cell} for run in runs}
    ids = matching(values, only)
    return [run for run in runs if run.id in ids]


def plan(
    runs: list[ExpandedRun], loaded: Loaded, site: Site, *, dry_run: bool, first: int = 1
) -> tuple[list[Job], list[str]]:
    """Group runs into jobs, and check that each job fits the site's nodes and queues.

    Return the jobs, and notes for the user.

    Parameters
    ----------
    dry_run
        Whether programs may be missing on this machine.
    first
        Number of the first job.

    Raises
    ------
    UserError
        The ranks do not fit on a node, the queue does not allow the job, or the interpreter or launcher is missing.
    """
    _check_notify(loaded, site)
    python, program = _programs(site, dry_run=dry_run)
    container = _container(loaded, site, dry_run=dry_run)
    clear = sorted({name for run in runs for name in run.scheme.environment})
    groups: dict[tuple[Any, ...], list[ExpandedRun]] = {}
    for run in runs:
        shared = loaded.study.pairing == "allocation"
        key = (run.repeat, *((k, str(v)) for k, v in run.cell.items())) if shared else (run.id,)
        groups.setdefault(key, []).append(run)
    jobs = []
    for number, group in enumerate(groups.values(), first):
        example = group[0]
        size = example.size
        try:
            describe_placement, launch = solve(
                site, nodes=size.nodes, ranks_per_node=size.ranks_per_node, program=program
            )
            once = isinstance(example.study, ProgramStudy) and example.study.program.start == "node"
            if once:
                launch = _once_a_node(site, container, nodes=size.nodes, program=program)
        except ValueError as error:
            raise UserError(f"{example.where(('layout',))}: layout: {error}: change layout or ranks_per_node") from None
        allowed = limits(example, site)
        ids = [run.id for run in group]
        name = f"j{number:04d}-r{example.repeat}"
        # A program's ranks set the variables themselves, so that neither the launcher nor its daemons see them.
        engine = not isinstance(example.study, ProgramStudy)
        environments = {run.id: run.scheme.environment for run in group if engine and run.scheme.environment}
        jobs.append(
            Job(
                name,
                ids,
                describe_placement,
                launch,
                container.python if container else python,
                allowed.walltime,
                allowed.queue,
                loaded.study.account,
                environments,
                clear,
                run_limit=allowed.run_limit,
                requeue=loaded.study.requeue,
                stop_ahead=allowed.stop_ahead,
                container=container,
                notify=loaded.study.notify,
                reads=_reads(group, loaded) if container else (),
                program=isinstance(example.study, ProgramStudy),
                outside=python if container else "",
                once_a_node=once,
                prepared=[run.id for run in group if engine and (run.scheme.setup or run.scheme.preload)],
            )
        )
    check_number([job.queue for job in jobs], loaded, site)
    notes = [f"{site.site} is retired: {site.retired}"] if site.retired else []
    if not site.retired and site.checked == "never" and site.scheduler.kind != "local":
        notes.append(
            f"the site file of {site.site} was never tested on the machine: read a job script before you submit the "
            "study"
        )
    if site.scheduler.account_option and loaded.study.account is None:
        notes.append(
            f"no account is set: if {site.site} requires an account, add `account:` to the study, or use --set "
            "account=NAME"
        )
    notes += lost(jobs[0], site) if jobs else []
    if container:
        notes.append(
            f"ranks run in {container.image} ({container.kind}), with the image's own hpcbench and "
            f"{_MPI[container.mpi]}"
        )
    notes += dict.fromkeys(run.clash for run in runs if run.clash)
    changes = {run.scheme_name: run.scheme.process_changes for run in runs if run.scheme.process_changes}
    notes += [f"runs of {name} are started with {change}" for name, change in changes.items()]
    notes += _system_notes(runs)
    if isinstance(loaded.study, ProgramStudy) and len({run.scheme_name for run in runs}) == 1:
        notes.append(
            "no scheme is compared with the baseline: to compare arguments or variables of the program, write them as "
            "`arguments` or `environment` of schemes"
        )
    return jobs, notes + list_device_notes(runs, site) + grid_notes(runs) + idle_notes(runs)


def _system_notes(runs: list[ExpandedRun]) -> list[str]:
    """List the requirements of other compression systems, and the libraries missing on this machine."""
    notes = []
    for name, scheme in {run.scheme_name: run.scheme for run in runs}.items():
        if isinstance(scheme, SchemeEntry) and scheme.system is not None:
            preset = read_systems()[scheme.system]
            notes.append(f"{name} is {preset.title}; it needs {preset.needs} (checked: {preset.checked})")
        if scheme.preload and Path(scheme.preload).is_absolute() and not Path(scheme.preload).exists():
            notes.append(
                f"preload of {name}: {scheme.preload} does not exist on this machine; each rank searches for this file "
                "on its node"
            )
    return notes


def _once_a_node(site: Site, container: Container | None, *, nodes: int, program: str | None) -> list[str]:
    """Return a launch command that starts one process per node.

    Raises
    ------
    ValueError
        The site's launcher always starts all ranks of the job.
    """
    part = container is not None and container.kind == "pyxis"  # the launcher creates the container
    launch_host = site.launcher.kind in ("jsrun", "lrun") or (
        site.scheduler.kind == "lsf" and site.scheduler.allocation == "nodes"
    )
    if nodes == 1 and not part and not launch_host:
        return ["env"]  # The job script runs on this node, except on IBM machines with a separate launch host.
    if site.launcher.kind == "ibrun":
        raise ValueError("ibrun always starts all ranks of the job: set program.start to rank")
    _, launch = solve(site, nodes=nodes, ranks_per_node=1, program=program)
    return launch


_MPI = {"hybrid": "MPI library", "bind": "the host's MPI library"}


def _container(loaded: Loaded, site: Site, *, dry_run: bool) -> Container | None:
    """Return the container in which the ranks run."""
    section = loaded.study.container
    container = merge_containers(site.container, section)
    if container is None:
        if section is not None:
            where = loaded.document.where(("container",))
            raise UserError(
                f"{where}: container.image: is set neither in the study nor in site {site.site}: set it in one of the "
                "two"
            )
        return None
    where = loaded.document.where(("container",)) if section is not None else f"site {site.site}"
    try:
        check(container, site)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if section is not None and section.mpi_paths and container.mpi != "bind":
        raise UserError(
            f"{loaded.document.where(('container', 'mpi_paths'))}: container.mpi_paths: container.mpi {container.mpi} "
            "uses the image's MPI library, without these paths: leave them out, or set container.mpi to bind"
        )
    image = str(container.image)
    if image.startswith("/") and not dry_run and not Path(image).exists():
        raise UserError(f"{where}: container.image: {shown_path(image)} does not exist: build it, or check the path")
    return container


def _reads(runs: list[ExpandedRun], loaded: Loaded) -> list[str]:
    """Return the files outside the submission directory that ranks read."""
    base = Path(loaded.document.name).absolute().parent
    programs = [run.study.program for run in runs if isinstance(run.study, ProgramStudy)]
    if programs:  # A program's files are unknown, so bind its working directory.
        return list(dict.fromkeys(f"{(base / (program.directory or '.')).resolve()}/." for program in programs))
    studies = [run.study for run in runs if isinstance(run.study, Study)]
    named = [name for study in studies for name in (study.data.path, study.data.tokenizer, study.links) if name]
    return list(dict.fromkeys(str(base / name) for name in named))


def grid_notes(runs: list[ExpandedRun]) -> list[str]:
    """Describe the node placement of tensor grids and expert groups, one line each."""
    notes = []
    for size in (run.size for run in runs):
        layout, each = size.layout, size.ranks_per_node
        if layout.tensor != "1d" and layout.tp > 1:
            notes.append(describe_placement(layout.grid, each))
        if layout.ep > 1:
            sizes = {"ep": layout.ep, "tp": layout.tp, "cp": layout.cp}
            notes.append(describe_expert_placement(**sizes, ranks=layout.ranks, ranks_per_node=each))
    return list(dict.fromkeys(notes))


def idle_notes(runs: list[ExpandedRun]) -> list[str]:
    """List the rules that match no traffic. If none of a scheme's rules match, the scheme only applies its default."""
    of_scheme = Counter(run.scheme_name for run in runs)
    idle = Counter((run.scheme_name, rule) for run in runs for rule in idle_rules(run.study, run.scheme, run.size))
    return [
        f"scheme {name}: {rule}" + (f", in {count} of {of_scheme[name]} runs" if count < of_scheme[name] else "")
        for (name, rule), count in idle.items()
    ]


_MAIL = {"slurm": ("--mail-user", "--mail-type"), "lsf": ("-u", "-N")}
"""Options that make schedulers send mail at the end of a job."""


def _check_notify(loaded: Loaded, site: Site) -> None:
    """Refuse a mail address if the site's scheduler would not send mail to it."""
    kind = site.scheduler.kind
    if loaded.study.notify is None:
        return
    refused = [option for option in _MAIL.get(kind, ()) if option in site.scheduler.refuses]
    if kind not in _MAIL:
        why = {"local": "jobs on the local machine send no mail"}.get(kind, f"{kind} sends no mail")
    elif refused:
        why = f"{site.site} refuses the option {refused[0]} (scheduler.refuses)"
    else:
        return
    raise UserError(f"{loaded.document.where(('notify',))}: notify: {why}: remove it")


def _programs(site: Site, *, dry_run: bool) -> tuple[str, str | None]:
    """Return the ranks' interpreter and, if this machine runs the ranks, the launcher's path."""
    if site.scheduler.kind != "local":
        return site.python, None
    python = sys.executable if site.python == "auto" else site.python
    name = site.launcher.program or program_name(site.launcher.kind)
    if "/" in name:
        return python, None
    program = find_sibling(name) or shutil.which(name)
    if program is None and not dry_run and site.launcher.program:
        raise UserError(
            f"{site.site}: {name} is neither next to {shown_path(sys.executable)} nor on PATH: correct "
            f"launcher.program in the site file, or install a package that contains {name}"
        )
    if program is None and not dry_run:
        raise UserError(
            f"{site.site}: {name} is neither next to {shown_path(sys.executable)} nor on PATH: install an MPI library "
            "(such as `pip install mpich`), or name the launcher as launcher.program in a site file"
        )
    return python, program
