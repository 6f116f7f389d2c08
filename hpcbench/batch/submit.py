"""Submission of a study to a site's scheduler. The same command resumes an interrupted submission."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench import __version__
from hpcbench.batch.batch_job import batch_jobs
from hpcbench.batch.find_submission import remember
from hpcbench.batch.plan_jobs import choose, plan
from hpcbench.batch.schedulers.clean_environment import settings_left_out
from hpcbench.batch.schedulers.scheduler import scheduler_class
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.batch.sites.site import Site
from hpcbench.batch.study_files import check_files
from hpcbench.batch.tracking.lock import locked
from hpcbench.batch.write_submission import number_directory, write_submission
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import Loaded, load_study

if TYPE_CHECKING:
    from hpcbench.batch.after import After
    from hpcbench.batch.submit_jobs import Progress


@dataclass(frozen=True)
class SubmitResult:
    """Result of `submit`: the submission directory, runs, and jobs."""

    root: Path
    runs: list[ExpandedRun]
    jobs: list[Job]
    site: Site
    notes: list[str]
    """Notes for the user, one line each."""


@dataclass(frozen=True)
class Options:
    """Options of `hpcbench submit`."""

    site: str | None = None
    """Name or file of the site. The default is the study's site."""
    dry_run: bool = False
    """Whether to write the job scripts without submitting them."""
    check: bool = False
    """Whether a dry run also checks files, images, and scheduler limits, as a submission does."""
    out: Path | None = None
    """Parent of the numbered submission directory. The default is ``results/<study>``."""
    sets: list[str] | None = None
    """Settings ``a.b=value`` that override the study's settings."""
    only: str | None = None
    """Expression that selects runs, as in `choose`."""
    after: str | None = None
    """Submission that must end before the jobs start. The default is the study's ``after``."""
    after_any: bool = False
    """Whether the submission named by ``after`` may fail."""
    again: bool = False
    """Whether to submit a study that is already in a queue."""
    more: int | None = None
    """Number of repeats to add to the study's newest submission. None creates a new submission."""


def submit(
    study: Path,
    options: Options,
    progress: "Progress" = lambda done, all: None,
    check: Callable[[list[ExpandedRun], Site, Path], None] = lambda runs, site, base: None,
) -> SubmitResult:
    """Write a submission and submit its jobs.

    Parameters
    ----------
    progress
        Callback ``progress(submitted, total)``, called with the numbers of jobs after each submission.
    check
        Callback ``check(runs, site, base)`` that raises an error if a run is not possible on the site. Relative paths
        are relative to ``base``.

    Raises
    ------
    UserError
        The study, the site or an option is invalid, or the scheduler refuses the jobs. The new directory is removed
        unless some jobs were submitted.
    """
    loaded = load_study(study, options.sets)
    name = options.site or loaded.study.site
    if name is None:
        raise UserError(f"{loaded.document.name}: no site is set: add `site:` to the study, or use --site")
    site, site_document = load_site(name, "--site" if options.site else loaded.document.where(("site",)))
    if options.more is not None:
        return _add(study, options, loaded, site, _digest(loaded, site_document.text, options.only), check, progress)
    runs = expand(loaded, site.capacity, offer(site))
    asks = options.check or not options.dry_run
    refusal = _refusal(runs, study.parent)
    if asks and refusal:
        raise refusal
    if asks:
        scheduler_class(site.scheduler.kind).check(site)
    if options.only is not None:
        runs = choose(runs, options.only)
    check(runs, site, study.parent)
    jobs, notes = plan(runs, loaded, site, dry_run=not asks)
    if refusal:  # files may exist only on the site's machine
        notes.append(f"submit would refuse this study here: {refusal}")
    left_out = settings_left_out(os.environ, site.environment) if site.scheduler.kind != "local" else []
    if left_out:
        notes.append(
            f"{', '.join(left_out)}: set only in this shell. If jobs need these variables, add them under "
            "`environment:` in the site file"
        )
    base = _base(options, loaded, site)
    after = None if options.dry_run else _after(options, loaded, site, base.parent)
    if options.dry_run and (missing := _missing_after(options, loaded, base.parent)):
        notes.append(f"submit would refuse this study here: {missing}")
    if after is not None:
        notes.append(f"starts after {after.root}" + ("" if after.ids else ", which is over"))
        if after.ids and not after.any_end and site.scheduler.kind == "lsf" and "-ti" in site.scheduler.refuses:
            name = after.root.parent.name
            notes.append(f"{site.site} refuses -ti: if {name} fails, the jobs wait until you cancel them")
    if not (options.dry_run or site.retired or site.scheduler.kind == "local" or site.checked != "never"):
        from hpcbench.batch.sites.met_ranks import have_met

        if not have_met(site, base.parent):
            notes.append(
                f"communication between ranks was never tested on {site.site}: test the launcher with `hpcbench doctor "
                f"--site {name} --run`"
            )
    base = base / "dry-run" if options.dry_run and options.out is None else base
    more = {"dry_run": options.dry_run, "digest": _digest(loaded, site_document.text, options.only)}
    more |= {"site_file": str(Path(site_document.name).absolute()), "study_file": str(study.absolute())}
    with _existing(base) as directory, locked(directory):
        if not options.dry_run and not options.again:
            from hpcbench.batch.resume import find_unfinished, resume

            unfinished = find_unfinished(directory, str(more["digest"]))
            if unfinished is not None:
                note = resume(unfinished, study, after, progress)
                return SubmitResult(unfinished, runs, jobs, site, [*notes, note])
        with number_directory(directory) as root:
            units = batch_jobs(jobs, site)
            queue_name = write_submission(
                root, runs, jobs, units, loaded, site, base=study.parent, more=more, waits=after is not None
            )
            scheduler = scheduler_class(site.scheduler.kind)(root, site)
            if options.dry_run and options.check:
                notes += scheduler.preflight(units, loaded.study.account)
            if not options.dry_run:
                from hpcbench.batch.record_provenance import keep
                from hpcbench.batch.room import check_room
                from hpcbench.batch.submit_jobs import submit_jobs
                from hpcbench.batch.tracking.ledger import Ledger

                keep(root, study)
                ledger = Ledger(root)
                notes += scheduler.preflight(units, loaded.study.account)
                notes.append(check_room(root, runs=len(runs), steps=loaded.study.steps))
                notes.append(submit_jobs(scheduler, ledger, units, name=queue_name, after=after, progress=progress))
    if not options.dry_run:
        remember(base)
    return SubmitResult(root, runs, jobs, site, [note for note in notes if note])


def _base(options: Options, loaded: Loaded, site: Site) -> Path:
    """Return the parent directory of the study's submissions."""
    return options.out if options.out is not None else Path(site.work or ".") / "results" / loaded.study.study


def _add(
    study: Path,
    options: Options,
    loaded: Loaded,
    site: Site,
    digest: str,
    check: Callable[[list[ExpandedRun], Site, Path], None],
    progress: "Progress",
) -> SubmitResult:
    """Add repeats to the study's newest submission."""
    from hpcbench.batch.add_repeats import add_repeats, find_submitted

    if options.dry_run or options.after:
        other = "--dry-run" if options.dry_run else "--after"
        raise UserError(f"--more: cannot be used with {other}: leave one of them out")
    base = _base(options, loaded, site).absolute()
    if not base.is_dir():
        raise UserError(f"--more: {shown_path(base)} does not exist: submit the study without --more first")

    def check_all(runs: list[ExpandedRun], site: Site, directory: Path) -> None:
        if refusal := _refusal(runs, directory):
            raise refusal
        check(runs, site, directory)

    scheduler_class(site.scheduler.kind).check(site)
    with locked(base):
        root = find_submitted(base, digest)
        runs, jobs, notes = add_repeats(
            root,
            loaded,
            site,
            options.more or 0,
            study=study,
            only=options.only,
            again=options.again,
            check=check_all,
            progress=progress,
        )
    return SubmitResult(root, runs, jobs, site, notes)


def _refusal(runs: list[ExpandedRun], base: Path) -> UserError | None:
    """Return an error if any file that the ranks read is missing or too short."""
    try:
        check_files(runs, base)
    except UserError as error:
        return error
    return None


def _after(options: Options, loaded: Loaded, site: Site, results: Path) -> "After | None":
    """Return the submission for which the jobs wait."""
    wanted = options.after or loaded.study.after
    if wanted is None:
        return None
    from hpcbench.batch.after import find_after

    where = "--after" if options.after else loaded.document.where(("after",))
    return find_after(wanted, site=site.site, results=results, where=where, any_end=options.after_any)


def _missing_after(options: Options, loaded: Loaded, results: Path) -> UserError | None:
    """Return an error if the submission for which the jobs would wait does not exist. The scheduler is not queried."""
    wanted = options.after or loaded.study.after
    if wanted is None:
        return None
    from hpcbench.batch.after import find_named

    try:
        find_named(wanted, results)
    except UserError as error:
        where = "--after" if options.after else f"{loaded.document.where(('after',))}: after"
        return UserError(f"{where}: {error}")
    return None


def _digest(loaded: Loaded, site: bytes, only: str | None) -> str:
    """Return a digest of everything that affects the jobs."""
    parts: list[Any] = [__version__, loaded.document.text.hex(), loaded.sets, site.hex(), only]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@contextlib.contextmanager
def _existing(base: Path) -> Iterator[Path]:
    """Create the directory if needed, and yield its absolute path.

    If the `with` block fails, remove the directory if it was created here.
    """
    base = base.absolute()
    missing = [path for path in (base, *base.parents) if not path.exists()]
    try:
        base.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{shown_path(base)}: is not a directory: choose another directory with --out") from None
    except OSError as error:
        raise UserError(f"{shown_path(base)}: {error.strerror}: choose one of your directories with --out") from None
    if not os.access(base, os.W_OK | os.X_OK):
        raise UserError(f"{shown_path(base)}: is not writable: choose one of your directories with --out")
    try:
        yield base
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise
