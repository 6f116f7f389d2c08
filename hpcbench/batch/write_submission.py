"""Atomic creation of submissions."""

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench import __version__
from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, write_json
from hpcbench.batch.reserve import set_aside
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.scripts.render import RELAY, render, render_array, render_relay
from hpcbench.batch.sites.site import Site
from hpcbench.contract.run import RankShape
from hpcbench.contract.submission import FILE
from hpcbench.errors import UserError
from hpcbench.files import read_json
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.load import Loaded
from hpcbench.study.run import program_file, run_file
from hpcbench.study.schema import ProgramStudy


@contextlib.contextmanager
def number_directory(base: Path) -> Iterator[Path]:
    """Yield the path of the next numbered directory.

    Remove the directory if the `with` block fails before any job is submitted.
    """
    number = max((int(path.name) for path in base.iterdir() if path.name.isdecimal()), default=0) + 1
    root = base / f"{number:03d}"
    try:
        yield root
    except BaseException:
        if not any((root / "handed").glob("*.json")):
            shutil.rmtree(root, ignore_errors=True)
        raise


def write_submission(
    root: Path,
    runs: Sequence[ExpandedRun],
    jobs: Sequence[Job],
    batch_jobs: Sequence[BatchJob],
    loaded: Loaded,
    site: Site,
    *,
    base: Path,
    more: Mapping[str, Any],
    waits: bool = False,
) -> str:
    """Write all files that the jobs need. Return the prefix of the jobs' names in the queue.

    Parameters
    ----------
    root
        Absolute path of the new directory.
    base
        Directory to which the study's paths are relative.
    more
        Additional fields of ``submission.json``.
    waits
        Whether the jobs wait for other jobs, so that relay jobs may be needed.

    Raises
    ------
    UserError
        A value cannot be written into a job script.
    """
    study = loaded.study
    name = f"{study.study[:36]}-{secrets.token_hex(3)}"
    with _growing(root) as directory:
        (directory / "study.yaml").write_bytes(loaded.document.text)
        if loaded.sets:
            write_json(directory / "study.set.json", loaded.sets)
        write_json(directory / "site.json", site.model_dump(mode="json"))
        _write_scripts(directory, jobs, batch_jobs, site, study=study.study, root=str(root))
        if waits and site.scheduler.kind != "local":
            (directory / RELAY).parent.mkdir()
            _write_script(directory / RELAY, render_relay(jobs[0], site=site, study=study.study, root=str(root)))
        _write_runs(directory, runs, jobs, site, base)
        write_json(
            directory / "submission.json",
            {
                "schema": 1,
                "version": __version__,
                "study": study.study,
                "name": name,
                "site": site.site,
                "scheduler": site.scheduler.kind,
                "time": now(),
                "root": str(root),
                **more,
                "baseline": study.baseline.model_dump(),
                "criteria": study.criteria.model_dump(),
                "thresholds": [threshold.model_dump() for threshold in study.thresholds],
                "steps": study.steps,
                **({"program_log": study.program.model_dump()["log"]} if isinstance(study, ProgramStudy) else {}),
                "repeats": study.repeats,
                "requeue": study.requeue,
                **_entries(runs, jobs, batch_jobs),
            },
        )
    return name


@contextlib.contextmanager
def extend(
    root: Path,
    runs: Sequence[ExpandedRun],
    jobs: Sequence[Job],
    batch_jobs: Sequence[BatchJob],
    loaded: Loaded,
    site: Site,
    *,
    base: Path,
) -> Iterator[None]:
    """Add runs and their jobs to a submission.

    If the `with` block fails before any job is submitted, remove the added runs and jobs again. For the parameters, see
    `write_submission`.
    """
    path = root / FILE
    before: dict[str, Any] = read_json(path) or {}
    numbers = set((root / "handed").glob("*.json"))
    entries = _entries(runs, jobs, batch_jobs)
    new = [*(root / "jobs" / job.id for job in jobs), *(root / "runs" / run.id for run in runs)]
    for directory in new:  # left behind by a killed command
        shutil.rmtree(directory, ignore_errors=True)
    try:
        _write_scripts(root, jobs, batch_jobs, site, study=loaded.study.study, root=str(root))
        _write_runs(root, runs, jobs, site, base)
        added = {"time": now(), "jobs": [job.id for job in jobs]}
        after = {key: [*before[key], *entries[key]] for key in entries}
        additions = [*before.get("added", []), added]
        write_json(path, {**before, "repeats": runs[-1].repeat, "added": additions, **after}, durable=True)
        yield
    except BaseException:
        if set((root / "handed").glob("*.json")) == numbers:
            write_json(path, before)
            for directory in new:
                shutil.rmtree(directory, ignore_errors=True)
        raise


def _write_runs(directory: Path, runs: Sequence[ExpandedRun], jobs: Sequence[Job], site: Site, base: Path) -> None:
    job_of = {run: job for job in jobs for run in job.runs}
    for run in runs:
        (directory / "runs" / run.id).mkdir(parents=True)
        write_json(directory / "runs" / run.id / "run.json", _run_file(run, job_of[run.id], site, base))


def _entries(
    runs: Sequence[ExpandedRun], jobs: Sequence[Job], batch_jobs: Sequence[BatchJob]
) -> dict[str, list[dict[str, Any]]]:
    """Return the jobs, bundles, and runs in the format of ``submission.json``."""
    job_of = {run: job.id for job in jobs for run in job.runs}
    return {
        "jobs": [
            {
                "id": job.id,
                "script": f"jobs/{job.id}/job.sh",
                "runs": job.runs,
                "walltime": job.walltime.seconds if job.walltime else None,
                "stop_ahead": job.stop_ahead.seconds,
            }
            for job in jobs
        ],
        "bundles": [
            {"label": unit.name, "script": unit.script, "jobs": unit.jobs, "array": unit.array} for unit in batch_jobs
        ],
        "runs": [
            {
                "id": run.id,
                "job": job_of[run.id],
                "repeat": run.repeat,
                "pairing": run.pairing,
                "cell": run.cell,
                "scheme": run.scheme_name,
                "path": f"runs/{run.id}",
            }
            for run in runs
        ],
    }


@contextlib.contextmanager
def _growing(root: Path) -> Iterator[Path]:
    """Yield a temporary directory.

    After the `with` block, rename the directory to `root`, or remove it if the block failed.
    """
    growing = root.with_name(f".{root.name}.tmp")  # left behind by a killed command, because of the lock
    shutil.rmtree(growing, ignore_errors=True)
    try:
        growing.mkdir()
        yield growing
        growing.rename(root)
    except BaseException:
        shutil.rmtree(growing, ignore_errors=True)
        raise


def _write_scripts(
    directory: Path, jobs: Sequence[Job], batch_jobs: Sequence[BatchJob], site: Site, *, study: str, root: str
) -> None:
    try:
        for job in jobs:
            (directory / "jobs" / job.id).mkdir(parents=True)
            script = render(job, site=site, study=study, root=root)
            _write_script(directory / "jobs" / job.id / "job.sh", script)
            set_aside(directory / "jobs" / job.id)
        by_id = {job.id: job for job in jobs}
        for unit in batch_jobs:
            if unit.array:
                script, names = render_array(
                    unit.name, [by_id[id] for id in unit.jobs], site=site, study=study, root=root
                )
                (directory / "arrays").mkdir(exist_ok=True)
                _write_script(directory / unit.script, script)
                (directory / unit.script).with_suffix(".txt").write_text(names, encoding="utf-8")
    except ValueError as error:
        raise UserError(f"{site.site}: {error}") from None


def _run_file(run: ExpandedRun, job: Job, site: Site, base: Path) -> dict[str, Any]:
    """Return the content of ``run.json``."""
    shape = RankShape(
        nodes=job.shape.nodes,
        ranks_per_node=job.shape.ranks_per_node,
        cores_per_rank=job.shape.cores_per_rank,
        gpus_per_rank=str(job.shape.gpus_per_rank),
        visibility=site.visibility,
    )
    settings: dict[str, Any] = {
        "site": site.site,
        "threads": job.shape.threads,
        "oversubscribe": site.oversubscribe,
        "device": site.device,
        "base": base,
        "shape": shape,
        "peak_tflops": site.node.gpu_peak_tflops,
    }
    if isinstance(run.study, ProgramStudy):
        return program_file(run, **settings)
    return run_file(run, **settings, gpu_aware_mpi=site.gpu_aware_mpi, transport=site.transport)


def _write_script(path: Path, text: str) -> None:
    """Write an executable script. LSF may execute the file directly."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
