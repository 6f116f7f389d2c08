"""GPUs among the generic resources (gres) of a Slurm node."""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"[^,()]+(?:\([^)]*\))?")
"""An entry such as ``gpu:a100:4(S:0-1)``. The parentheses may contain commas."""
_SOCKETS = re.compile(r"\(S:([\d,-]+)\)")
# NVIDIA profile names contain the number of compute slices, 1 to 7: 1g.10gb, a100_3g.20gb.
_MIG = re.compile(r"(?<![0-9])[1-7]g[._-]?\d+(?:gb)?|(?<![a-z])mig(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class GresEntry:
    """GPUs of the same model on a node."""

    model: str
    """GPU type in Slurm, possibly empty."""
    number: int
    sockets: str
    """Sockets to which the GPUs are attached, such as ``0`` or ``0-1``, or empty if Slurm reports none."""

    @property
    def is_slice(self) -> bool:
        """Whether the type name shows that the entry consists of GPU slices."""
        return bool(_MIG.search(self.model))


@dataclass(frozen=True)
class Gpus:
    """Whole GPUs and GPU slices of a node."""

    entries: tuple[GresEntry, ...]
    slices: tuple[GresEntry, ...] = ()

    @property
    def number(self) -> int:
        """Number of whole GPUs."""
        return sum(entry.number for entry in self.entries)

    @property
    def models(self) -> tuple[str, ...]:
        """Unique models of the whole GPUs."""
        return tuple(dict.fromkeys(entry.model for entry in self.entries if entry.model))

    @property
    def _kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.model for entry in self.entries))

    @property
    def doubt(self) -> str:
        """Human-readable reason why the number needs checking. It is empty if the number is certain."""
        doubts = []
        if len(self._kinds) > 1:
            numbers = [f"{self._number_of(model)} {model or 'without a name'}" for model in self._kinds]
            most = max(self.models, key=self._number_of)
            doubts.append(
                f"{len(self._kinds)} GPU models in a node ({', '.join(numbers)}); to use one of them, write gpus: "
                f"{self._number_of(most)} and --gres=gpu:{most}:{self._number_of(most)} in scheduler.directives"
            )
        if self.slices:
            names = ", ".join(f"{entry.number} {entry.model}" for entry in self.slices)
            doubts.append(f"MIG slices ({names}) are not counted, because they are parts of GPUs")
        return "; ".join(doubts)

    @property
    def request(self) -> str:
        """Request for whole GPUs only. It is empty if the node has no slices, or if its GPUs have no type names."""
        if not self.slices or "" in self._kinds:
            return ""
        return ",".join(f"gpu:{model}:{self._number_of(model)}" for model in self.models)

    def _number_of(self, model: str) -> int:
        return sum(entry.number for entry in self.entries if entry.model == model)


def read_gres(text: str) -> Gpus:
    """Parse the GPUs in a node's list of generic resources. Other resources, such as ``vgpu``, are ignored.

    Parameters
    ----------
    text
        Output of ``sinfo --format=%G``, such as ``gpu:a100:4(S:0-1),nvme:1``.
    """
    entries = [entry for part in _ENTRY.findall(text) if (entry := _entry(part.strip()))]
    return Gpus(
        tuple(entry for entry in entries if not entry.is_slice), tuple(entry for entry in entries if entry.is_slice)
    )


def _entry(text: str) -> GresEntry | None:
    name, *fields = text.partition("(")[0].split(":")
    if name != "gpu":
        return None
    fields = [field for field in fields if field != "no_consume"]
    number = int(fields.pop()) if fields and fields[-1].isdigit() else 1  # without a number Slurm assumes one
    sockets = _SOCKETS.search(text)
    return GresEntry(":".join(fields), number, sockets[1] if sockets else "") if number else None
