"""Which scheduler really answers. A client on PATH proves nothing: wrappers bear the names of others' clients."""

import re
import shutil
from dataclasses import dataclass

from hpcbench.doctor.ask import Answer, ask
from hpcbench.doctor.check import Check, Health


@dataclass(frozen=True)
class Sighting:
    """What became of asking one kind of scheduler."""

    kind: str
    health: Health
    fact: str
    name: str | None = None
    """Name of the cluster that the scheduler gives."""
    version: str | None = None


def sightings() -> list[Sighting]:
    """Every kind of scheduler, asked."""
    return [_slurm(), _lsf(), _flux()]


def answering(seen: list[Sighting]) -> Sighting | None:
    """The one that answers. A Flux instance comes before what it may have been started by."""
    working = {one.kind: one for one in seen if one.health is Health.OK}
    return next((working[kind] for kind in ("flux", "lsf", "slurm") if kind in working), None)


def check_schedulers(seen: list[Sighting], wanted: str) -> list[Check]:
    """A line for the site's own kind, and for each other that is here at least in part."""
    remedies = {
        "slurm": "ask on a login node of the cluster; SLURM_CONF may be missing",
        "lsf": "ask on a login node; its profile.lsf may not have been sourced",
        "flux": "ask on a login node, or inside `flux start`; FLUX_URI names the instance",
    }
    checks = []
    if wanted == "local":
        checks.append(Check("scheduler", Health.OK, "local: jobs run here, one after another", needed=True))
    for one in seen:
        if one.kind == wanted or one.health is not Health.MISSING or shutil.which(_CLIENT[one.kind]):
            remedy = "" if one.health is Health.OK else remedies[one.kind]
            checks.append(Check(f"scheduler {one.kind}", one.health, one.fact, remedy, one.kind == wanted))
    if not any(one.health is Health.OK for one in seen) and wanted == "local":
        checks.append(Check("other schedulers", Health.OK, "none answers: Slurm, LSF and Flux were asked"))
    return checks


_CLIENT = {"slurm": "srun", "lsf": "bsub", "flux": "flux"}


def _slurm() -> Sighting:
    ping = ask(["scontrol", "ping"])
    up = re.search(r"Slurmctld\(.*\) at (\S+) is UP", ping.out)
    if not up:
        return _silent("slurm", ping, "no controller is up")
    said = ask(["sinfo", "--version"])
    version = said.out.split()[-1] if said.ok and said.out.split() else None
    config = ask(["scontrol", "show", "config"])
    name = re.search(r"^ClusterName\s*=\s*(\S+)", config.out, re.MULTILINE)
    fact = f"Slurm {version or 'of unknown version'}: its controller on {up[1]} answers"
    return Sighting("slurm", Health.OK, fact, name[1] if name else None, version)


def _lsf() -> Sighting:
    said = ask(["lsid"])
    name = re.search(r"My cluster name is (\S+)", said.out)
    if not said.ok or not name:
        return _silent("lsf", said, "lsid names no cluster")
    product = next((line.strip() for line in said.out.splitlines() if line.strip()), "LSF")
    version = re.search(r"\b\d+(\.\d+)+", product)
    if not shutil.which("bsub"):
        return Sighting("lsf", Health.MISSING, f"{product}: lsid answers, but bsub is not on PATH", name[1])
    queues = ask(["bqueues", "-l"])  # lsid asks another daemon, which answers without the one that takes jobs
    if not queues.ok or "QUEUE" not in queues.out:
        health = Health.UNKNOWN if queues.present and queues.status is None else Health.MISSING
        why = queues.problem or f"bqueues lists no queue: {queues.err.strip()[:120]}"
        return Sighting("lsf", health, f"{product}: lsid answers, but not the daemon that takes jobs: {why}", name[1])
    return Sighting("lsf", Health.OK, f"{product}: cluster {name[1]}", name[1], version[0] if version else None)


def _flux() -> Sighting:
    size = ask(["flux", "getattr", "size"])
    if not size.ok or not size.out.strip().isdigit():
        return _silent("flux", size, "flux getattr size gives no number")
    jobs = ask(["flux", "jobs", "-n", "-c", "1"])  # a broker gives its size without the one that takes jobs
    if not jobs.ok:
        return _silent("flux", jobs, "")
    said = ask(["flux", "version"])
    version = re.search(r"(?:commands|broker):\s*(\S+)", said.out)
    fact = f"Flux {version[1] if version else 'of unknown version'}: an instance of {size.out.strip()} brokers answers"
    return Sighting("flux", Health.OK, fact, None, version[1] if version else None)


def _silent(kind: str, answer: Answer, otherwise: str) -> Sighting:
    """A client that is not there is missing; one that never replies leaves it open."""
    health = Health.UNKNOWN if answer.present and answer.status is None else Health.MISSING
    said = " ".join(answer.out.split())[:120]
    fact = answer.problem or f"{otherwise}{f': {said}' if said else ''}"
    client = shutil.which(_CLIENT[kind])
    if not answer.present and client:
        fact += f"; {client} is, but may be a wrapper"
    return Sighting(kind, health, fact)
