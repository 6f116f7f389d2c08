"""Dispatcher rules for jobs of the fake Flux.

Sources: flux-core, flux-environment(7) and flux-batch(1). A job that exceeds its time limit receives SIGTERM, then
SIGKILL.
"""

import signal

from fakes.flux.ids import format_id, parse_id
from fakes.state import DONE, ENDED, EXITED, WAITING, Config, Job, State, Store

_FATES = {"afterok": (DONE,), "afternotok": (EXITED,), "afterany": ENDED, "after": ()}


class Flux:
    """The behavior of Flux."""

    def is_ready(self, job: Job, state: State) -> bool | None:
        """Return whether all dependencies of the job are met."""
        for dependency in job.depends.split():
            scheme, _, id = dependency.partition(":")
            for other in state.find(parse_id(id)):
                if other.state in ENDED and other.state not in (_FATES[scheme] or ENDED):
                    job.note = f"dependency-{scheme} failed: job {format_id(other.id)} {other.state}"
                    return None
                if other.state not in ENDED and (scheme != "after" or other.state == WAITING):
                    return False
        return True

    def list_variables(self, job: Job, store: Store) -> dict[str, str]:
        """Return the variables of an instance's first program. FLUX_JOB_ID is set only for tasks."""
        return {"FLUX_URI": f"local://{store.directory}/{job.id}", "FLUX_ENCLOSING_ID": format_id(job.id)}

    def plan(self, job: Job, config: Config, now: float) -> list[tuple[float, int, str]]:
        """Return the warning signal, and the end of the job at its time limit."""
        changes: list[tuple[float, int, str]] = []
        if job.limit and job.warning:
            changes.append((now + max(0.0, job.limit - job.warning[0]), job.warning[1], ""))
        return [*changes, *list_end_signals(now + job.limit, config, "limit")] if job.limit else changes

    def can_reach_ranks(self, config: Config) -> bool:
        """Return False, because the script and its ranks are separate jobs."""
        return False

    def record_start(self, job: Job, now: float) -> None:
        """Record the start as in Flux's event log."""
        job.say(now, "start")

    def record_signal(self, job: Job, number: int, why: str, now: float) -> None:
        """Record the signal as in Flux's event log."""
        job.say(now, f"signal {signal.Signals(number).name}")

    def record_end(self, job: Job, config: Config, now: float, *, again: bool) -> None:
        """Record the end as in Flux's event log."""
        job.say(now, f"finish status={job.exit}")


def list_end_signals(at: float, config: Config, why: str) -> list[tuple[float, int, str]]:
    """Return the signals that Flux sends to end a job."""
    return [(at, int(signal.SIGTERM), why), (at + config.terminate_interval, int(signal.SIGKILL), why)]


SYSTEM = Flux()
