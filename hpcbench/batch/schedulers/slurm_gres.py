"""The GPUs that Slurm lists among the generic resources (gres) of a node."""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"[^,()]+(?:\([^)]*\))?")
"""An entry such as ``gpu:a100:4(S:0-1)``; there are commas between parentheses, too."""
_SOCKETS = re.compile(r"\(S:([\d,-]+)\)")
# NVIDIA's names of profiles have the number of compute slices first, 1 to 7: 1g.10gb, a100_3g.20gb.
_MIG = re.compile(r"(?<![0-9])[1-7]g[._-]?\d+(?:gb)?|(?<![a-z])mig(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class GresEntry:
    """GPUs of one model in a node."""

    model: str
    """Slurm's type; empty where it has none."""
    number: int
    sockets: str
    """Sockets that they are near to, such as ``0`` or ``0-1``; empty if Slurm does not report them."""

    @property
    def is_slice(self) -> bool:
        """Whether they are parts of GPUs, by the name of their type."""
        return bool(_MIG.search(self.model))


@dataclass(frozen=True)
class Gpus:
    """The whole GPUs of a node, and the slices of others."""

    entries: tuple[GresEntry, ...]
    slices: tuple[GresEntry, ...] = ()

    @property
    def number(self) -> int:
        """Number of whole GPUs."""
        return sum(entry.number for entry in self.entries)

    @property
    def models(self) -> tuple[str, ...]:
        """Their models, each once."""
        return tuple(dict.fromkeys(entry.model for entry in self.entries if entry.model))

    @property
    def _kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.model for entry in self.entries))

    @property
    def doubt(self) -> str:
        """Why the number has to be checked, in words; empty where it is certain."""
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
        """How a job asks for the whole GPUs alone; empty where the node has no slices, or its GPUs have no names."""
        if not self.slices or "" in self._kinds:
            return ""
        return ",".join(f"gpu:{model}:{self._number_of(model)}" for model in self.models)

    def _number_of(self, model: str) -> int:
        return sum(entry.number for entry in self.entries if entry.model == model)


def read_gres(text: str) -> Gpus:
    """Return the GPUs in a node's list of generic resources; resources of other names, such as ``vgpu``, are none.

    Parameters
    ----------
    text
        As ``sinfo --format=%G`` prints it: ``gpu:a100:4(S:0-1),nvme:1``.
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
    number = int(fields.pop()) if fields and fields[-1].isdigit() else 1  # Slurm counts one where no number is given
    sockets = _SOCKETS.search(text)
    return GresEntry(":".join(fields), number, sockets[1] if sockets else "") if number else None
