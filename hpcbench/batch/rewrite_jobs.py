"""Regeneration of job scripts from the current site file or with new limits."""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench.batch.files import write_json
from hpcbench.batch.plan_jobs import plan
from hpcbench.batch.schedulers.open_scheduler import open_site
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.scripts.render import render
from hpcbench.batch.sites.load_site import load_site, offer
from hpcbench.batch.sites.site import Site
from hpcbench.contract.problems import show
from hpcbench.contract.submission import FILE, SubmissionFile
from hpcbench.errors import UserError
from hpcbench.files import read_json, shown_path
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study

_LIMITS = ("walltime", "stop_ahead", "run_limit", "queue", "account", "notify")
"""Study fields that affect a job but not its runs."""
_OF_RUNS = (
    "site",
    "node",
    "device",
    "gpu_aware_mpi",
    "transport",
    "oversubscribe",
    "threads",
    "ranks_per_node",
    "schemes",
)
"""Site fields that affect the runs themselves."""
_IGNORED_FIELDS = ("description", "network", "retired", "sources", "checked", "work")


def check_sets(sets: Sequence[str]) -> None:
    """Refuse settings that would change the retried runs."""
    for text in sets:
        if text.partition("=")[0] not in _LIMITS:
            raise UserError(
                f"--set {show(text)}: retry repeats the same runs and can change only {', '.join(_LIMITS)}: submit the "
                "study with this setting"
            )


def changed_fields(root: Path, submission: SubmissionFile) -> dict[str, str]:
    """Return site file changes since the submission was written, keyed by dotted path of the field.

    Raises
    ------
    UserError
        The site file is now invalid.
    """
    if submission.site_file is None or not Path(submission.site_file).is_file():
        return {}
    then, now = _flat(open_site(root)), _flat(load_site(submission.site_file)[0])
    fields = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return {name: f"{_format(then.get(name))} -> {_format(now.get(name))}" for name in fields}


def rewrite_jobs(
    root: Path, submission: SubmissionFile, jobs: Collection[str], sets: Sequence[str], *, updates_site: bool
) -> None:
    """Regenerate the scripts of these jobs. Keep the old scripts as ``job.N.sh``.

    Parameters
    ----------
    sets
        Job limits, as accepted by `check_sets`.
    updates_site
        Whether to use the current site file instead of the submission's copy.

    Raises
    ------
    UserError
        The current site file would change the runs, or the study cannot be planned on the site.
    """
    site = _new_site(root, submission) if updates_site else open_site(root)
    planned = _plan(root, submission, site, sets)
    stored = {job.id: job for job in submission.jobs if job.id in jobs}
    scripts: dict[str, tuple[Job, str]] = {}
    for id, old in stored.items():
        job = next((job for job in planned if set(old.runs) <= set(job.runs)), None)
        if job is None:
            raise UserError(f"{root}: the study no longer contains the runs of job {id}: submit the study with --again")
        job = replace(job, id=id, runs=list(old.runs))
        try:
            scripts[id] = job, render(job, site=site, study=submission.study, root=str(root))
        except ValueError as error:
            raise UserError(f"{site.site}: {error}") from None
    for id, (_, text) in scripts.items():
        _replace(root / "jobs" / id / "job.sh", text)
    if updates_site:
        write_json(root / "site.json", site.model_dump(mode="json"))
    data = read_json(root / FILE) or {}
    for entry in data["jobs"]:
        if entry["id"] in scripts:
            job = scripts[entry["id"]][0]
            entry["walltime"] = job.walltime.seconds if job.walltime else None
            entry["stop_ahead"] = job.stop_ahead.seconds
    write_json(root / FILE, data)


def _new_site(root: Path, submission: SubmissionFile) -> Site:
    if submission.site_file is None:
        raise UserError(f"{root}: submission.json does not name a site file: submit the study with --again")
    changed = changed_fields(root, submission)
    others = [name for name in changed if name.partition(".")[0] in _OF_RUNS or name == "launcher.visibility"]
    if others:
        raise UserError(
            f"{shown_path(submission.site_file)}: {', '.join(others)} changed, which changes the runs: "
            "submit the study with --again"
        )
    return load_site(submission.site_file)[0]


def _plan(root: Path, submission: SubmissionFile, site: Site, sets: Sequence[str]) -> list[Job]:
    """Plan the submitted study with new limits."""
    copy, original = root / "study.yaml", Path(submission.study_file or "")
    # Relative paths in the study start at the original study file.
    is_same = original.is_file() and original.read_bytes() == copy.read_bytes()
    before: Any = []
    if (root / "study.set.json").is_file():
        before = json.loads((root / "study.set.json").read_text(encoding="utf-8"))
    loaded = load_study(original if is_same else copy, [*before, *sets])
    repeats = submission.repeats or loaded.study.repeats  # `submit --more` may have added runs
    loaded = replace(loaded, study=loaded.study.model_copy(update={"repeats": repeats}))
    return plan(expand(loaded, site.capacity, offer(site)), loaded, site, dry_run=False)[0]


def _replace(path: Path, text: str) -> None:
    number = 1
    while path.with_name(f"job.{number}.sh").exists():
        number += 1
    path.rename(path.with_name(f"job.{number}.sh"))
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _flat(site: Site) -> dict[str, object]:
    """Return the values of a site's fields, keyed by dotted path, with at most two levels."""
    fields: dict[str, object] = {}
    for name, value in site.model_dump(mode="json", exclude=set(_IGNORED_FIELDS)).items():
        nested = isinstance(value, dict) and name != "schemes"
        fields.update({f"{name}.{key}": each for key, each in value.items()} if nested else {name: value})
    return fields


def _format(value: object) -> str:
    return "nothing" if value is None else json.dumps(value)
