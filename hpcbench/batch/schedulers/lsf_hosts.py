"""Hosts of an LSF job, as described by the variables that LSF sets in the job."""

from collections.abc import Mapping
from pathlib import Path


def find_lsf_hosts(environment: Mapping[str, str], *, easy: bool) -> list[str]:
    """Return the hosts of the current LSF job. LSB_HOSTS is not used, because it is not set in large jobs.

    Parameters
    ----------
    environment
        Variables set by LSF.
    easy
        Whether LSF allocates whole nodes, and lists them together with a launch host that has one slot.
    """
    slots: dict[str, int] = {}
    try:
        text = Path(environment.get("LSB_DJOB_HOSTFILE", "")).read_text(encoding="utf-8", errors="replace")
        pairs = [(host, 1) for host in text.split()]
    except OSError:
        fields = environment.get("LSB_MCPU_HOSTS", "").split()
        pairs = [(host, int(number)) for host, number in zip(fields[::2], fields[1::2], strict=False)]
    for host, number in pairs:
        slots[host] = slots.get(host, 0) + number
    first = next(iter(slots), "")
    if easy and slots and slots[first] == 1 < max(slots.values()):
        del slots[first]  # a host with one slot among larger hosts is the launch host
    return list(slots)
