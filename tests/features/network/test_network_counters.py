"""Tests of a node's network counters, with artificial kernel files."""

from pathlib import Path

import pytest

from hpcbench.features.network.counters import Reading, read_counters

HEADER = (
    "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets ...\n"
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def list_interfaces(tmp_path: Path, **sent_and_received: tuple[int, int]) -> Path:
    lines = [
        f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0"
        for name, (sent, received) in sent_and_received.items()
    ]
    path = tmp_path / "dev"
    path.write_text(HEADER + "\n".join(lines) + "\n", encoding="ascii")
    return path


def read(tmp_path: Path, net_dev: Path | None = None) -> dict[str, Reading]:
    return read_counters(net_dev or tmp_path / "none", tmp_path / "class")


def test_a_namespace_has_its_interfaces_but_not_the_loopback(tmp_path: Path):
    counters = read(tmp_path, list_interfaces(tmp_path, lo=(9, 9), eth0=(100, 200)))
    assert counters == {"eth0": Reading("interface", 100, 200)}


def test_a_node_counts_its_physical_interfaces_only(tmp_path: Path):
    """The counter of the physical interface includes the bytes of bonds, VLANs, bridges and container interfaces."""
    for name in ("eth0", "eth1"):
        (tmp_path / "class" / "net" / name / "device").mkdir(parents=True)
    (tmp_path / "class" / "net" / "bond0" / "bonding").mkdir(parents=True)
    (tmp_path / "class" / "net" / "docker0" / "bridge").mkdir(parents=True)
    write(tmp_path / "class" / "net" / "eth0.7" / "uevent", "DEVTYPE=vlan\nINTERFACE=eth0.7\n")
    table = list_interfaces(
        tmp_path,
        **{name: (k, 10 * k) for k, name in enumerate(("eth0", "eth1", "bond0", "docker0", "eth0.7", "veth1"))},
    )
    assert set(read(tmp_path, table)) == {"eth0", "eth1"}


def test_a_namespace_without_physical_interfaces_leaves_out_what_is_built_on_others(tmp_path: Path):
    write(tmp_path / "class" / "net" / "v7" / "uevent", "DEVTYPE=vlan\n")
    assert set(read(tmp_path, list_interfaces(tmp_path, veth0=(1, 1), v7=(1, 1)))) == {"veth0"}


def test_ip_over_infiniband_is_counted_by_the_port(tmp_path: Path):
    write(tmp_path / "class" / "net" / "ib0" / "type", "32\n")
    (tmp_path / "class" / "net" / "ib0" / "device").mkdir()
    port = tmp_path / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    write(port / "link_layer", "InfiniBand\n")
    write(port / "counters" / "port_xmit_data", "1000\n")
    write(port / "counters" / "port_rcv_data", "2000\n")
    counters = read(tmp_path, list_interfaces(tmp_path, ib0=(5, 5)))
    assert counters == {"mlx5_0/1": Reading("infiniband", 4000, 8000)}, "the counters have units of four bytes"


def test_a_saturated_counter_is_unknown(tmp_path: Path):
    port = tmp_path / "class" / "infiniband" / "mlx4_0" / "ports" / "1"
    write(port / "link_layer", "InfiniBand\n")
    write(port / "counters" / "port_xmit_data", f"{2**32 - 1}\n")
    write(port / "counters" / "port_rcv_data", "7\n")
    assert read(tmp_path)["mlx4_0/1"] == Reading("infiniband", None, 28)


@pytest.mark.parametrize(("driver", "kind"), [("mlx5_core", "roce-apart"), ("bnxt_en", "roce")])
def test_rdma_over_ethernet_depends_on_the_driver(tmp_path: Path, driver: str, kind: str):
    device = tmp_path / "class" / "infiniband" / "rdma0"
    write(device / "ports" / "1" / "link_layer", "Ethernet\n")
    for name in ("port_xmit_data", "port_rcv_data"):
        write(device / "ports" / "1" / "counters" / name, "3\n")
    (tmp_path / "drivers" / driver).mkdir(parents=True)
    (device / "device").mkdir()
    (device / "device" / "driver").symlink_to(tmp_path / "drivers" / driver)
    assert read(tmp_path)["rdma0/1"] == Reading(kind, 12, 12)  # type: ignore[arg-type]


def test_slingshot_counters_have_the_time_behind_the_value(tmp_path: Path):
    telemetry = tmp_path / "class" / "cxi" / "cxi0" / "device" / "telemetry"
    write(telemetry / "hni_sts_tx_ok_octets", "123456789012@1764300000.123456789\n")
    write(telemetry / "hni_sts_rx_ok_octets", "17@1764300000.1\n")
    assert read(tmp_path) == {"cxi0": Reading("slingshot", 123456789012, 17)}


def test_a_node_without_counters_has_none(tmp_path: Path):
    assert read(tmp_path) == {}


def test_this_machine_has_counters_that_do_not_go_back():
    before = read_counters()
    after = read_counters()
    assert before.keys() == after.keys()
    assert all((after[name].sent or 0) >= (before[name].sent or 0) for name in before)
