"""Cost of a call that uses an hpcbench plan: the plan's steps, timed on the machine's links or cores."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcbench.predict.cost import CodecSpeed, Cost, sum_costs
from hpcbench.predict.fabric import PIECEWISE, Fabric, GroupPlacement

if TYPE_CHECKING:
    from hpcbench.comm.plan import Plan
    from hpcbench.comm.steps import PeerSpan

_NOT_HIDDEN = 0.25
"""Exposed fraction of the wire time or the codec work, whichever is shorter, as in `comm.links`."""


def cost_plan(
    plan: "Plan", place: GroupPlacement, fabric: Fabric, width: int, speed: CodecSpeed | None, ratio: float
) -> Cost:
    """Return the cost of a call that uses a plan.

    Parameters
    ----------
    plan
        The plan. If the operation has a root, the root is rank 0.
    place, fabric
        Placement of the group's ranks, and the links.
    width
        Bytes per element.
    speed
        Speed of the codec, or None if nothing is encoded.
    ratio
        Encoded bytes per byte.
    """
    # The steps of ranks differ only in rooted operations.
    ranks = range(place.ranks) if plan.operation.value in PIECEWISE else range(1)
    steps = [_cost_steps(plan, rank, place, fabric, width, speed, ratio) for rank in ranks]
    mean = sum_costs((each, len(plan.slices) / len(ranks)) for each in steps)
    if not fabric.core_costs:
        alone = _cost_slices(steps[0], len(plan.slices))
        return replace(alone, wire_bytes=mean.wire_bytes, network_bytes=mean.network_bytes)
    # The work of all ranks on shared cores adds up. The simulation overlaps this work with the network.
    return replace(mean, inside=mean.inside + fabric.core_costs.call_s, network=steps[0].network * len(plan.slices))


def _cost_slices(first: Cost, slices: int) -> Cost:
    """Derive the cost of all slices of a call from the cost of rank 0's steps in the first slice."""
    local, network = first.encode + first.decode + first.inside, first.network
    total = local + network + (slices - 1) * (max(local, network) + _NOT_HIDDEN * min(local, network))
    busy = slices * network
    exposed = max(total - busy, 0.0) / local if local else 0.0
    return Cost(first.encode * exposed, first.decode * exposed, first.inside * exposed, busy)


def _cost_steps(
    plan: "Plan", rank: int, place: GroupPlacement, fabric: Fabric, width: int, speed: CodecSpeed | None, ratio: float
) -> Cost:
    """Return the cost of a rank's sequential steps in the first slice."""
    topology = plan.topology
    cost = Cost()
    for step in plan.steps(rank, 0):
        shrink = ratio if step.coded else 1.0
        came = [part for part in step.receives if part.peer != rank]  # A rank's own summand is not sent or encoded.
        ways = [[(part.span.size * width * shrink, not topology.near(rank, part.peer)) for part in parts]
                for parts in (step.sends, came)]  # fmt: skip
        # The root of a sum receives more than it sends.
        larger = max(ways, key=_sum_bytes) if plan.operation.value == "reduce" else ways[0]
        far = _sum_bytes(part for part in larger if part[1])
        if fabric.core_costs:  # The measured time of a message includes both ends.
            inside = sum(fabric.core_costs.time_step(parts) for parts in ways) / 2
        else:
            inside = fabric.node_latency_s if far else fabric.within_latency_s
            inside += (_sum_bytes(larger) - far) / (0.75 * fabric.within_bytes_per_s)
        network = far * place.per_node * place.concurrent / (fabric.node_bytes_per_s * fabric.share)
        sent = _sum_bytes(ways[0]), _sum_bytes(part for part in ways[0] if part[1])
        coding = _cost_codec(step.sends, came, width, speed) if step.coded and speed else Cost()
        cost += coding + Cost(0.0, 0.0, inside, network, *sent)
    return cost


def _sum_bytes(parts: Iterable[tuple[float, bool]]) -> float:
    return sum(nbytes for nbytes, _ in parts)


def _cost_codec(sends: "Sequence[PeerSpan]", came: "Sequence[PeerSpan]", width: int, speed: CodecSpeed) -> Cost:
    """Return the codec's cost. A span of values is encoded once for all receivers."""
    spans = {part.span for part in sends}
    sizes = sum(span.size for span in spans), sum(part.span.size for part in came)
    return Cost(
        sizes[0] * width / speed.encode_bytes_per_s + len(spans) * speed.call_s,
        sizes[1] * width / speed.decode_bytes_per_s + len(came) * speed.call_s,
    )
