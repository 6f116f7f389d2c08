"""Flux: jobs go in by ``flux batch``, each for itself, and are asked after by ``flux jobs``."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from hpcbench.batch import flux_answers
from hpcbench.batch.scheduler import Parcel, Receipt, Scheduler, UnclearError, register_scheduler
from hpcbench.batch.site import Site
from hpcbench.batch.states import Word
from hpcbench.errors import UserError

TIMEOUT = 120.0
"""Seconds that a call of Flux may take."""
_OUTER = ("FLUX_JOB_", "FLUX_TASK_", "FLUX_KVS_", "FLUX_PMI_", "PMI_", "PMIX_", "SLURM_", "LSB_", "JSM_", "OMPI_")
"""What an outer job or launcher left in our environment; FLUX_URI stays, for it says which Flux is meant."""


@register_scheduler("flux")
class Flux(Scheduler):
    """One Flux instance: the machine's, or the one that FLUX_URI names."""

    @classmethod
    def check(cls, site: Site) -> None:
        if shutil.which("flux") is None:
            raise UserError(f"site {site.site}: no flux on PATH: submit from a login node of the machine, or load Flux")
        done = _flux("jobs", "-n", "-c", "1", "-o", "{id.dec}")
        if done.returncode:
            raise UserError(f"flux jobs: {_said(done)}: is there a Flux instance here, and FLUX_URI right?")

    def submit(self, parcel: Parcel) -> Receipt:
        if len(parcel.jobs) != 1:
            raise UserError(f"{parcel.name}: Flux has no job arrays: hand in its {len(parcel.jobs)} jobs one by one")
        scheme = "afterany" if parcel.after_any else "afterok"
        argv = ["batch", *(f"--dependency={scheme}:{id}" for id in parcel.after), str(parcel.script)]
        try:
            done = _flux(*argv)
        except UserError as error:
            raise UnclearError(f"flux batch {parcel.script}: {error}") from None
        id = flux_answers.submitted(done.stdout)
        if id is not None:  # a warning or a status beside an id takes nothing back
            return Receipt(id, [id], ["flux", *argv], f"{done.stdout}{done.stderr}")
        if done.returncode == 0 or not ("ERROR" in done.stderr or "error:" in done.stderr):
            raise UnclearError(f"flux batch {parcel.script}: exit status {done.returncode} and no id: {_said(done)}")
        raise UserError(f"flux batch {parcel.script}: {_said(done)}: Flux did not take it")

    def find(self, name: str, jobs: int) -> Receipt | None:
        done = _flux("jobs", "-a", "-n", f"--name={name}", "-o", "{id.dec}|{name}")
        if done.returncode:
            raise UserError(f"flux jobs --name={name}: {_said(done)}")
        lines = [line.strip().partition("|") for line in done.stdout.splitlines()]
        ids = [id for text, _, found in lines if found == name and (id := flux_answers.decimal(text))]
        if len(ids) > 1:
            raise UserError(f"{name}: Flux has {len(ids)} jobs of this name, {', '.join(ids)}: cancel all but one")
        return Receipt(ids[0], ids) if ids else None

    def poll(self, ids: Sequence[str]) -> Mapping[str, Word]:
        if not ids:
            return {}
        done = _flux("jobs", "-n", "-o", flux_answers.FORMAT, *ids)
        found = flux_answers.words(done.stdout)
        if done.returncode and not found and "unknown" not in done.stderr:
            raise UserError(f"flux jobs: {_said(done)}")
        return {id: word for id, word in found.items() if id in ids}

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        known = self.poll(ids)
        alive = [id for id, word in known.items() if word.state.alive]
        answers = {id: "already over" if id in known else "unknown to Flux" for id in ids}
        # One id that has just ended would make a call for all of them fail, and leave open which were meant.
        for id in alive:
            done = _flux("cancel", id)
            over = done.returncode and "inactive" in done.stderr
            answers[id] = "already over" if over else _said(done) if done.returncode else "ended"
        return answers


def _flux(*argv: str) -> "subprocess.CompletedProcess[str]":
    """Call it, with ids in ASCII and nothing of an outer job."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OUTER)}
    environment["FLUX_F58_FORCE_ASCII"] = "1"
    try:
        return subprocess.run(
            ["flux", *argv],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"no answer in {TIMEOUT:g} s") from None
    except OSError as error:
        raise UserError(f"flux cannot be started: {error.strerror}") from None


def _said(done: "subprocess.CompletedProcess[str]") -> str:
    """Its last words in one line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"
