"""Planted faults in sparse weights. Each function plants one fault."""

from typing import Any
from unittest.mock import patch

import numpy as np
from planting import Patch, list_faults
from torch import Tensor

from hpcbench.features.prune.engine import formats, masks, select
from hpcbench.features.prune.engine.formats import Bits, Bytes
from hpcbench.features.prune.engine.masks import Masks
from hpcbench.features.prune.engine.select import TargetSlice
from hpcbench.parallel import gradients
from hpcbench.parallel.packing import Packing


def masked_weights_written_back() -> Patch:
    """The optimizer keeps the moments of masked weights and writes the weights back."""
    return patch.object(Masks, "apply", lambda self, piece: None)


def chosen_by_each_rank_alone() -> Patch:
    """Each rank selects weights without considering the weights of other ranks."""
    return patch.object(Masks, "_reduce_over_world", lambda self, op: lambda values: None)


def smallest_neurons_kept() -> Patch:
    """The neurons of largest magnitude are zeroed instead of the smallest."""
    sort = np.lexsort

    def faulty(keys: Any) -> Any:
        return sort(keys)[::-1]

    return patch.object(select.np, "lexsort", faulty)


def places_of_another_group() -> Patch:
    """For each group of four, a message contains the positions of the preceding group."""
    pack = formats.pack_places

    def faulty(mask: Bits, free: Bits) -> Bytes:
        groups = mask.reshape(-1, 4).copy()
        sparse = np.flatnonzero(free.reshape(-1, 4).any(axis=1))
        groups[sparse] = groups[np.roll(sparse, 1)]
        return pack(groups.reshape(-1), free)

    return patch.object(formats, "pack_places", faulty)


def values_in_wrong_places() -> Patch:
    """A packed message is unpacked with every value shifted by one position."""
    unpack = Packing.unpack_own

    def faulty(self: Packing, packed: Tensor) -> Tensor:
        return unpack(self, packed.roll(-1))

    return patch.object(Packing, "unpack_own", faulty)


def masks_of_masters_only() -> Patch:
    """A rank that has no replica keeps the gradients of its masked weights."""
    return patch.object(gradients, "clear", lambda tensors, mask: None)


def zeros_travel() -> Patch:
    """Messages are longer than necessary. All values are correct."""

    def faulty(nonzeros: list[int]) -> int:
        return -(-max(nonzeros) // 16) * 16 + 64

    return patch.object(masks, "compute_piece_length", faulty)


FAULTS = list_faults(
    masked_weights_written_back,
    chosen_by_each_rank_alone,
    smallest_neurons_kept,
    places_of_another_group,
    values_in_wrong_places,
    masks_of_masters_only,
    zeros_travel,
)


def one_replica_has_another_mask() -> Patch:
    """The last replica keeps a weight that the other replicas prune."""
    select_weights = Masks._select

    def faulty(self: Masks, parts: list[TargetSlice], updates: int) -> list[Bits]:
        selection = select_weights(self, parts, updates)
        if self._mesh.dp.rank == self._mesh.dp.size - 1:
            selection[0][np.argmin(selection[0])] = True
        return selection

    return patch.object(Masks, "_select", faulty)


def place_out_of_order() -> Patch:
    """A message contains the same position in a group of four twice."""
    pack = formats.pack_places

    def faulty(mask: Bits, free: Bits) -> Bytes:
        sent = pack(mask, free)
        sent[np.argmax(sent > 0)] = 0b0101
        return sent

    return patch.object(formats, "pack_places", faulty)


FAULTS_IN_TRANSIT = list_faults(one_replica_has_another_mask, place_out_of_order)
"""Faults that end a run with an error."""
