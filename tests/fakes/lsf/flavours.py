"""Variants of LSF that the fake can imitate, because sites run different variants."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flavour:
    """The features of one variant."""

    csm: bool = False
    """Whether the variant supports CSM: whole nodes with -nnodes, a separate launch host, jsrun and lrun."""
    json: bool = True
    fields: bool = True
    """Whether bjobs supports -o."""
    exit_fields: bool = True
    """Whether bjobs -o supports exit_code, exit_reason, jobindex and similar fields, which older versions lack."""
    requeue: bool = True
    reasons: bool = True
    """Whether job histories and reports contain terms such as TERM_RUNLIMIT, and jobs receive SIGUSR2 at the run limit.

    Otherwise, a job at its limit ends as if killed with bkill.
    """
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
