"""Dispatcher rules for jobs of the fake LSF.

Sources: IBM Spectrum LSF 10.1, Administering: job environment, run limits (SIGUSR2, then ten minutes), job reports.
"""

import os
import signal
from pathlib import Path

from fakes.lsf import words
from fakes.lsf.depend import evaluate
from fakes.lsf.flavours import FLAVOURS
from fakes.programs import RefusedError
from fakes.state import Config, Job, State, Store

GRACE_MINUTES = 10


class LSF:
    """The behavior of LSF."""

    def is_ready(self, job: Job, state: State) -> bool | None:
        """Return whether the job's dependency condition is met."""
        if not job.depends:
            return True
        try:
            fulfilled = evaluate(job.depends, state)
        except RefusedError:
            fulfilled = None  # a job in the condition no longer exists
        job.note = "" if fulfilled else words.NEVER if fulfilled is None else words.NOT_YET
        return fulfilled

    def list_variables(self, job: Job, store: Store) -> dict[str, str]:
        """Return LSF's variables. The host file begins with the launch host, if any."""
        config = store.config
        places = words.list_hosts(job, config)
        each = [host for host, slots in places for _ in range(slots)]
        hostfile = store.locate_file(f"{job.key}.hostfile")
        hostfile.write_text("".join(f"{host}\n" for host in each), encoding="ascii")
        return {
            "LSF_BINDIR": str(store.directory / "bin"),
            "LSB_JOBID": str(job.id),
            "LSB_BATCH_JID": job.key,
            "LSB_JOBINDEX": str(job.index),
            "LSB_JOBNAME": words.format_name(job),
            "LSB_QUEUE": job.queue,
            "LSB_SUB_HOST": "login1",
            "LSB_SUB_USER": config.user,
            "LSB_HOSTS": " ".join(each),
            "LSB_MCPU_HOSTS": " ".join(f"{host} {slots}" for host, slots in places),
            "LSB_DJOB_HOSTFILE": str(hostfile),
            "LSB_DJOB_NUMPROC": str(len(each)),
            "LSB_JOBFILENAME": job.script,
            "LSB_OUTPUTFILE": job.output,
            "LSB_RESTART": "Y" if job.starts > 1 else "N",
            "LS_SUBCWD": job.cwd,
            "LS_JOBPID": str(os.getpid()),
        }

    def plan(self, job: Job, config: Config, now: float) -> list[tuple[float, int, str]]:
        """Return the warning signal, SIGUSR2 at the run limit, and the end ten minutes later."""
        changes: list[tuple[float, int, str]] = []
        if job.limit and job.warning:
            changes.append((now + max(0.0, job.limit - job.warning[0]), job.warning[1], ""))
        if job.limit and not FLAVOURS[config.flavour].reasons:
            changes += list_end_signals(now + job.limit, config, "limit")
        elif job.limit:
            changes.append((now + job.limit, int(signal.SIGUSR2), "limit"))
            changes += list_end_signals(now + job.limit + GRACE_MINUTES * config.minute, config, "limit")
        return changes

    def can_reach_ranks(self, config: Config) -> bool:
        """Return whether a signal reaches the ranks.

        With CSM, ranks run on compute hosts, and the script runs on the launch host.
        """
        return config.flavour != "csm"

    def record_start(self, job: Job, now: float) -> None:
        """Record the start as in bhist."""
        count = len(job.places)
        shown = " ".join(f"<{host}>" for host in job.places)
        job.say(now, f"Dispatched to {shown};" if count == 1 else f"Dispatched to {count} Hosts/Processors {shown};")
        job.say(now, f"Starting (Pid {job.pid});")
        job.say(
            now, f"Running with execution home <{Path.home()}>, Execution CWD <{job.cwd}>, Execution Pid <{job.pid}>;"
        )

    def record_signal(self, job: Job, number: int, why: str, now: float) -> None:
        """Record the signal as in bhist."""
        name = signal.Signals(number).name.removeprefix("SIG")
        by = "LSF system" if why in ("limit", "preempt", "host") else f"user or administrator <{os.getuid()}>"
        job.say(now, f"Signal <{name}> requested by {by};")

    def record_end(self, job: Job, config: Config, now: float, *, again: bool) -> None:
        """Record the end as in bhist, and append LSF's report to the output file."""
        code = job.exit or 0
        reason = words.name_term(job.why, config)
        if not code and job.why in ("", "limit"):
            job.say(now, "Done successfully. The CPU time used is 0.1 seconds;")
        else:
            by = f"Exited with exit code {code}." if code else "Exited."
            job.say(now, f"{by} The CPU time used is 0.1 seconds;")
            if reason:
                job.say(now, f"Completed <exit>; {reason};")
        if again:
            job.say(now, f"Pending: Requeued job is waiting for rescheduling;(exit code {code})")
        if job.output and job.started and "-N" not in job.options:
            _report(job, code, reason)


def list_end_signals(at: float, config: Config, why: str) -> list[tuple[float, int, str]]:
    """Return the signals that LSF sends to end a job, in order."""
    steps = enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
    return [(at + k * config.terminate_interval, int(number), why) for k, number in steps]


def _report(job: Job, code: int, reason: str) -> None:
    name = words.format_name(job)
    verdict = "Done" if not code else "Exited"
    result = "Successfully completed." if not code else f"Exited with exit code {code}."
    lines = [
        "",
        "-" * 60,
        "Sender: LSF System <lsfadmin@launch1>",
        f"Subject: Job {job.key}: <{name}> in cluster <hpcbench_fake> {verdict}",
        "",
        f"Job <{name}> was submitted from host <login1> by user <{os.getuid()}> in cluster <hpcbench_fake>",
        f"Job was executed on host(s) <{'> <'.join(job.places)}>, in queue <{job.queue}>",
        f"<{job.cwd}> was used as the working directory.",
        "",
        *([f"{reason}."] if reason else []),
        result,
        "",
        "The output (if any) is above this job summary.",
        "",
    ]
    try:
        with Path(job.output).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines))
    except OSError:
        return  # like LSF, which then sends mail


SYSTEM = LSF()
