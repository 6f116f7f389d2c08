"""The kinds of LSF that are faked, because sites run different ones."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flavour:
    """The features of one kind."""

    csm: bool = False
    """Whether it has CSM: whole nodes by -nnodes, a separate launch host, jsrun and lrun."""
    json: bool = True
    fields: bool = True
    """Whether it has bjobs -o."""
    exit_fields: bool = True
    """Whether bjobs -o has fields that older versions lack: exit_code, exit_reason and the like."""
    requeue: bool = True


FLAVOURS = {
    "csm": Flavour(csm=True),
    "lsf": Flavour(),
    "old": Flavour(json=False, exit_fields=False),
    "lsf-like": Flavour(json=False, fields=False, exit_fields=False),
}
