"""Rank and time labels that launchers add at the beginning of output lines."""

import re

_LABEL = re.compile(
    r"""
    \[rank(?P<torch>[0-9]+)\]:\s*                               # PyTorch
    |\[[^\]\s,]*,(?P<mpirun>[0-9]+)\](?:<std(?:err|out)>)?:\s*  # Open MPI: --tag-output
    |<std(?:err|out)>:\s*
    |(?P<srun>[0-9]+):(?:\s+|$)                                 # Slurm: --label
    |\[(?P<hydra>[0-9]+)\]\s+                                   # MPICH and Intel: -prepend-rank
    |\[[A-Za-z_]\w*?(?P<local>[0-9]+)\]:\s*                     # torchrun: its role and the local rank
    """,
    re.VERBOSE,
)
_TIME = re.compile(
    r"""
    \[?(?:
    [0-9]{4}-[0-9]{2}-[0-9]{2}[T_ ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?
    |(?:[A-Z][a-z]{2}\s+)?[A-Z][a-z]{2}\s+[0-9]{1,2}\s+[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\s+[A-Z]{3,4})?(?:\s+[0-9]{4})?
    |[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?
    )\]?:?(?:\s+|(?=[\[<])|$)
    """,
    re.VERBOSE,
)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def split_label(text: str) -> tuple[str, str]:
    """Split a line into its rank label and the text without labels, times and color codes.

    Returns
    -------
    tuple[str, str]
        Rank label and text. The label is ``rank3`` for a global rank, ``local3`` for a local rank, or empty.
    """
    source, place = "", 0
    text = _COLOR.sub("", text).lstrip()
    while matched := _LABEL.match(text, place) or _TIME.match(text, place):
        place = matched.end()
        groups = {name: number for name, number in matched.groupdict().items() if number}
        if number := groups.pop("local", None):
            source = source or f"local{int(number)}"
        for number in groups.values():
            source = f"rank{int(number)}"
    return source, text[place:]
