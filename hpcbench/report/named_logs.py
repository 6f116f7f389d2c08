"""Logs to compare whose schemes the user names: ``baseline=run1.log zfp=run2.log zfp=run3.log``."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.collect.lines import printable
from hpcbench.collect.microbenchmarks import load as load_microbenchmarks
from hpcbench.collect.submission import UNKNOWN_SITE, NoRunError, RunResult, Submission, from_log
from hpcbench.contract.submission import Plan
from hpcbench.errors import UserError

Named = tuple[str, Path]
"""The name of a scheme, and a log of it."""


def named(path: Path) -> Named | None:
    """Name and file of ``NAME=FILE``; None for what is a path: it exists, or has no name before the sign.

    Raises
    ------
    UserError
        Name or file is missing.
    """
    name, sign, file = str(path).partition("=")
    if not sign or "/" in name or path.exists():
        return None
    if not name.strip() or not file:
        raise UserError(f"{printable(str(path))}: no such file: to name a log's scheme, say NAME=FILE")
    return name.strip(), Path(file)


def together(logs: Sequence[Named]) -> Submission:
    """The logs as runs of one cell: the first name is the baseline, and the logs of a name are its repeats in order.

    Parameters
    ----------
    logs
        One or more.

    Raises
    ------
    UserError
        A file holds no run, or cannot be read.
    """
    counts: Counter[str] = Counter()
    runs = []
    for name, path in logs:
        counts[name] += 1
        k = counts[name]
        run = replace(_run(path), id=f"r{k}-{name}", scheme=name, repeat=k, pairing=f"r{k}", cell={}, given=True)
        runs.append(run)
    study, site = _common([run.study for run in runs], "logs"), _common([run.site for run in runs], UNKNOWN_SITE)
    runs = [replace(run, study=study, site=site) for run in runs]
    return Submission(None, Plan(study=study, site=site, baseline={"scheme": logs[0][0]}, jobs=[], runs=[]), runs)


def _run(path: Path) -> RunResult:
    try:
        return from_log(path)
    except NoRunError:
        if load_microbenchmarks(path):
            raise UserError(
                f"{printable(str(path))}: a table of micro-benchmarks has no scheme: give it without NAME="
            ) from None
        raise


def _common(words: Sequence[str], several: str) -> str:
    return words[0] if len(set(words)) == 1 else several
