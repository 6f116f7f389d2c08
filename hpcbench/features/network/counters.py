"""Network counters of a node: interfaces of the kernel, InfiniBand ports, and Slingshot (CXI) devices.

Counters of interfaces include all protocol headers. They are those of the network namespace of the calling process.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NET_DEV = Path("/proc/self/net/dev")
SYS_CLASS = Path("/sys/class")
Kind = Literal["interface", "infiniband", "roce", "roce-apart", "slingshot", "nvlink"]
"""``roce-apart``: RDMA over Ethernet whose bytes are not in the interface's counter; ``roce``: they may be in both.

``nvlink``: links between the GPUs of a node, which are not part of the network.
"""

_INFINIBAND_TYPE = "32"
"""Type of IP-over-InfiniBand interfaces (``ARPHRD_INFINIBAND``). Their bytes are also in the counters of the port."""
_WORD = 4
"""Bytes of one unit of an InfiniBand port's data counters."""
_SATURATED = 2**32 - 1
"""Value at which old 32-bit InfiniBand counters stop."""


@dataclass(frozen=True)
class Reading:
    """Value of a counter at one time."""

    kind: Kind
    sent: int | None
    """Bytes that the device has sent; None if the counter cannot be read."""
    received: int | None


def read_counters(net_dev: Path = NET_DEV, sys_class: Path = SYS_CLASS) -> dict[str, Reading]:
    """Read all counters of this node, by device name. The dictionary is empty if there are none.

    Parameters
    ----------
    net_dev
        The kernel's table of network interfaces.
    sys_class
        Directory with the classes of devices.
    """
    return {
        **_read_interfaces(net_dev, sys_class / "net"),
        **dict(_read_ports(sys_class / "infiniband")),
        **dict(_read_slingshot(sys_class / "cxi")),
    }


def _read_interfaces(net_dev: Path, directory: Path) -> dict[str, Reading]:
    """Read the interfaces that send to other nodes.

    These are the physical ones. In a network namespace there are none, and all interfaces that are not built on
    another one are read.
    """
    readings: dict[str, Reading] = {}
    try:
        lines = net_dev.read_text(encoding="ascii", errors="replace").splitlines()[2:]
    except OSError:
        return readings
    for line in lines:
        name, _, columns = line.partition(":")
        numbers = columns.split()
        if len(numbers) >= 9 and not _is_derived(directory / name.strip(), name.strip()):
            readings[name.strip()] = Reading("interface", int(numbers[8]), int(numbers[0]))
    physical = {name: reading for name, reading in readings.items() if (directory / name / "device").exists()}
    return physical or readings


def _is_derived(directory: Path, name: str) -> bool:
    """Return whether another counter has the bytes of an interface, or they do not leave the node."""
    if name == "lo" or (directory / "bonding").exists() or (directory / "bridge").exists():
        return True
    kind = re.search(r"^DEVTYPE=(\w+)", _read_text(directory / "uevent"), re.MULTILINE)
    return (kind is not None and kind[1] in ("vlan", "bridge", "bond", "macvlan", "vxlan")) or (
        _read_text(directory / "type").strip() == _INFINIBAND_TYPE
    )


def _read_ports(directory: Path) -> Iterator[tuple[str, Reading]]:
    for port in sorted(directory.glob("*/ports/*")):
        device = port.parent.parent
        sent, received = (_read_words(port / "counters" / f"port_{direction}_data") for direction in ("xmit", "rcv"))
        yield f"{device.name}/{port.name}", Reading(_classify_port(port, device), sent, received)


def _classify_port(port: Path, device: Path) -> Kind:
    """Classify a port. mlx5 interfaces count what passes the kernel only, so that RDMA traffic adds to their bytes."""
    if _read_text(port / "link_layer").strip() != "Ethernet":
        return "infiniband"
    driver = (device / "device" / "driver").resolve().name
    return "roce-apart" if driver == "mlx5_core" else "roce"


def _read_words(path: Path) -> int | None:
    value = _read_number(path)
    return None if value is None or value == _SATURATED else value * _WORD


def _read_slingshot(directory: Path) -> Iterator[tuple[str, Reading]]:
    for device in sorted(directory.glob("cxi*")):
        sent, received = (
            _read_number(device / "device" / "telemetry" / f"hni_sts_{direction}_ok_octets")
            for direction in ("tx", "rx")
        )
        yield device.name, Reading("slingshot", sent, received)


def _read_number(path: Path) -> int | None:
    """Read the number at the beginning of a file. Slingshot's files also have the time, as ``number@seconds``."""
    match = re.match(r"\s*([0-9]{1,20})(@|\s|$)", _read_text(path))
    return int(match[1]) if match else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
