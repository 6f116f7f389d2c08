"""Memory available to this process."""

from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def count_available_bytes() -> int:
    """Return the available bytes of memory, limited by the machine and by the job."""
    lines = _MEMORY.read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min(free, *_list_limits(), free)


def _list_limits() -> list[int]:
    """List the bytes still available in each control group (version 2) of this process."""
    try:
        membership = next(line for line in _GROUP.read_text(encoding="utf-8").splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    limits = []
    group = _GROUPS / membership[3:].lstrip("/")
    while _GROUPS in (group, *group.parents):
        try:
            most, used = ((group / f"memory.{name}").read_text(encoding="ascii") for name in ("max", "current"))
            if most.strip() != "max":
                limits.append(max(0, int(most) - int(used)))
        except (OSError, ValueError):
            pass  # The root group and groups without this controller are unlimited.
        group = group.parent
    return limits
