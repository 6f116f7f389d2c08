"""Output formats of bjobs: short, wide, long, selected fields and JSON."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fakes.lsf import words
from fakes.lsf.flavours import FLAVOURS
from fakes.programs import RefusedError
from fakes.state import ENDED, EXITED, HELD, WAITING, Config, Job

Row = tuple[Job, str]
_HEADER = ("JOBID", "USER", "STAT", "QUEUE", "FROM_HOST", "EXEC_HOST", "JOB_NAME", "SUBMIT_TIME")
_WIDTHS = (7, 7, 5, 10, 11, 11, 10, 12)

_Value = Callable[[Job, str, Config, float], str]
_FIELDS: dict[str, tuple[int, _Value]] = {
    "jobid": (7, lambda job, stat, config, now: str(job.id)),
    "jobindex": (8, lambda job, stat, config, now: str(job.index) if job.index else ""),
    "user": (7, lambda job, stat, config, now: config.user),
    "stat": (5, lambda job, stat, config, now: stat),
    "queue": (10, lambda job, stat, config, now: job.queue),
    "job_name": (10, lambda job, stat, config, now: words.format_name(job)),
    "proj_name": (11, lambda job, stat, config, now: job.account or "default"),
    "from_host": (11, lambda job, stat, config, now: "login1"),
    "first_host": (11, lambda job, stat, config, now: next(iter(words.list_hosts(job, config)), ("",))[0]),
    "exec_host": (11, lambda job, stat, config, now: words.format_hosts(job, config)),
    "nexec_host": (10, lambda job, stat, config, now: str(len(words.list_hosts(job, config))) if job.places else ""),
    "slots": (5, lambda job, stat, config, now: str(job.hosts * (job.per_host or config.cores))),
    "submit_time": (15, lambda job, stat, config, now: words.format_short_time(job.submitted)),
    "start_time": (15, lambda job, stat, config, now: words.format_short_time(job.started)),
    "finish_time": (16, lambda job, stat, config, now: _finish(job)),
    "run_time": (15, lambda job, stat, config, now: f"{words.count_run_seconds(job, now)} second(s)"),
    "runtimelimit": (13, lambda job, stat, config, now: f"{job.limit / config.minute:.1f}" if job.limit else ""),
    "pend_time": (12, lambda job, stat, config, now: str(round((job.started or now) - job.submitted))),
    "sub_cwd": (10, lambda job, stat, config, now: job.cwd),
    "exec_cwd": (10, lambda job, stat, config, now: job.cwd if job.started else ""),
    "output_file": (10, lambda job, stat, config, now: job.output),
    "error_file": (10, lambda job, stat, config, now: job.error),
    "pids": (20, lambda job, stat, config, now: str(job.pid) if words.is_alive(job) else ""),
    "dependency": (15, lambda job, stat, config, now: job.depends),
    "pend_reason": (
        11,
        lambda job, stat, config, now: (job.note or words.PENDING) if job.state in (WAITING, HELD) else "",
    ),
    "exit_code": (10, lambda job, stat, config, now: str(job.exit) if job.state == EXITED and job.exit else ""),
    "exit_reason": (50, lambda job, stat, config, now: words.describe_end(job)),
    "kill_reason": (50, lambda job, stat, config, now: ""),
    "suspend_reason": (50, lambda job, stat, config, now: "suspended" if stat.endswith("SUSP") else ""),
    "cpu_used": (10, lambda job, stat, config, now: "0.1 second(s)" if job.started else ""),
    "max_mem": (10, lambda job, stat, config, now: "8 Mbytes" if job.started else ""),
    "nreq_slot": (10, lambda job, stat, config, now: str(job.hosts * (job.per_host or config.cores))),
    "nalloc_slot": (10, lambda job, stat, config, now: str(sum(job.places.values())) if job.places else ""),
    "energy": (10, lambda job, stat, config, now: ""),
}
_ALIASES = {"id": "jobid", "name": "job_name", "proj": "proj_name", "limit": "runtimelimit", "index": "jobindex"}
_NEWER = ("exit_code", "exit_reason", "kill_reason", "suspend_reason", "energy", "pend_reason", "jobindex")


@dataclass(frozen=True)
class Fields:
    """The fields of -o."""

    names: Sequence[str]
    widths: Sequence[int]
    """Widths of the fields. 0 means unlimited, because fields are delimited."""
    delimiter: str | None


def parse_fields(text: str, config: Config) -> Fields:
    """Parse ``"jobid:7 stat exit_code delimiter='|'"``.

    Raises
    ------
    RefusedError
        Any field is unknown.
    """
    match = re.search(r"""\bdelimiter=(?:'([^']*)'|"([^"]*)"|(\S))""", text)
    delimiter = next((group for group in match.groups() if group is not None), "") if match else None
    names: list[str] = []
    widths: list[int] = []
    for word in (text[: match.start()] + text[match.end() :] if match else text).split():
        name, _, width = word.lower().partition(":")
        name = _ALIASES.get(name, name)
        if name not in _FIELDS or (name in _NEWER and not FLAVOURS[config.flavour].exit_fields):
            status = 255 if FLAVOURS[config.flavour].exit_fields else 99
            raise RefusedError(f"Bad field name: {name}. The -o option is not valid.", status)
        names.append(name)
        digits = width.lstrip("-")
        widths.append(int(digits) if digits else _FIELDS[name][0])
    return Fields(names, widths, delimiter)


@dataclass(frozen=True)
class Table:
    """A table of selected fields of jobs."""

    fields: Fields
    config: Config
    now: float
    hidden: set[str]
    """Keys of the jobs whose exit code is not printed."""
    header: bool

    def text(self, rows: Sequence[Row]) -> str:
        """Return columns, or values separated by the delimiter. An unknown value is a dash."""
        if not rows:
            return ""
        lines = [[value or "-" for value in self._values(*row)] for row in rows]
        if self.header:
            lines.insert(0, [name.upper() for name in self.fields.names])
        if self.fields.delimiter is not None:
            return "".join(self.fields.delimiter.join(line) + "\n" for line in lines)
        return "".join(
            " ".join(_cut(value, width) for value, width in zip(line, self.fields.widths, strict=True)).rstrip() + "\n"
            for line in lines
        )

    def json(self, rows: Sequence[Row], missing: Sequence[str]) -> str:
        """Return a record for each job, and a record with ERROR for each unknown id. Unknown values are empty."""
        names = [name.upper() for name in self.fields.names]
        records = [dict(zip(names, self._values(*row), strict=True)) for row in rows]
        records += [{"JOBID": id, "ERROR": f"Job <{id}> is not found"} for id in missing]
        return json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}, indent=2) + "\n"

    def _values(self, job: Job, stat: str) -> list[str]:
        values = {name: _FIELDS[name][1](job, stat, self.config, self.now) for name in self.fields.names}
        if job.key in self.hidden and "exit_code" in values:
            values["exit_code"] = ""
        return list(values.values())


def format_pending(rows: Sequence[Row], config: Config) -> str:
    """Return the output of bjobs -p. The line below each row states why the job is pending."""
    cells = [[*_HEADER[:5], *_HEADER[6:]]]
    for job, stat in rows:
        name, since = words.format_name(job), words.format_short_time(job.submitted)
        cells.append([str(job.id), config.user, stat, job.queue, "login1", name, since])
    lines = [" ".join(map(_cut, row, (*_WIDTHS[:5], *_WIDTHS[6:]))) for row in cells]
    reasons = [f" {job.note or words.PENDING}" for job, _ in rows]
    with_reasons = [lines[0], *(line for pair in zip(lines[1:], reasons, strict=True) for line in pair)]
    return "".join(line.rstrip() + "\n" for line in with_reasons)


def format_short(rows: Sequence[Row], config: Config, *, header: bool) -> str:
    """Return fixed-width columns.

    Long names are cut at the beginning, and each further host is printed on its own line.
    """
    lines = [_format_columns(_HEADER)] if header else []
    for job, stat in rows:
        hosts = [f"{slots}*{host}" if slots > 1 else host for host, slots in words.list_hosts(job, config)] or [""]
        cells = (str(job.id), config.user, stat, job.queue, "login1", hosts[0], words.format_name(job))
        lines.append(_format_columns((*cells, words.format_short_time(job.submitted))))
        lines += [" " * (sum(_WIDTHS[:5]) + 5) + host for host in hosts[1:]]
    return "".join(line.rstrip() + "\n" for line in lines)


def format_wide(rows: Sequence[Row], config: Config, *, header: bool) -> str:
    """Return columns with values in full length. A dash means no host."""
    lines = [_format_columns(_HEADER)] if header else []
    for job, stat in rows:
        hosts = words.format_hosts(job, config) or "-"
        name, since = words.format_name(job), words.format_short_time(job.submitted)
        cells = (str(job.id), config.user, stat, job.queue, "login1", hosts, name, since)
        lines.append(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)))
    return "".join(line.rstrip() + "\n" for line in lines)


def format_long(job: Job, stat: str, config: Config, now: float) -> str:
    """Return the output of bjobs -l: the job's history in sentences."""
    head = f"Job <{job.key}>, Job Name <{words.format_name(job)}>, User <{config.user}>, Project "
    head += f"<{job.account or 'default'}>, Status <{stat}>, Queue <{job.queue}>, Command <{job.script}>"
    lines = [
        words.break_lines(head),
        *(words.break_lines(f"{words.format_long_time(moment)}: {text}") for moment, text in job.events),
    ]
    if job.state == WAITING:
        lines.append(f" PENDING REASONS:\n {words.PENDING}")
    limit = f" RUNLIMIT\n {job.limit / config.minute:.1f} min of launch1\n" if job.limit else ""
    return "\n" + "\n".join(lines) + "\n\n" + limit + f"{'-' * 78}\n"


def _finish(job: Job) -> str:
    return f"{words.format_short_time(job.ended)} L" if job.state in ENDED else ""


def _format_columns(cells: Sequence[str]) -> str:
    return " ".join(_cut(cell, width) for cell, width in zip(cells, _WIDTHS, strict=True))


def _cut(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else f"*{text[len(text) - width + 1 :]}"
