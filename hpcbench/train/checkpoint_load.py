"""Loading of a rank's state from a checkpoint of any layout. Only files that overlap with the rank's part are opened.

The files are memory-mapped, so that only the copied parts are read from the disk.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hpcbench.parallel.sharding import Shard, Tied
from hpcbench.train.checkpoint_index import RESIDUALS, Fragment, Index, fragments
from hpcbench.train.extent import Extent, copy, meet

File = dict[str, Any]


class Files:
    """The ranks' files of a checkpoint. Each is opened when it is first needed.

    Parameters
    ----------
    path
        Function that returns the path of a rank's file.
    """

    def __init__(self, path: Callable[[int], Path]) -> None:
        self._path = path
        self._opened: dict[int, File] = {}

    def __getitem__(self, rank: int) -> File:
        if rank not in self._opened:
            self._opened[rank] = torch.load(self._path(rank), map_location="cpu", weights_only=True, mmap=True)
        return self._opened[rank]

    @property
    def opened(self) -> list[int]:
        """Ranks whose files were opened."""
        return sorted(self._opened)


def fill(state: dict[str, Any], index: Index, files: Files) -> None:
    """Copy the weights and the optimizer's tensors of `state` from the files.

    Raises
    ------
    ValueError
        The checkpoint lacks some of them.
    """
    for fragment in fragments(state):
        if fragment.kind != RESIDUALS:
            _fill(fragment, index, files)


def _fill(fragment: Fragment, index: Index, files: Files) -> None:
    to, filled = fragment.extent, 0
    for part in index.parts(fragment.kind, fragment.name, fragment.shape):
        if meet(to, part.extent):
            source = _fields(files[part.rank], fragment)
            for key, target in fragment.fields.items():
                copied = copy(target, to, source[key], part.extent)
            filled += copied
    if filled != to.length:
        raise ValueError(f"{filled} of {to.length} elements found of the {fragment.kind} of {fragment.name}")


def _fields(file: File, fragment: Fragment) -> dict[str, Tensor]:
    fields: dict[str, Tensor] = file[fragment.kind][fragment.name]
    if {key: values.dtype for key, values in fields.items()} != {k: v.dtype for k, v in fragment.fields.items()}:
        raise ValueError(f"the {fragment.kind} of {fragment.name} have fields {sorted(fields)} there, or other dtypes")
    return fields


def take_own_residuals(state: dict[str, Any], file: File) -> None:
    """Load the residuals of the same rank in the same layout, bit for bit."""
    for fragment in fragments(state):
        if fragment.kind == RESIDUALS:
            for key, target in fragment.fields.items():
                target.copy_(_fields(file, fragment)[key])


def share_residuals(state: dict[str, Any], index: Index, files: Files, holders: list[list[int]]) -> None:
    """Load the residuals of another layout. They are added up over its ranks and divided equally.

    The residuals of sums (``summed``) are added to those of contributions (``sent``), because both correct the same
    sum. So the total error of each parameter is conserved, up to the rounding of a share to fp32, whichever ranks own
    sums and hold summands now. Only a layout of one replica, which sends nothing, has no residuals.

    Parameters
    ----------
    holders
        Holder of each writing rank's residuals. The residuals of ranks with the same holder count once.
    """
    for fragment in fragments(state):
        if fragment.kind == RESIDUALS:
            total = lacking(fragment, index, files, holders)
            fragment.fields["summed"].zero_()
            fragment.fields["sent"].copy_(total / _shares(state, fragment.name))


def _shares(state: dict[str, Any], name: str) -> int:
    """Return the number of different residuals that the layout has for the same elements of a parameter.

    Each gets a share.
    """
    shard: Shard = state["shards"][name]
    shares: int = state["replicas"] // shard.ep
    if state["summands"]:
        shares *= (shard.copies if shard.partial else 1) * (1 if shard.tied is Tied.NO else 2)
    return shares


def lacking(fragment: Fragment, index: Index, files: Files, holders: list[list[int]]) -> Tensor:
    """Return the total error of all messages of a layout, [fragment.extent.length], fp64."""
    total = torch.zeros(fragment.extent.length, dtype=torch.float64)
    piece = torch.zeros_like(total)
    counted: set[tuple[tuple[int, ...], Extent]] = set()
    for part in index.parts(RESIDUALS, fragment.name, fragment.shape):
        once = tuple(holders[part.rank]), part.extent
        if once not in counted and meet(fragment.extent, part.extent):
            counted.add(once)
            for values in _fields(files[part.rank], fragment).values():
                piece.zero_()
                copy(piece, fragment.extent, values, part.extent)
                total += piece
    return total
