"""Detection of the scheduler that answers. A client on PATH proves nothing: wrappers copy the names of clients."""

import re
import shutil
from dataclasses import dataclass

from hpcbench.doctor.ask import CommandOutcome, ask
from hpcbench.doctor.check import Check, Health


@dataclass(frozen=True)
class Sighting:
    """Outcome of the calls to one kind of scheduler."""

    kind: str
    health: Health
    fact: str
    name: str | None = None
    """Name of the cluster that the scheduler reports."""
    version: str | None = None


def sightings() -> list[Sighting]:
    """Ask every kind of scheduler."""
    return [_slurm(), _lsf(), _flux()]


def answering(seen: list[Sighting]) -> Sighting | None:
    """Return the scheduler that answers. Flux comes first, because Slurm or LSF may have started its instance."""
    working = {sighting.kind: sighting for sighting in seen if sighting.health is Health.OK}
    return next((working[kind] for kind in ("flux", "lsf", "slurm") if kind in working), None)


def check_schedulers(seen: list[Sighting], wanted: str) -> list[Check]:
    """Return a check of the site's kind of scheduler, and of each other kind that is at least partly installed."""
    remedies = {
        "slurm": "ask on a login node of the cluster; SLURM_CONF may be missing",
        "lsf": "ask on a login node; its profile.lsf may not have been sourced",
        "flux": "ask on a login node, or inside `flux start`; FLUX_URI names the instance",
    }
    checks = []
    if wanted == "local":
        checks.append(Check("scheduler", Health.OK, "local: jobs run here, one after another", needed=True))
    for sighting in seen:
        if sighting.kind == wanted or sighting.health is not Health.MISSING or shutil.which(_CLIENT[sighting.kind]):
            remedy = "" if sighting.health is Health.OK else remedies[sighting.kind]
            checks.append(
                Check(f"scheduler {sighting.kind}", sighting.health, sighting.fact, remedy, sighting.kind == wanted)
            )
    if not any(sighting.health is Health.OK for sighting in seen) and wanted == "local":
        checks.append(Check("other schedulers", Health.OK, "none answers: Slurm, LSF and Flux were asked"))
    return checks


_CLIENT = {"slurm": "srun", "lsf": "bsub", "flux": "flux"}


def _slurm() -> Sighting:
    ping = ask(["scontrol", "ping"])
    up = re.search(r"Slurmctld\(.*\) at (\S+) is UP", ping.out)
    if not up:
        return _silent("slurm", ping, "no controller is up")
    printed = ask(["sinfo", "--version"])
    version = printed.out.split()[-1] if printed.ok and printed.out.split() else None
    config = ask(["scontrol", "show", "config"])
    name = re.search(r"^ClusterName\s*=\s*(\S+)", config.out, re.MULTILINE)
    fact = f"Slurm {version or 'of unknown version'}: its controller on {up[1]} answers"
    return Sighting("slurm", Health.OK, fact, name[1] if name else None, version)


def _lsf() -> Sighting:
    answer = ask(["lsid"])
    name = re.search(r"My cluster name is (\S+)", answer.out)
    if not answer.ok or not name:
        return _silent("lsf", answer, "lsid names no cluster")
    product = next((line.strip() for line in answer.out.splitlines() if line.strip()), "LSF")
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
    printed = ask(["flux", "version"])
    version = re.search(r"(?:commands|broker):\s*(\S+)", printed.out)
    fact = f"Flux {version[1] if version else 'of unknown version'}: an instance of {size.out.strip()} brokers answers"
    return Sighting("flux", Health.OK, fact, None, version[1] if version else None)


def _silent(kind: str, answer: CommandOutcome, otherwise: str) -> Sighting:
    """Return a scheduler that did not answer: missing, or unknown if its client hangs."""
    health = Health.UNKNOWN if answer.present and answer.status is None else Health.MISSING
    printed = " ".join(answer.out.split())[:120]
    fact = answer.problem or f"{otherwise}{f': {printed}' if printed else ''}"
    client = shutil.which(_CLIENT[kind])
    if not answer.present and client:
        fact += f"; {client} is, but may be a wrapper"
    return Sighting(kind, health, fact)
