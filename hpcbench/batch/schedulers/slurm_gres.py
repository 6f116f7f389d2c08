"""The GPUs that Slurm lists among the generic resources (gres) of a node."""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"[^,()]+(?:\([^)]*\))?")
"""An entry such as ``gpu:a100:4(S:0-1)``. The parentheses may also contain commas."""
_SOCKETS = re.compile(r"\(S:([\d,-]+)\)")
# NVIDIA's profile names begin with the number of compute slices, 1 to 7: 1g.10gb, a100_3g.20gb.
_MIG = re.compile(r"(?<![0-9])[1-7]g[._-]?\d+(?:gb)?|(?<![a-z])mig(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class GresEntry:
    """GPUs of one model in a node."""

    model: str
    """Slurm's type of the GPUs; empty if there is none."""
    number: int
    sockets: str
    """Sockets that the GPUs are attached to, such as ``0`` or ``0-1``; empty if Slurm does not report them."""

    @property
    def is_slice(self) -> bool:
        """Whether the entry is parts of GPUs, judged by the name of its type."""
        return bool(_MIG.search(self.model))


@dataclass(frozen=True)
class Gpus:
    """The whole GPUs of a node, and slices of GPUs."""

    entries: tuple[GresEntry, ...]
    slices: tuple[GresEntry, ...] = ()

    @property
    def number(self) -> int:
        """Number of whole GPUs."""
        return sum(entry.number for entry in self.entries)

    @property
    def models(self) -> tuple[str, ...]:
        """Models of the whole GPUs, each once."""
        return tuple(dict.fromkeys(entry.model for entry in self.entries if entry.model))

    @property
    def _kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.model for entry in self.entries))

    @property
    def doubt(self) -> str:
        """Why the number has to be checked, for people; empty if it is certain."""
        doubts = []
        if len(self._kinds) > 1:
            numbers = [f"{self._number_of(model)} {model or 'without a name'}" for model in self._kinds]
            most = max(self.models, key=self._number_of)
            doubts.append(
                f"{len(self._kinds)} models in a node ({', '.join(numbers)}); for one write gpus: "
                f"{self._number_of(most)} and --gres=gpu:{most}:{self._number_of(most)} in scheduler.directives"
            )
        if self.slices:
            names = ", ".join(f"{entry.number} {entry.model}" for entry in self.slices)
            doubts.append(f"MIG slices ({names}) are not counted: they are parts of GPUs")
        return "; ".join(doubts)

    @property
    def request(self) -> str:
        """Request for the whole GPUs only; empty if the node has no slices, or its GPUs have no names."""
        if not self.slices or "" in self._kinds:
            return ""
        return ",".join(f"gpu:{model}:{self._number_of(model)}" for model in self.models)

    def _number_of(self, model: str) -> int:
        return sum(entry.number for entry in self.entries if entry.model == model)


def read_gres(text: str) -> Gpus:
    """Return the GPUs in a node's list of generic resources. Other names, such as ``vgpu``, do not count.

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
    number = int(fields.pop()) if fields and fields[-1].isdigit() else 1  # without a number Slurm counts one
    sockets = _SOCKETS.search(text)
    return GresEntry(":".join(fields), number, sockets[1] if sockets else "") if number else None
