"""Network counters of a node: network interfaces, InfiniBand ports, and Slingshot (CXI) devices.

Interface counters include all protocol headers. Only interfaces in the network namespace of the process are read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NET_DEV = Path("/proc/self/net/dev")
SYS_CLASS = Path("/sys/class")
Kind = Literal["interface", "infiniband", "roce", "roce-apart", "slingshot", "nvlink"]
"""Kind of a network counter.

``roce-apart`` is RDMA over Ethernet that the interface counter excludes. ``roce`` is RDMA over Ethernet that the
interface counter may include.

``nvlink`` denotes links between the GPUs of a node, which are not part of the network.
"""

_INFINIBAND_TYPE = "32"
"""Type of IP-over-InfiniBand interfaces (``ARPHRD_INFINIBAND``).

The port counters include the bytes of these interfaces.
"""
_WORD = 4
"""Bytes per count of an InfiniBand port's data counters."""
_SATURATED = 2**32 - 1
"""Saturation value of old 32-bit InfiniBand counters."""


@dataclass(frozen=True)
class Reading:
    """A reading of a network counter."""

    kind: Kind
    sent: int | None
    """Bytes sent by the device, or None if the counter cannot be read."""
    received: int | None


def read_counters(net_dev: Path = NET_DEV, sys_class: Path = SYS_CLASS) -> dict[str, Reading]:
    """Read all network counters of this node, keyed by device name.

    Parameters
    ----------
    net_dev
        Kernel file with the table of network interfaces.
    sys_class
        Directory with the device classes.
    """
    return {
        **_read_interfaces(net_dev, sys_class / "net"),
        **dict(_read_ports(sys_class / "infiniband")),
        **dict(_read_slingshot(sys_class / "cxi")),
    }


def _read_interfaces(net_dev: Path, directory: Path) -> dict[str, Reading]:
    """Read the counters of interfaces that send to other nodes.

    Normally, these are the physical interfaces. In a network namespace without physical interfaces, all interfaces that
    are not built on another interface are read.
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
    """Return whether the bytes of an interface do not leave the node, or are included in another counter."""
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
    """Classify a port. Interface counters of mlx5 devices exclude RDMA traffic, which bypasses the kernel."""
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
    """Read the number at the beginning of a file. Slingshot files also contain the time (``number@seconds``)."""
    match = re.match(r"\s*([0-9]{1,20})(@|\s|$)", _read_text(path))
    return int(match[1]) if match else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
