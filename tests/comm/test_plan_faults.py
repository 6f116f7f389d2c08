"""Tests that the plan checks detect faults planted in steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from plan_cases import FLAT, REGULAR, check, lay_out

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.steps import Combine, PlanStep
from hpcbench.contract.traffic import Algorithm

INTACT = Plan.steps
Change = Callable[[Plan, int, int, list[PlanStep]], list[PlanStep]]


@contextmanager
def changed(change: Change) -> Iterator[None]:
    """Replace every plan's steps with `change(plan, rank, slice, steps)`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "steps", lambda plan, rank, k: change(plan, rank, k, INTACT(plan, rank, k)))
        yield


def without(step: PlanStep, sends: int | None = None, receives: int | None = None) -> PlanStep:
    """Return the step without the parts sent to, or received from, a rank."""
    return replace(
        step,
        sends=tuple(part for part in step.sends if part.peer != sends),
        receives=tuple(part for part in step.receives if part.peer != receives),
    )


def contribution_lost(plan, rank, k, steps):
    """Omit both the send and the receive of rank 1's first contribution to rank 0."""
    lost = next((s.stage for s in INTACT(plan, 0, k) if any(part.peer == 1 for part in s.receives)), None)
    if rank == 0:
        return [without(s, receives=1) if s.stage == lost else s for s in steps]
    return [without(s, sends=0) if s.stage == lost and rank == 1 else s for s in steps]


def never_received(plan, rank, k, steps):
    return [without(s, receives=1) for s in steps] if rank == 0 else steps


def never_sent(plan, rank, k, steps):
    return [without(s, sends=0) for s in steps] if rank == 1 else steps


def other_owner(plan, rank, k, steps):
    """Make rank 1 treat its neighbor's piece as its own."""
    if rank != 1:
        return steps
    pieces = plan.slices[k]
    return INTACT(replace(plan, slices=(*plan.slices[:k], (*pieces[1:], pieces[0]), *plan.slices[k + 1 :])), 1, k)


def owners_turned(plan, rank, k, steps):
    """Rotate the owners on all ranks, so that the ranks agree with each other, but not with what the caller expects."""
    turned = [(*pieces[1:], pieces[0]) for pieces in plan.slices]
    return INTACT(replace(plan, slices=tuple(turned)), rank, k)


def other_stage(plan, rank, k, steps):
    return [replace(s, stage=s.stage + 1) for s in steps] if rank == 1 else steps


def other_form(plan, rank, k, steps):
    return [replace(s, coded=not s.coded) for s in steps] if rank == 1 else steps


def own_part_exact(plan, rank, k, steps):
    """Make both sides of recursive doubling add the peer's decoded values to their own exact values."""
    return [replace(s, combine=Combine.SUM) if s.combine is Combine.SUM_DECODED else s for s in steps]


def own_piece_exact(plan, rank, k, steps):
    """Make owners send encoded pieces but keep the exact values."""

    def split(s: PlanStep) -> list[PlanStep]:
        if s.combine is not Combine.REPLACE:
            return [s]
        return [replace(s, combine=Combine.DELIVER, receives=()), replace(s, sends=())]

    return [part for s in steps for part in split(s)]


def encoded_again(plan, rank, k, steps):
    """Make ranks encode pieces again before forwarding them."""
    first = next((s for s in steps if s.combine is Combine.REPLACE), None)
    return [part for s in steps for part in ([s] if s is first else own_piece_exact(plan, rank, k, [s]))]


ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER
RING, TWO_SHOT, DOUBLING = Algorithm.RING, Algorithm.TWO_SHOT, Algorithm.DOUBLING
HIERARCHICAL, HIERARCHICAL_ENCODED = Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED

FAULTS: list[tuple[Change, str, list[tuple[Operation, Algorithm]]]] = [
    (contribution_lost, "none", [(ALL_REDUCE, a) for a in (TWO_SHOT, HIERARCHICAL, HIERARCHICAL_ENCODED, DOUBLING)]),
    (never_received, "none", [(ALL_REDUCE, a) for a in (TWO_SHOT, HIERARCHICAL, DOUBLING)]),
    (never_sent, "none", [(ALL_REDUCE, a) for a in (TWO_SHOT, HIERARCHICAL, DOUBLING)]),
    (other_owner, "none", [(o, a) for o in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER) for a in (TWO_SHOT, RING)]),
    (owners_turned, "none", [(o, a) for o in (REDUCE_SCATTER, ALL_GATHER) for a in (TWO_SHOT, RING, HIERARCHICAL)]),
    (other_stage, "none", [(ALL_REDUCE, a) for a in (TWO_SHOT, HIERARCHICAL, RING, DOUBLING)]),
    (other_form, "none", [(ALL_REDUCE, a) for a in (TWO_SHOT, HIERARCHICAL, RING, DOUBLING)]),
    (own_part_exact, "zfp:8", [(ALL_REDUCE, DOUBLING)]),
    (own_piece_exact, "zfp:8", [(o, a) for o in (ALL_REDUCE, ALL_GATHER) for a in (TWO_SHOT, RING, HIERARCHICAL)]),
    (encoded_again, "zfp:8", [(o, a) for o in (ALL_GATHER, ALL_REDUCE) for a in (RING, HIERARCHICAL_ENCODED)]),
    (encoded_again, "zfp:8", [(Operation.BROADCAST, TWO_SHOT)]),
]


@pytest.mark.parametrize(
    ("fault", "codec", "operation", "algorithm"),
    [(fault, codec, *pair) for fault, codec, pairs in FAULTS for pair in pairs],
)
def test_a_planted_fault_is_found(fault, codec, operation, algorithm):
    for topology in [REGULAR[1]] if algorithm in (HIERARCHICAL, HIERARCHICAL_ENCODED) else [FLAT[4], FLAT[7]]:
        planned = lay_out(operation, 9001, topology, get_codec(codec), algorithm, 2)
        check(planned, integers=False)
        with changed(fault), pytest.raises(AssertionError):
            check(planned, integers=False)
