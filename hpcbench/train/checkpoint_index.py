"""Checkpoint index, which maps global tensor names to parts in the rank files.

Several ranks may hold the same part, such as replicas and the two copies of a tied weight. Each part is stored in only
one file, so a checkpoint contains every value once. A rank with any layout opens only the files that it needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch import Tensor

from hpcbench.train.extent import Extent

SHARED = ("parameters", "optimizer")
"""Kinds of tensors that belong to the model and whose values do not depend on the layout."""
RESIDUALS = "residuals"
"""Kind of tensors that are specific to each rank."""


class ReplicasDifferError(Exception):
    """Values that must be identical differ between ranks."""


@dataclass(frozen=True)
class Fragment:
    """Part of one tensor that a rank holds.

    Attributes
    ----------
    kind
        Kind of the tensor: one of `SHARED`, or `RESIDUALS`.
    name, shape
        Name and shape of the whole parameter.
    extent
        Part of the parameter.
    fields
        Writable flat views of the state tensors, each with shape [extent.length].
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    extent: Extent
    fields: dict[str, Tensor]

    @property
    def nbytes(self) -> int:
        """Total bytes of all fields."""
        return sum(values.numel() * values.itemsize for values in self.fields.values())


def fragments(state: dict[str, Any]) -> Iterator[Fragment]:
    """Yield the tensors of a `Trainer.state` in their order."""
    shards = state["shards"]
    for kind in SHARED:
        for name, entry in state[kind].items():
            fields = {key: values for key, values in entry.items() if key != "start"}
            extent = Extent.of(shards[name].held, entry["start"], next(iter(fields.values())).numel())
            yield Fragment(kind, name, shards[name].shape, extent, fields)
    for name, entry in state[RESIDUALS].items():
        fields = {key: values.view(-1) for key, values in entry.items()}
        yield Fragment(RESIDUALS, name, shards[name].shape, Extent.of(shards[name].held), fields)


@dataclass(frozen=True)
class Announced:
    """Description of a fragment. Ranks exchange these descriptions before they write files."""

    kind: str
    name: str
    shape: tuple[int, ...]
    extent: Extent
    nbytes: int
    digest: str


def announce(fragment: Fragment) -> Announced:
    """Return the description of a fragment, which must be the same on all ranks that hold the fragment."""
    digest = xxhash.xxh3_128()
    for values in fragment.fields.values():
        digest.update(values.view(torch.uint8).numpy().data)
    return Announced(fragment.kind, fragment.name, fragment.shape, fragment.extent, fragment.nbytes, digest.hexdigest())


def share_out(announced: Sequence[Sequence[Announced]]) -> list[list[int]]:
    """Assign fragments to the ranks that write them.

    If several ranks hold a fragment, it is assigned to the rank with the fewest bytes so far.
    """
    mine: list[list[int]] = [[] for _ in announced]
    load = [0] * len(announced)
    holders: dict[tuple[str, str, Extent], list[tuple[int, int]]] = {}
    for rank, items in enumerate(announced):
        for i, item in enumerate(items):
            if item.kind == RESIDUALS:
                mine[rank].append(i)
                load[rank] += item.nbytes
            else:
                holders.setdefault((item.kind, item.name, item.extent), []).append((rank, i))
    for (kind, name, _), having in holders.items():
        first = announced[having[0][0]][having[0][1]]
        for rank, i in having:
            if announced[rank][i] != first:
                raise ReplicasDifferError(f"ranks {having[0][0]} and {rank} have different {kind} of {name}")
        rank, i = min(having, key=lambda holder: load[holder[0]])
        mine[rank].append(i)
        load[rank] += first.nbytes
    return mine


@dataclass(frozen=True)
class FilePart:
    """Part of a tensor that a rank file contains."""

    rank: int
    extent: Extent


class Index:
    """Index of tensor parts by kind and name.

    Parameters
    ----------
    tables
        Nested mapping kind -> name -> ``{"shape": [...], "parts": [[rank, [[start, stop], ...], start, length],
        ...]}``, in the same form as in JSON.
    """

    def __init__(self, tables: dict[str, dict[str, dict[str, Any]]]) -> None:
        self.tables = tables

    @classmethod
    def of(cls, announced: Sequence[Sequence[Announced]], chosen: Sequence[Sequence[int]]) -> "Index":
        """Create the index of the announced parts that were selected for writing."""
        tables: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in (*SHARED, RESIDUALS)}
        for rank, items in enumerate(chosen):
            for item in (announced[rank][i] for i in items):
                entry = tables[item.kind].setdefault(item.name, {"shape": list(item.shape), "parts": []})
                extent = item.extent
                entry["parts"].append([rank, [list(pair) for pair in extent.box], extent.start, extent.length])
        return cls(tables)

    def parts(self, kind: str, name: str, shape: tuple[int, ...]) -> list[FilePart]:
        """Return the parts of a tensor. The list is empty if the checkpoint does not contain the tensor.

        Raises
        ------
        ValueError
            The tensor has a different shape in the checkpoint.
        """
        entry = self.tables[kind].get(name)
        if entry is None:
            return []
        if tuple(entry["shape"]) != shape:
            raise ValueError(
                f"the {kind} of {name} have shape {entry['shape']} in the checkpoint, but {list(shape)} in this run"
            )
        return [
            FilePart(rank, Extent(tuple((a, b) for a, b in box), start, length))
            for rank, box, start, length in entry["parts"]
        ]
