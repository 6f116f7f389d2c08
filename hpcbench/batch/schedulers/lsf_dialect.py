"""Command lines and output of LSF's bsub, and remedies for refusals."""

import re
from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.schedulers.accounts import lsf_remedy
from hpcbench.batch.schedulers.lsf_query import HANGS
from hpcbench.batch.schedulers.submit_command import SubmitDialect

OVER = re.compile("already finished|No matching job|is being terminated|is not found")
"""Output of bkill for a job that has already ended."""

DIALECT = SubmitDialect(
    id=re.compile(r"^Job <(\d+)> is submitted to\b", re.MULTILINE),
    busy=re.compile("[Tt]ry (again )?later|LSF is down|Resource temporarily unavailable"),
    unclear=re.compile("[Tt]imed? ?out|Communication time|in receiving"),
    remedies=(
        (
            re.compile("illegal option|no longer supported"),
            "this LSF refuses the option: add it to scheduler.refuses of the site file (lsf_refuses of submitit's "
            "plugin), or check the other fields of scheduler:",
        ),
        (
            re.compile("exclusive", re.IGNORECASE),
            "remove -x from scheduler.directives of the site file, or set queue: in the study to an EXCLUSIVE queue",
        ),
        (
            re.compile("Too many processors"),
            "use fewer nodes in the study, or correct node: {cores: ...} of the site file",
        ),
        (re.compile("[Nn]o such queue|not use the queue|closed"), "set queue: in the study to another queue"),
        (re.compile("[Pp]roject|[Aa]ccount|[Bb]ank|user group"), lsf_remedy),
        (re.compile("RUNLIMIT|[Rr]un limit"), "set walltime: in the study to a time that the queue allows"),
        (re.compile("PROCLIMIT|TASKLIMIT|[Nn]ode"), "use fewer nodes, or set queue: in the study to another queue"),
        (re.compile("permission denied"), "you are not allowed to submit jobs here: ask the site"),
        (re.compile("[Dd]ependency"), "the scheduler no longer lists the job to wait for: submit without `after`"),
    ),
    refused=re.compile("not submitted|illegal option|usage:", re.IGNORECASE),
    hangs=HANGS,
)

_STDIN = 'script=$1; shift; exec bsub "$@" < "$script"'


def build_bsub_command(path: Path, options: Sequence[str], by: str) -> list[str]:
    """Return the command that submits a script.

    Parameters
    ----------
    path
        Path of the script. If `by` is ``file``, the path is relative to the directory where `bsub` runs.
    options
        `bsub` options.
    by
        ``stdin`` or ``file``. Most sites ignore directives in scripts that are not passed on stdin.
    """
    if by == "stdin":
        return ["bash", "-c", _STDIN, "bsub", str(path), *options]
    return ["bsub", *options, f"./{path}"]  # the job starts in this directory, and a shell splits the path at blanks
