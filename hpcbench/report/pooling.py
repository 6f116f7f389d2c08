"""Merging of submissions of the same study.

Submissions are merged if they have the same study, options, site file and hpcbench version, and if their runs used the
same software. All pairs of the merged submissions then belong to a single comparison.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.submission import SubmissionFile
from hpcbench.contract.text import make_printable
from hpcbench.report.provenance import list_packages, list_software


def join_submissions(submissions: Sequence[Submission]) -> list[Submission]:
    """Merge the submissions of the same study.

    Submissions that have the same study and site names but cannot be merged get labels for their titles.
    """
    groups: list[list[Submission]] = []
    for submission in submissions:
        alike = [
            group for group in groups if _read_digest(group[0]) and _read_digest(group[0]) == _read_digest(submission)
        ]
        different = [_find_different_software(group, submission) for group in alike]
        if None in different:
            alike[different.index(None)].append(submission)
            continue
        if alike:
            where = make_printable(f"{submission.root} and {alike[0][0].root}")
            print(f"hpcbench: {where}: not pooled, because the runs differ in {different[0]}", file=sys.stderr)
        groups.append([submission])
    labels = _make_labels(submissions)
    names = [(group[0].plan.study, group[0].plan.site) for group in groups]
    pooled = []
    for group, of in zip(groups, names, strict=True):
        label = labels[id(group[0])]
        if len(group) > 1:
            pooled.append(_join_group(group, [labels[id(member)] for member in group]))
        elif names.count(of) > 1 and label:
            pooled.append(replace(group[0], runs=[replace(run, submission=label) for run in group[0].runs]))
        else:
            pooled += group
    return pooled


def split_pooled(submissions: Sequence[Submission]) -> list[Submission]:
    """Return the original submissions, before merging."""
    return [part for submission in submissions for part in submission.parts or (submission,)]


def _read_digest(submission: Submission) -> tuple[str, str, str] | None:
    """Return the digest, site and version of a submission, or None if it cannot be merged."""
    plan = submission.plan
    if not isinstance(plan, SubmissionFile) or not plan.digest or plan.dry_run or submission.root is None:
        return None
    return plan.digest, plan.site, plan.version


def _find_different_software(group: Sequence[Submission], other: Submission) -> str | None:
    """Return the first version or setting that differs between runs of a scheme, or None if all are equal."""
    mine, theirs = (
        _read_software(runs) for runs in ([run for submission in group for run in submission.runs], other.runs)
    )
    return next((key[-1] for key, values in mine.items() if key in theirs and theirs[key] != values), None)


def _read_software(runs: Sequence[RunResult]) -> dict[tuple[str, str, str], set[str]]:
    """Return the values of each software fact, keyed by cell, scheme and name of the fact."""
    values: dict[tuple[str, str, str], set[str]] = {}
    for run in runs:
        for finding in (*list_software([run]), *list_packages([run])):
            values.setdefault((repr(run.cell), run.scheme, finding.name), set()).add(finding.value)
    return values


def _join_group(group: Sequence[Submission], labels: Sequence[str]) -> Submission:
    """Return a submission with the runs of all submissions. Pairs are not formed across the original submissions."""
    runs = [run for submission, label in zip(group, labels, strict=True) for run in _label_runs(submission, label)]
    return Submission(group[0].root, group[0].plan, runs, tuple(group))


def _label_runs(submission: Submission, label: str) -> Iterator[RunResult]:
    """Yield the runs with names and pairings that are unique across submissions."""
    for run in submission.runs:
        yield replace(
            run,
            id=f"{label}:{run.id}",
            pairing=f"{label}:{run.pairing}",
            job=run.job and f"{label}:{run.job}",
            allocation=run.allocation and f"{label}:{run.allocation}",
            submission=label,
        )


def _make_labels(submissions: Sequence[Submission]) -> dict[int, str]:
    """Return the shortest unique path suffix of each submission's directory.

    A submission that consists only of logs has an empty label.
    """
    places = {
        id(submission): submission.root.absolute().parts for submission in submissions if submission.root is not None
    }
    labels = dict.fromkeys(map(id, submissions), "")
    for key, parts in places.items():
        others = [other for number, other in places.items() if number != key]
        length = next(
            (n for n in range(1, len(parts)) if all(parts[-n:] != other[-n:] for other in others)), len(parts)
        )
        labels[key] = make_printable(str(Path(*parts[-length:])))
    return labels
