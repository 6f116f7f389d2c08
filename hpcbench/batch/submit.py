"""From a study and a site to a submission on disk, whole or not at all."""

import contextlib
import fnmatch
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import __version__
from hpcbench.batch.duration import Duration
from hpcbench.batch.files import now, write_json
from hpcbench.batch.launchers import launch_line, program_name
from hpcbench.batch.render import Job, render
from hpcbench.batch.scheduler import get_scheduler
from hpcbench.batch.shape import shape
from hpcbench.batch.site import Site, load_site
from hpcbench.errors import UserError
from hpcbench.study.expand import Run, expand
from hpcbench.study.load import Loaded, load_study
from hpcbench.study.presets import suggestion
from hpcbench.study.run import run_file
from hpcbench.study.yaml12 import shown, shown_path


@dataclass(frozen=True)
class Submission:
    """What lies on disk, and what became of it."""

    root: Path
    jobs: list[Job]
    site: Site
    notes: list[str]
    """What the user should know, one line each."""


def submit(
    study: Path,
    *,
    site: str | None = None,
    dry_run: bool = False,
    out: Path | None = None,
    sets: list[str] | None = None,
    only: str | None = None,
) -> Submission:
    """Write a submission and hand its jobs to the scheduler.

    Parameters
    ----------
    site
        Name or file; the study's own by default.
    dry_run
        Write the scripts, start nothing.
    out
        Directory in which the numbered directory is made; ``results/<study>`` by default.
    sets
        ``a.b=value`` each, over what the study says.
    only
        Which runs: see `choose`.

    Raises
    ------
    UserError
        Something is wrong with study, site or options, or the scheduler takes no jobs from here. Nothing is left on disk
        but, in the last case, the scripts.
    """
    loaded = load_study(study, sets)
    name = site or loaded.study.site
    if name is None:
        raise UserError(f"{loaded.document.name}: site: is missing: add it, or give --site")
    machine, _ = load_site(name, "--site" if site else loaded.document.where(("site",)))
    runs = expand(loaded, machine.room)
    if not dry_run:
        _check_data(runs, study.parent)
    if only is not None:
        runs = choose(runs, only)
    jobs, notes = plan(runs, loaded, machine, dry_run=dry_run)
    base = out if out is not None else Path(machine.work or ".") / "results" / loaded.study.study
    with _numbered(base / "dry-run" if dry_run and out is None else base) as root:
        _write(root, runs, jobs, loaded, machine, base=study.parent, dry_run=dry_run)
    if not dry_run:
        notes.append(get_scheduler(machine.scheduler.kind).submit(root, [job.id for job in jobs]))
    return Submission(root, jobs, machine, notes)


def choose(runs: list[Run], only: str) -> list[Run]:
    """The runs that an expression names.

    Parameters
    ----------
    only
        Comma-separated parts, all of which must hold: ``key=value`` for ``scheme``, ``repeat`` or a key of the matrix,
        the value a pattern with ``*`` and ``?``; a part without ``=`` is a pattern on the run's id.

    Raises
    ------
    UserError
        A key is unknown, or no run is left.
    """
    kept = runs
    for part in only.split(","):
        key, equals, pattern = (word.strip() for word in part.partition("="))
        if not equals:
            kept = [run for run in kept if fnmatch.fnmatchcase(run.id, key)]
            continue
        known = ["scheme", "repeat", *runs[0].cell]
        if key not in known:
            raise UserError(f"--only {shown(part)}: unknown key{suggestion(key, known)}: known are {', '.join(known)}")
        kept = [run for run in kept if fnmatch.fnmatchcase(_text(run, key), pattern)]
    if not kept:
        raise UserError(f"--only {shown(only)}: names no run: ids are such as {runs[0].id}")
    return kept


def _text(run: Run, key: str) -> str:
    value = {"scheme": run.scheme_name, "repeat": run.repeat, **run.cell}[key]
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_data(runs: list[Run], base: Path) -> None:
    for run in runs:
        path = run.study.data.path
        if path is not None and not (base / path).is_file():
            raise UserError(f"{run.where(('data', 'path'))}: data.path: {shown_path(base / path)} is no file: check the path")


def plan(runs: list[Run], loaded: Loaded, site: Site, *, dry_run: bool) -> tuple[list[Job], list[str]]:
    """The jobs that hold the runs, checked against nodes and queues, and notes for the user.

    Raises
    ------
    UserError
        The ranks do not fit a node, a queue does not allow the job, or there is no interpreter or launcher.
    """
    python, program = _programs(site, dry_run=dry_run)
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        shared = loaded.study.pairing == "allocation"
        key = (run.repeat, *((k, str(v)) for k, v in run.cell.items())) if shared else (run.id,)
        groups.setdefault(key, []).append(run)
    jobs = []
    for number, group in enumerate(groups.values(), 1):
        first = group[0]
        try:
            placed = shape(site, nodes=first.size.nodes, ranks_per_node=first.size.ranks_per_node)
            launch = launch_line(placed, site, program)
        except ValueError as error:
            raise UserError(f"{first.where(('layout',))}: layout: {error}: change layout or ranks_per_node") from None
        walltime, queue = _limits(first, site)
        ids = [run.id for run in group]
        name = f"j{number:04d}-r{first.repeat}"
        jobs.append(Job(name, ids, placed, launch, python, walltime, queue, loaded.study.account))
    notes = [f"{site.site} is retired: {site.retired}"] if site.retired else []
    if site.scheduler.account_option and loaded.study.account is None:
        notes.append(f"no account: where {site.site} wants one, add `account:` to the study, or --set account=NAME")
    return jobs, notes


def _programs(site: Site, *, dry_run: bool) -> tuple[str, str | None]:
    """The interpreter of the ranks, and the launcher's path where this machine is the one that runs it."""
    if site.scheduler.kind != "local":
        return site.python, None
    python = sys.executable if site.python == "auto" else site.python
    if site.launcher.program is not None:
        return python, None
    name = program_name(site.launcher.kind)
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None and not dry_run:
        raise UserError(
            f"{site.site}: no {name} beside {shown_path(sys.executable)} nor on PATH: install an MPI "
            "(`pip install mpich` brings one), or name it as launcher.program in a site file"
        )
    return python, found


def _limits(run: Run, site: Site) -> tuple[Duration | None, str | None]:
    """Walltime and queue of a job, within what the site allows."""
    study = run.study
    try:
        walltime = Duration.parse(study.walltime or site.walltime) if study.walltime or site.walltime else None  # type: ignore[arg-type]
    except ValueError as error:
        raise UserError(f"{run.where(('walltime',))}: walltime: {error}") from None
    if site.scheduler.kind == "local":
        return walltime, None
    if walltime is None:
        raise UserError(f"{run.where(('walltime',))}: walltime: is missing: {site.site} needs one, such as 2h")
    known = list(site.queues)
    queue = study.queue or (known[0] if known else None)
    if queue is not None and known and queue not in known:
        where = run.where(("queue",))
        near = suggestion(queue, known)
        raise UserError(f"{where}: queue: {site.site} has no {shown(queue)}{near}: known are {', '.join(known)}")
    if queue is None or queue not in site.queues:
        return walltime, queue
    limits = site.queues[queue]
    if limits.max_nodes is not None and run.size.nodes > limits.max_nodes:
        raise UserError(
            f"{run.where(('nodes',))}: nodes: {run.size.nodes} are more than queue {queue} of {site.site} allows, "
            f"{limits.max_nodes}: use fewer, or another queue"
        )
    if limits.max_walltime is not None and walltime > Duration.parse(limits.max_walltime):
        raise UserError(
            f"{run.where(('walltime',))}: walltime: {walltime} is longer than queue {queue} of {site.site} allows, "
            f"{limits.max_walltime}: shorten it, or use another queue"
        )
    return walltime, queue


@contextlib.contextmanager
def _numbered(base: Path) -> Iterator[Path]:
    """A new numbered directory in `base`, absolute; gone again, with what was made for it, if the block fails."""
    base = base.absolute()
    made = [path for path in (base, *base.parents) if not path.exists()]
    if not base.parent.is_dir() and base.parent.exists() or base.exists() and not base.is_dir():
        raise UserError(f"{shown_path(base)}: is no directory: give another --out")
    root = None
    try:
        base.mkdir(parents=True, exist_ok=True)
        number = max((int(p.name) for p in base.iterdir() if p.name.isdigit()), default=0) + 1
        while root is None:
            with contextlib.suppress(FileExistsError):
                (base / f"{number:03d}").mkdir()
                root = base / f"{number:03d}"
            number += 1
        yield root
    except BaseException:
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def _write(
    root: Path, runs: list[Run], jobs: list[Job], loaded: Loaded, site: Site, *, base: Path, dry_run: bool
) -> None:
    study = loaded.study
    (root / "study.yaml").write_bytes(loaded.document.text)
    if loaded.sets:
        write_json(root / "study.set.json", loaded.sets)
    by_id = {run.id: run for run in runs}
    job_of = {run: job for job in jobs for run in job.runs}
    for job in jobs:
        directory = root / "jobs" / job.id
        directory.mkdir(parents=True)
        try:
            script = render(job, site=site, study=study.study, root=str(root))
        except ValueError as error:
            raise UserError(f"{site.site}: {error}") from None
        (directory / "job.sh").write_text(script, encoding="utf-8")
        for name in job.runs:
            (root / "runs" / name).mkdir(parents=True)
            data = run_file(
                by_id[name],
                site=site.site,
                threads=job.shape.threads,
                oversubscribe=site.oversubscribe,
                device=site.device,
                base=base,
            )
            write_json(root / "runs" / name / "run.json", data)
    write_json(
        root / "submission.json",
        {
            "schema": 1,
            "version": __version__,
            "study": study.study,
            "site": site.site,
            "scheduler": site.scheduler.kind,
            "time": now(),
            "dry_run": dry_run,
            "baseline": study.baseline.model_dump(),
            "criteria": study.criteria.model_dump(),
            "steps": study.train.steps,
            "repeats": study.repeats,
            "jobs": [{"id": job.id, "script": f"jobs/{job.id}/job.sh", "runs": job.runs} for job in jobs],
            "runs": [
                {
                    "id": run.id,
                    "job": job_of[run.id].id,
                    "repeat": run.repeat,
                    "pairing": run.pairing,
                    "cell": run.cell,
                    "scheme": run.scheme_name,
                    "path": f"runs/{run.id}",
                }
                for run in runs
            ],
        },
    )
