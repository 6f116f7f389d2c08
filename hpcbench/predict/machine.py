"""The modeled machine: a device, its matrix product speed, and the links between devices."""

from dataclasses import dataclass, replace

from hpcbench.predict import constants, devices, products
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.devices import DeviceSpec
from hpcbench.predict.fabric import Fabric
from hpcbench.predict.layers import MeasuredLayer
from hpcbench.predict.products import MeasuredProduct, Products


@dataclass(frozen=True)
class Machine:
    """The machine that a step runs on."""

    name: str
    device: DeviceSpec
    products: Products
    fabric: Fabric
    shared_cores: float | None = None
    """Number of cores shared by all ranks of a run, for example on virtual hosts of one machine, or None if each
    rank has its own cores.
    """
    oversubscribed: bool = False
    """Whether the site allows ranks to share their cores with each other or with other programs."""
    work_factor: float = 1.0
    """Computing time of earlier runs divided by the computing time from the tables."""
    work_basis: InputBasis | None = None
    """Source of `work_factor` if the factor comes from earlier runs. None means the source of the tables."""
    layers: tuple[MeasuredLayer, ...] = ()
    """Measured layers."""
    update_s: float | None = None
    """Measured optimizer update time per parameter, in seconds."""

    @property
    def gpu(self) -> bool:
        """Whether ranks compute on GPUs."""
        return self.device.family != "cpu"


def make_gpu_machine(
    name: str,
    *,
    memory_gb: float | None = None,
    node_gbit: float | None,
    latency_s: float | None = None,
    within_gb_s: float | None = None,
) -> Machine | None:
    """Model a GPU cluster from tables and data sheets, or return None if they do not contain the GPU.

    Parameters
    ----------
    node_gbit
        One-way network bandwidth of a node in Gbit/s, or None to assume 100 Gbit/s.
    within_gb_s
        Bandwidth in GB/s of the links between the GPUs of a node, if it differs from the default for this GPU.
    """
    device = devices.find_device(name, memory_gb)
    table = products.read_published(device.family) if device else None
    if device is None or table is None:
        return None
    fabric = Fabric(
        device.links if within_gb_s is None else "other",
        (within_gb_s or device.link_bytes_per_s / 1e9) * 1e9,
        constants.WITHIN_LATENCY_S,
        (node_gbit or 100.0) * 1e9 / 8,
        latency_s or constants.NETWORK_LATENCY_S,
        constants.NETWORK_SHARE,
        InputBasis.ELSEWHERE if within_gb_s is None and device.links else InputBasis.SHEET,
        InputBasis.ASSUMED if node_gbit is None else InputBasis.SHEET,
    )
    if device.product_share != 1:
        table = replace(table, basis=device.basis, source=device.source)
    return Machine(name, device, table, fabric)


def make_cpu_machine(name: str, *, cores: int, memory_bytes: float | None, node_gbit: float | None) -> Machine:
    """Model a cluster without GPUs and without measurements."""
    device = devices.assume_cpu(cores, memory_bytes)
    table = Products((("fwd", (MeasuredProduct(1024, 1024, 1024, 0.7),)),), cores, InputBasis.ASSUMED, "assumed")
    fabric = Fabric(
        "cpu",
        device.link_bytes_per_s,
        2e-6,
        (node_gbit or 100.0) * 1e9 / 8,
        constants.NETWORK_LATENCY_S,
        constants.NETWORK_SHARE,
        InputBasis.ASSUMED,
        InputBasis.ASSUMED if node_gbit is None else InputBasis.SHEET,
    )
    return Machine(name, device, table, fabric)
