"""Accounts that the user may charge, as schedulers list them, for messages about a refused account."""

import getpass
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.batch.schedulers.client import ProgramResult, ask
from hpcbench.errors import UserError

PATIENCE = 30.0
"""Seconds for each question: nothing depends on the answer but a clearer message."""
_REMEDY = "set account: in the study to one that may run there"
_MOST = 20
"""Accounts that a message lists."""


@dataclass(frozen=True)
class Association:
    """An account that the user may charge, from Slurm's accounting."""

    account: str
    partition: str
    """The only partition of the account; empty for all partitions."""
    max_submit: str
    """Maximum number of submitted jobs; empty if unlimited."""
    qos: tuple[str, ...] = ()
    """Qualities of service that the account may use; empty if they were not asked for."""


def ask_quietly(argv: Sequence[str], *, keep: Sequence[str] = ()) -> ProgramResult | None:
    """Return the answer of a scheduler's program; None if there is no such program, or it fails.

    Parameters
    ----------
    argv
        The command.
    keep
        Variables of the scheduler that it gets.
    """
    try:
        answer = ask(argv, plain_environment(keep=tuple(keep)), patience=PATIENCE)
    except UserError:
        return None
    return answer if answer.status == 0 else None


FIELDS = ("Account", "Partition", "MaxSubmit")
"""Fields of an association that every account has."""


def make_association_query(fields: Sequence[str]) -> list[str]:
    """Return the command that lists fields of the user's associations in Slurm's accounting."""
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", "where", f"user={getpass.getuser()}"]
    return [*argv, f"format={','.join(fields)}"]


def read_associations(text: str, fields: Sequence[str]) -> list[Association]:
    """Read the output of that command. Lines with another number of fields are skipped."""
    associations = []
    for line in text.splitlines():
        row = dict(zip(fields, line.split("|"), strict=False))
        if line.count("|") == len(fields) - 1 and row["Account"]:
            qos = tuple(filter(None, row.get("QOS", "").split(",")))
            associations.append(Association(row["Account"], row["Partition"], row["MaxSubmit"], qos))
    return associations


def list_associations() -> list[Association] | None:
    """Return the user's associations in Slurm's accounting; None if accounting does not answer."""
    answer = ask_quietly(make_association_query(FIELDS))
    return None if answer is None else read_associations(answer.out, FIELDS)


def slurm_remedy() -> str:
    """Return what to do about an account that Slurm refuses."""
    rows = list_associations()
    if rows is None:
        return _REMEDY
    if not rows:
        return f"{_REMEDY}; sacctmgr show assoc lists none of yours: ask the site for one"
    named = [f"{row.account} (in partition {row.partition} only)" if row.partition else row.account for row in rows]
    return f"{_REMEDY}; yours are {_listed(named)} (sacctmgr show assoc)"


def lsf_remedy() -> str:
    """Return what to do about a project or user group that LSF refuses. LSF lists user groups, and no projects."""
    answer = ask_quietly(["bugroup", "-w"])
    user = getpass.getuser()
    rows = [line.replace("(", " ").replace(")", " ").split() for line in answer.out.splitlines()[1:]] if answer else []
    groups = [row[0] for row in rows if row and {user, "all"} & set(row[1:])]
    return f"{_REMEDY}; bugroup -w lists you in {_listed(groups)}" if groups else _REMEDY


def flux_remedy() -> str:
    """Return what to do about a bank that Flux refuses, with what flux-accounting prints of the user's banks."""
    argv = ["flux", "account", "view-user", getpass.getuser(), "--list-banks"]
    answer = ask_quietly(argv, keep=("FLUX_URI",))
    banks = " ".join(answer.out.split())[:400] if answer else ""
    return f"{_REMEDY}; {' '.join(argv)} prints: {banks}" if banks else _REMEDY


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:_MOST]) + (f" and {len(unique) - _MOST} more" if len(unique) > _MOST else "")
