"""Planted faults in gradients that are sent as rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI
from planting import Patch, list_faults
from torch import Tensor, nn

from hpcbench.comm import steps
from hpcbench.comm.group import Group
from hpcbench.comm.work import Work
from hpcbench.parallel.sparse import measure, reduction
from hpcbench.parallel.sparse.add import Rows
from hpcbench.parallel.sparse.reduction import ByRows
from hpcbench.parallel.sparse.switch import Ways
from hpcbench.parallel.sparse.touched import Index, Touched


def _wrong_indices(verb: str) -> Patch:
    send = getattr(Group, verb)

    def faulty(self: Group, src: Any, dst: Any, counts: Any, **named: Any) -> Work:
        if getattr(src, "dtype", None) == np.int32 and self.rank == self.size - 1:
            sends = counts[0] if verb == "all_to_all" else [len(src)]
            src = np.concatenate([np.roll(part, 1) for part in np.split(src, np.cumsum(sends)[:-1])])
        work: Work = send(self, src, dst, counts, **named)
        return work

    return patch.object(Group, verb, faulty)


def index_of_another_row() -> Patch:
    """The last replica sends its rows with the indices of neighboring rows."""
    return _wrong_indices("all_gather_counts")


def index_of_another_row_to_an_owner() -> Patch:
    """With ZeRO, the last replica sends rows to their owners with the indices of neighboring rows."""
    return _wrong_indices("all_to_all")


def row_of_two_ranks_counted_once() -> Patch:
    """If several replicas touched a row, only the values of the last replica are used."""

    def faulty(table: Tensor, everyones: Sequence[Rows]) -> None:
        for places, values in everyones:
            table.index_copy_(0, places, values)

    return patch.object(reduction, "add_rows", faulty)


def summed_in_another_order_on_odd_ranks() -> Patch:
    """Odd ranks add the rows of replicas in reverse order."""
    add = reduction.add_rows

    def faulty(table: Tensor, everyones: Sequence[Rows]) -> None:
        add(table, everyones[:: -1 if MPI.COMM_WORLD.rank % 2 else 1])

    return patch.object(reduction, "add_rows", faulty)


def rows_of_the_last_micro_batch_only() -> Patch:
    """Gradients accumulate over micro-batches, but only the rows of the last micro-batch are sent."""
    note = Touched._note

    def faulty(self: Touched, tokens: Tensor, gradient: Any) -> None:
        self.forget()
        note(self, tokens, gradient)

    return patch.object(Touched, "_note", faulty)


def rows_noted_in_the_forward_pass() -> Patch:
    """Rows are recorded in the forward pass, although pipelines run more forward passes before the gradients exist."""

    def faulty(self: Touched, module: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> None:
        if vectors.requires_grad:
            self._note(given[0], None)

    return patch.object(Touched, "_looked_up", faulty)


def rows_not_averaged() -> Patch:
    """Rows are sent without division by the loss scale and by the number of replicas."""
    start = ByRows.start
    return patch.object(ByRows, "start", lambda self, piece, gradients, divisor: start(self, piece, gradients, 1.0))


def border_rows_to_one_owner() -> Patch:
    """A row that spans two pieces is sent only to the rank that owns the end of the row."""
    within = reduction._within

    def faulty(index: Index, run: range) -> tuple[int, int]:
        start, stop = within(index, run)
        return start, stop - (stop > start and index[stop - 1] == run.stop - 1)

    return patch.object(reduction, "_within", faulty)


def old_sums_left_in_the_table() -> Patch:
    """Rows that no replica touched retain stale memory contents."""
    home = reduction._home

    def faulty(*given: Any) -> tuple[Tensor, Tensor]:
        result, table = home(*given)
        return result, table.fill_(1.0)

    return patch.object(reduction, "_home", faulty)


def own_rows_kept_exact() -> Patch:
    """A replica adds its own exact rows, while all other replicas add the decoded rows."""
    gather = steps.two_shot_gather

    def faulty(*given: Any) -> list[steps.PlanStep]:
        return [replace(step, combine=steps.Combine.DELIVER) for step in gather(*given)]

    return patch.object(steps, "two_shot_gather", faulty)


def sent_where_whole_is_shorter() -> Patch:
    """Rows are sent although the whole gradient is shorter. Only the number of bytes is wrong."""
    return patch.object(Ways, "shorter_by_rows", lambda self, counts: True)


def decides_by_its_own_times() -> Patch:
    """A rank computes its switch point from its own measurements.

    Ranks choose different paths and wait for each other.
    """
    return patch.object(measure, "longest", lambda world, times, exact: list(times))


def alternating() -> Patch:
    """No fault: either rows or the whole gradient is sent, whichever is shorter."""
    return patch.object(Ways, "shorter_by_rows", lambda self, counts: sum(map(sum, counts)) % 2 == 0)


FAULTS = list_faults(
    index_of_another_row,
    index_of_another_row_to_an_owner,
    row_of_two_ranks_counted_once,
    summed_in_another_order_on_odd_ranks,
    rows_of_the_last_micro_batch_only,
    rows_noted_in_the_forward_pass,
    rows_not_averaged,
    border_rows_to_one_owner,
    old_sums_left_in_the_table,
    own_rows_kept_exact,
    sent_where_whole_is_shorter,
    decides_by_its_own_times,
)
PLANTS = {**FAULTS, **list_faults(alternating)}
