"""The fake `flux jobs`, which lists jobs in a given format.

Sources: flux-core, flux-jobs(1).
"""

import re
import time
from typing import Any

from fakes.flux.ids import format_id, parse_id
from fakes.flux.options import Parser
from fakes.programs import Call, RefusedError, take_job_fault
from fakes.state import DONE, ENDED, HELD, WAITING, Config, Job, State

_DEFAULT = (
    "{id.f58:>12} {queue:<8.8} {username:<8.8} {name:<10.10} {status_abbrev:>2.2} {ntasks:>6} {nnodes:>6h} {nodelist:h}"
)
_RESULTS = {"owner": "CANCELED", "limit": "TIMEOUT"}
_SHORT = {"COMPLETED": "CD", "FAILED": "F", "CANCELED": "CA", "TIMEOUT": "TO", "RUN": "R", "CLEANUP": "C"}
_EXCEPTIONS = {
    "owner": ("cancel", ""),
    "limit": ("timeout", "resource allocation expired"),
    "host": ("node-failure", "node failed: lost contact with node1"),
    "orphan": ("dependency", ""),
    "preempt": ("cancel", "preempted"),
    "memory": ("exec", "task killed by the kernel: out of memory"),
}
_FIELD = re.compile(r"(?:\?:)?\{([\w.]+)(?:!([DdFHP]))?(?::([^}]*))?\}")


def jobs(call: Call, arguments: list[str]) -> int:
    """Print the state of jobs."""
    reader = Parser(prog="flux-jobs", add_help=False)
    reader.add_argument("-a", action="store_true")
    reader.add_argument("-A", action="store_true")
    reader.add_argument("-n", "--suppress-header", "--no-header", action="store_true")
    reader.add_argument("-o", "--format", default=_DEFAULT)
    reader.add_argument("-f", "--filter", default="")
    reader.add_argument("-c", "--count", type=int, default=1000)
    reader.add_argument("-u", "--user")
    reader.add_argument("--name")
    reader.add_argument("--queue")
    reader.add_argument("--since")
    reader.add_argument("--color", nargs="?")
    reader.add_argument("ids", nargs="*")
    asked = reader.parse_args(arguments)
    status = 0
    with call.store.change() as state:
        selected: list[Job] = []
        for id in asked.ids:
            matching = [job for job in state.find(parse_id(id)) if not take_job_fault(state, job, "lose")]
            selected += matching
            if not matching:
                call.warn(f"JobID {id} unknown")
                status = 1
        if not asked.ids:
            selected = [job for job in reversed(state.jobs) if _is_selected(job, asked, state)]
            selected = selected[: asked.count] if asked.count else selected
        rows = [_list_values(job, call.store.config, state) for job in selected]
    if not asked.suppress_header:
        print(_format_row(asked.format, None))
    for row in rows:
        print(_format_row(asked.format, row))
    return status


def _is_selected(job: Job, asked: Any, state: State) -> bool:
    if asked.name is not None and job.name != asked.name:
        return False
    if asked.queue is not None and job.queue != asked.queue:
        return False
    wanted = {word.lower() for word in asked.filter.split(",") if word} or {"pending", "running"}
    if asked.a or asked.A or take_job_fault(state, job, "lose"):
        return not take_job_fault(state, job, "lose")
    if job.state in ENDED:
        return bool({"inactive", _format_result(job).lower()} & wanted)
    return "active" in wanted or ("pending" if job.state in (WAITING, HELD) else "running") in wanted


def _format_result(job: Job) -> str:
    return "COMPLETED" if job.state == DONE else _RESULTS.get(job.why, "FAILED")


def _list_values(job: Job, config: Config, state: State) -> dict[str, Any]:
    over = job.state in ENDED
    waiting = "DEPEND" if job.depends and job.state == WAITING else "SCHED"
    fault = take_job_fault(state, job, "state")
    active = str(fault["word"]) if fault else waiting if job.state in (WAITING, HELD) else "RUN"
    status = _format_result(job) if over else active
    happened = over and job.why in _EXCEPTIONS and job.state != DONE
    kind, note = _EXCEPTIONS[job.why] if happened else ("", "")
    return {
        "id": format_id(job.id),
        "id.f58": format_id(job.id),
        "id.dec": job.id,
        "id.hex": hex(job.id),
        "name": job.name,
        "queue": job.queue,
        "bank": job.account,
        "username": config.user,
        "state": "INACTIVE" if over else active,
        "status": status,
        "status_abbrev": _SHORT.get(status, status[:1]),
        "result": status if over else "",
        "success": str(job.state == DONE) if over else "",
        "returncode": "" if not over else -128 if not job.started else job.exit,
        "ntasks": job.hosts,
        "nnodes": len(job.places) or "",
        "nodelist": ",".join(job.places),
        "dependencies": job.depends if not over else "",
        "duration": job.limit,
        "t_submit": job.submitted,
        "t_run": job.started or "",
        "t_cleanup": job.ended if over and job.started else "",
        "t_inactive": job.ended if over else "",
        "runtime": (job.ended if over else time.time()) - job.started if job.started else 0.0,
        "exception.occurred": str(happened) if over else "",
        "exception.severity": 0 if happened else "",
        "exception.type": kind,
        "exception.note": (job.note or note) if happened else "",
    }


def _format_row(form: str, row: dict[str, Any] | None) -> str:
    """Format a row, or the header if the row is None."""

    def fill(match: re.Match[str]) -> str:
        name, conversion, spec = match.groups()
        spec = spec or ""
        dash = spec.endswith("h")
        spec = spec[:-1] if dash else spec
        if name not in (_NAMES if row is None else row):
            raise RefusedError(f"flux-jobs: ERROR: Unknown format field: {name}", 1)
        value = name.split(".")[-1].upper() if row is None else row[name]
        if row is not None and conversion == "D" and value != "":
            value = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(float(value)))
        elif row is not None and conversion in ("F", "H") and value != "":
            value = f"{float(value):.4g}s"
        if isinstance(value, float):
            value = f"{value:.6f}"
        text = str(value)
        return format("-" if dash and text in ("", "0s", "0.0") else text, spec)

    return _FIELD.sub(fill, form)


_NAMES = frozenset(_list_values(Job(1, ""), Config("flux", "", user=""), State()))
