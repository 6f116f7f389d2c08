"""The variants of LSF that are faked, because sites run different ones."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flavour:
    """The features of one variant."""

    csm: bool = False
    """Whether the variant has CSM: whole nodes by -nnodes, a separate launch host, jsrun and lrun."""
    json: bool = True
    fields: bool = True
    """Whether bjobs has -o."""
    exit_fields: bool = True
    """Fields of bjobs -o that older versions lack: exit_code, exit_reason, jobindex and similar ones."""
    requeue: bool = True
    reasons: bool = True
    """Words such as TERM_RUNLIMIT, in the history and in the report of a job, and SIGUSR2 at the run limit: where there
    are none, a job ends at its limit as by bkill."""
    refuses: tuple[str, ...] = ()
    """Options of bsub that the variant does not support."""


FLAVOURS = {
    "csm": Flavour(csm=True),
    "lsf": Flavour(),
    "old": Flavour(json=False, exit_fields=False),
    "lsf-like": Flavour(
        json=False,
        fields=False,
        exit_fields=False,
        reasons=False,
        refuses=("-wa", "-wt", "-rn", "-cwd", "-ti"),
    ),
}
