"""From a study and a site to jobs in a queue; the same command again goes on where it was cut off."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import __version__
from hpcbench.batch.files import exists
from hpcbench.batch.parcels import bundle
from hpcbench.batch.plan import choose, plan
from hpcbench.batch.schedulers.scheduler import scheduler_class
from hpcbench.batch.scripts.render import Job
from hpcbench.batch.sites.site import Site, load_site
from hpcbench.batch.tracking.lock import locked
from hpcbench.batch.write import numbered, write
from hpcbench.errors import UserError
from hpcbench.study.expand import Run, expand
from hpcbench.study.load import Loaded, load_study
from hpcbench.study.yaml12 import Path_, shown_path


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
    after: str | None = None,
    after_any: bool = False,
    again: bool = False,
    progress: Callable[[int, int], None] = lambda done, all: None,
    check: Callable[[list[Run], Site, Path], None] = lambda runs, site, base: None,
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
    after, after_any
        What must have ended before, and whether it may have failed; the study's own by default.
    again
        Submit anew what is in a queue already.
    progress
        Told how many parcels of how many are handed in.
    check
        Raises where a run cannot work on the site: given the runs, the site and what relative paths start from.

    Raises
    ------
    UserError
        Something is wrong with study, site or options, or the scheduler takes no jobs. Nothing is left on disk, unless
        some of the jobs were taken.
    """
    loaded = load_study(study, sets)
    name = site or loaded.study.site
    if name is None:
        raise UserError(f"{loaded.document.name}: site: is missing: add it, or give --site")
    machine, site_document = load_site(name, "--site" if site else loaded.document.where(("site",)))
    runs = expand(loaded, machine.room, machine.offer)
    if not dry_run:
        _check_files(runs, study.parent)
        scheduler_class(machine.scheduler.kind).check(machine)
    if only is not None:
        runs = choose(runs, only)
    check(runs, machine, study.parent)
    jobs, notes = plan(runs, loaded, machine, dry_run=dry_run)
    base = out if out is not None else Path(machine.work or ".") / "results" / loaded.study.study
    before = None
    if (wanted := after or loaded.study.after) is not None and not dry_run:
        from hpcbench.batch.after import find_before

        where = "--after" if after else loaded.document.where(("after",))
        before = find_before(wanted, site=machine.site, results=base.parent, where=where, any_end=after_any)
        notes.append(f"begins after {before.root}" + ("" if before.ids else ", which is over"))
    base = base / "dry-run" if dry_run and out is None else base
    digest = _digest(loaded, site_document.text, only)
    with _existing(base) as directory, locked(directory):
        if not dry_run:
            from hpcbench.batch.hand_over import find_open, go_on, hand_over

            found = None if again else find_open(directory, digest)
            if found is not None:
                return Submission(found, jobs, machine, [*notes, go_on(found, study, before, after_any, progress)])
        with numbered(directory) as root:
            more = {"dry_run": dry_run, "digest": digest}
            write(root, runs, jobs, bundle(jobs, machine), loaded, machine, base=study.parent, more=more)
            if not dry_run:
                notes.append(hand_over(root, study, before, after_any, progress))
    return Submission(root, jobs, machine, [note for note in notes if note])


def _digest(loaded: Loaded, site: bytes, only: str | None) -> str:
    """Of all that decides on the jobs."""
    parts: list[Any] = [__version__, loaded.document.text.hex(), loaded.sets, site.hex(), only]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _check_files(runs: list[Run], base: Path) -> None:
    """Whether what the ranks will read is there."""
    for run in runs:
        data = run.study.data
        pair = (data.path or "").removesuffix(".bin").removesuffix(".idx")
        named: list[tuple[Path_, str | None]] = [(("data", "path"), data.path)]
        if data.source == "megatron":
            named = [(("data", "path"), pair + suffix) for suffix in (".bin", ".idx")]
        for place, name in (*named, (("data", "tokenizer"), data.tokenizer), (("links",), run.study.links)):
            if name is not None and not (exists(base / name) and (base / name).is_file()):
                field = ".".join(map(str, place))
                raise UserError(f"{run.where(place)}: {field}: {shown_path(base / name)} is no file: check the path")


@contextlib.contextmanager
def _existing(base: Path) -> Iterator[Path]:
    """The directory, absolute and made where it was missing; what was made for it goes again if the block fails."""
    base = base.absolute()
    made = [path for path in (base, *base.parents) if not path.exists()]
    try:
        base.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{shown_path(base)}: is no directory: give another --out") from None
    try:
        yield base
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise
