"""Requirements of virtual hosts: tools, a compiler, namespaces, and kernel modules."""

import os
import shutil
import subprocess
from collections.abc import Sequence

_TOOLS = ("bash", "hostname", "ip", "mount", "nsenter", "tc", "unshare")
_NAMESPACES = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
_KERNEL = {
    "veth": "ip link add port type veth peer name eth0",
    "sch_tbf": "tc qdisc add dev lo root tbf rate 1mbit burst 2kb limit 2kb",
}


def why_not() -> str | None:
    """Return a one-line reason why this machine does not support virtual hosts, with the remedy, or None if it does."""
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing:
        packages = "iproute2 util-linux mount hostname"
        return f"virtual hosts need {', '.join(missing)}: apt-get install {packages}, or the equivalent"
    if not shutil.which(compiler()):
        return f"virtual hosts need a C compiler, but {compiler()} was not found: apt-get install gcc, or set CC"
    if not _works("true"):
        remedy = "run a container with --privileged" if os.geteuid() == 0 else "be root, or allow user namespaces"
        return f"virtual hosts need their own namespaces, which this machine denies: {remedy}"
    for module, command in _KERNEL.items():
        if not _works(command):
            return f"virtual hosts need kernel module {module}, which is denied or missing: modprobe {module}"
    return None


def unshare_line(command: Sequence[str]) -> list[str]:
    """Return a command line that runs the command as the first process of new namespaces.

    Users other than root become root inside the namespaces.
    """
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *user, *_NAMESPACES, "--", *command]


def _works(command: str) -> bool:
    done = subprocess.run(unshare_line(command.split()), capture_output=True, stdin=subprocess.DEVNULL)
    return done.returncode == 0


def compiler() -> str:
    """Return the command of the C compiler that builds wire.c."""
    return os.environ.get("CC") or "cc"
