"""Software environment of a run: library versions and transport settings."""

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from hpcbench.codecs.registry import instruction_set
from hpcbench.comm import links, nccl
from hpcbench.comm.gpu_aware import Awareness
from hpcbench.comm.half_sums import agreed
from hpcbench.comm.topology import Topology
from hpcbench.contract.run import Run
from hpcbench.train import container


def environment() -> dict[str, Any]:
    """Return the versions of the libraries for computation and communication."""
    return {
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].rstrip("\0").split()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "kernels": instruction_set(),
        **({"container": container.where()} if container.where() else {}),
    }


def describe_transport(run: Run) -> str:
    """Return the library that transports messages, such as ``nccl 2.27.5``."""
    return f"nccl {nccl.version_text(nccl.load().get_version())}" if run.train.transport == "nccl" else "mpi"


def describe_links(measured: links.Links, run: Run, topology: Topology) -> str | None:
    """Return why measured links do not apply to a run, or None if they do."""
    reasons = measured.other_transport(run.train.transport or "mpi"), measured.foreign(topology)
    return "; ".join(filter(None, reasons)) or None


def transport(comm: MPI.Comm, run: Run, aware: Awareness | None) -> dict[str, Any]:
    """Return the settings of the message transport (a collective call)."""
    formats = run.train.message_formats
    settings: dict[str, Any] = {
        "comm_precision": formats,
        "overlap": run.train.overlap,
        "mpi_thread_level": MPI.Query_thread(),
        "links": run.links,
    }
    if run.links:
        settings["links_note"] = describe_links(links.load(Path(run.links)), run, Topology.of(comm))
    if run.scheme.algorithm in ("native", "auto"):
        names, sums = {"fp16": "float16", "bf16": "bfloat16"}, agreed(comm)
        settings["half_sums"] = {name: sums[names[name]].whose for name in sorted({*formats.values()} & names.keys())}
    settings["transport"] = describe_transport(run)
    if aware is not None:
        settings["gpu_aware_mpi"] = str(aware)
    return settings
