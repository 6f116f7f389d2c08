"""The user's accounts, as listed by schedulers, for messages about refused accounts."""

import getpass
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.batch.schedulers.attempt import ask_scheduler

PATIENCE = 30.0
"""Deadline of each call in seconds. The result only improves an error message."""
_REMEDY = "set account: in the study to an account that may run this job"
_MOST = 20
"""Maximum number of accounts in a message."""


@dataclass(frozen=True)
class Association:
    """An account available to the user, from Slurm accounting."""

    account: str
    partition: str
    """Partition to which the account is restricted, or empty if there is no such restriction."""
    qos: tuple[str, ...]
    """Qualities of service available to the account."""
    max_submit: str
    """Maximum number of submitted jobs, or empty for an unlimited number."""


def list_associations(*, seconds: float | None = None) -> tuple[list[Association], str]:
    """Return the user's associations in Slurm accounting, and an error message if the call failed."""
    fields = ("Account", "Partition", "QOS", "MaxSubmit")
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", "where", f"user={getpass.getuser()}"]
    answer = ask_scheduler([*argv, f"format={','.join(fields)}"], seconds=seconds)
    associations = []
    for line in answer.out.splitlines() if answer.ok else ():
        cells = line.split("|")
        if len(cells) == len(fields) and cells[0]:
            account, partition, qos, max_submit = cells
            associations.append(Association(account, partition, tuple(filter(None, qos.split(","))), max_submit))
    return associations, answer.problem


def slurm_remedy() -> str:
    """Return the remedy for an account refused by Slurm."""
    rows, problem = list_associations(seconds=PATIENCE)
    if problem:
        return _REMEDY
    if not rows:
        return f"{_REMEDY}; sacctmgr show assoc lists no account for you: ask the site for one"
    named = [f"{row.account} (in partition {row.partition} only)" if row.partition else row.account for row in rows]
    return f"{_REMEDY}; your accounts are {_listed(named)} (sacctmgr show assoc)"


def lsf_remedy() -> str:
    """Return the remedy for a project or user group refused by LSF. LSF lists user groups but not projects."""
    answer = ask_scheduler(["bugroup", "-w"], seconds=PATIENCE)
    user, lines = getpass.getuser(), answer.out.splitlines()[1:] if answer.ok else []
    rows = [line.replace("(", " ").replace(")", " ").split() for line in lines]
    groups = [row[0] for row in rows if row and {user, "all"} & set(row[1:])]
    return f"{_REMEDY}; your groups are {_listed(groups)} (bugroup -w)" if groups else _REMEDY


def flux_remedy() -> str:
    """Return the remedy for a bank refused by Flux, including the user's banks in flux-accounting."""
    argv = ["flux", "account", "view-user", getpass.getuser(), "--list-banks"]
    answer = ask_scheduler(argv, seconds=PATIENCE)
    banks = " ".join(answer.out.split())[:400] if answer.ok else ""
    return f"{_REMEDY}; {' '.join(argv)} prints: {banks}" if banks else _REMEDY


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:_MOST]) + (f" and {len(unique) - _MOST} more" if len(unique) > _MOST else "")
