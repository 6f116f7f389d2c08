"""From a study and a site to a submission on disk, whole or not at all."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench import __version__
from hpcbench.batch.byhand import get_scheduler
from hpcbench.batch.files import now, write_json
from hpcbench.batch.plan import choose, plan
from hpcbench.batch.render import Job, render
from hpcbench.batch.site import Site, load_site
from hpcbench.errors import UserError
from hpcbench.study.expand import Run, expand
from hpcbench.study.load import Loaded, load_study
from hpcbench.study.run import run_file
from hpcbench.study.yaml12 import shown_path


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
        Something is wrong with study, site or options, or the scheduler takes no jobs from here. Nothing is left on
        disk but, in the last case, the scripts.
    """
    loaded = load_study(study, sets)
    name = site or loaded.study.site
    if name is None:
        raise UserError(f"{loaded.document.name}: site: is missing: add it, or give --site")
    machine, _ = load_site(name, "--site" if site else loaded.document.where(("site",)))
    runs = expand(loaded, machine.room, machine.offer)
    if not dry_run:
        _check_data(runs, study.parent)
        get_scheduler(machine.scheduler.kind).check()
    if only is not None:
        runs = choose(runs, only)
    jobs, notes = plan(runs, loaded, machine, dry_run=dry_run)
    base = out if out is not None else Path(machine.work or ".") / "results" / loaded.study.study
    with _numbered(base / "dry-run" if dry_run and out is None else base) as root:
        _write(root, runs, jobs, loaded, machine, base=study.parent, dry_run=dry_run)
    if not dry_run:
        notes.append(get_scheduler(machine.scheduler.kind).submit(root, [job.id for job in jobs]))
    return Submission(root, jobs, machine, notes)


def _check_data(runs: list[Run], base: Path) -> None:
    for run in runs:
        path = run.study.data.path
        if path is not None and not (base / path).is_file():
            raise UserError(
                f"{run.where(('data', 'path'))}: data.path: {shown_path(base / path)} is no file: check the path"
            )


@contextlib.contextmanager
def _numbered(base: Path) -> Iterator[Path]:
    """A new numbered directory in `base`, absolute; gone again, with what was made for it, if the block fails."""
    base = base.absolute()
    made = [path for path in (base, *base.parents) if not path.exists()]
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
    except BaseException as error:
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise UserError(f"{shown_path(base)}: is no directory: give another --out") from None
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
