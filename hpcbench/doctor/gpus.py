"""GPUs of this machine, as reported by the driver's tools."""

import json
import re
from collections import Counter
from dataclasses import dataclass

from hpcbench.batch.schedulers.attempt import attempt
from hpcbench.doctor.check import Check, report_missing, report_ok, report_unknown


@dataclass(frozen=True)
class DetectedGpu:
    """A GPU and its properties."""

    model: str
    memory_gb: int | None
    driver: str


@dataclass(frozen=True)
class LocalGpus:
    """GPUs of this machine, or the reason why none were found."""

    gpus: tuple[DetectedGpu, ...]
    problem: str = ""
    absent: bool = True
    """Whether no GPU tool is installed, as on a machine without GPUs."""


def gpus_here() -> LocalGpus:
    """Query NVIDIA's tool, then AMD's."""
    nvidia = attempt(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"])
    if nvidia.ok:
        rows = [[part.strip() for part in line.split(",")] for line in nvidia.out.splitlines() if line.count(",") == 2]
        gpus = tuple(
            DetectedGpu(model, int(size) // 1024 if size.isdigit() else None, driver) for model, size, driver in rows
        )
        if gpus:
            return LocalGpus(gpus, absent=False)
    amd = attempt(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json"])
    if amd.ok and (gpus := _amd(amd.out)):
        return LocalGpus(gpus, absent=False)
    problem = "; ".join(answer.problem or f"{answer.program} names none" for answer in (nvidia, amd))
    return LocalGpus((), problem, absent=not (nvidia.present or amd.present))


def check_gpus(needed: bool) -> Check:
    """Check the GPUs. Set `needed` if the ranks run on the GPUs of this machine."""
    gpus = gpus_here()
    if gpus.gpus:
        kinds = Counter(f"{gpu.model}, {gpu.memory_gb or '?'} GB, driver {gpu.driver}" for gpu in gpus.gpus)
        return report_ok("GPUs", "; ".join(f"{number} x {kind}" for kind, number in kinds.items()), needed=needed)
    if "version mismatch" in gpus.problem:
        remedy = "the driver was updated, but its old kernel module is still loaded: reload the module, or reboot"
        return report_missing("GPUs", gpus.problem, remedy, needed=needed)
    remedy = "install the driver, or write device: cpu in the site file" if needed else ""
    if gpus.absent or "did not answer" not in gpus.problem:
        return report_missing("GPUs", f"none detected: {gpus.problem}", remedy, needed=needed)
    return report_unknown("GPUs", gpus.problem, "the driver hangs: check the kernel's log", needed=needed)


def _amd(text: str) -> tuple[DetectedGpu, ...]:
    try:
        cards = json.loads(text)
    except ValueError:
        return ()
    driver = str(cards.get("system", {}).get("Driver version", "unknown"))
    gpus = []
    for name, card in sorted(cards.items()):
        if re.fullmatch(r"card\d+", name):
            model = next(
                (card[key] for key in ("Card series", "Card Series", "Card model", "Card Model") if key in card),
                "AMD GPU",
            )
            size = str(card.get("VRAM Total Memory (B)", ""))
            gpus.append(DetectedGpu(str(model), int(size) >> 30 if size.isdigit() else None, driver))
    return tuple(gpus)
