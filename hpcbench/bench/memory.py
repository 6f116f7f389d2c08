"""The memory that this process may still use."""

from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def available() -> int:
    """Free memory in bytes: what the machine has left, or less if a job's limit allows less."""
    lines = _MEMORY.read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min(free, *_limits(), free)


def _limits() -> list[int]:
    """Memory that the control groups (version 2) of this process leave."""
    try:
        own = next(line for line in _GROUP.read_text(encoding="utf-8").splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    found = []
    group = _GROUPS / own[3:].lstrip("/")
    while _GROUPS in (group, *group.parents):
        try:
            most, used = ((group / f"memory.{name}").read_text(encoding="ascii") for name in ("max", "current"))
            if most.strip() != "max":
                found.append(max(0, int(most) - int(used)))
        except (OSError, ValueError):
            pass  # the root has no limit, nor a group without this controller
        group = group.parent
    return found
