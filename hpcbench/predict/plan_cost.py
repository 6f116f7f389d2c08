"""What a call costs that one of our plans carries out: its steps, timed on the machine's links or cores."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcbench.predict.core_costs import CoreCosts
from hpcbench.predict.cost import CodecSpeed, Cost, sum_costs
from hpcbench.predict.fabric import PIECEWISE, Fabric, GroupPlacement

if TYPE_CHECKING:
    from hpcbench.comm.plan import Plan
    from hpcbench.comm.steps import Part

_NOT_HIDDEN = 0.25
"""As in `comm.links`: of the shorter of wire and work."""


def cost_plan(
    plan: "Plan", place: GroupPlacement, fabric: Fabric, width: int, speed: CodecSpeed | None, ratio: float
) -> Cost:
    """Cost of a plan's call.

    Parameters
    ----------
    plan
        The plan for the root 0, if it has one.
    place, fabric
        Where the group's ranks are, and the links.
    width
        Bytes of an element.
    speed
        The codec's; None if nothing is encoded.
    ratio
        Bytes after the codec for each before it.
    """
    # with a root ranks do different things
    ranks = range(place.ranks) if plan.operation.value in PIECEWISE else range(1)
    steps = [_steps(plan, rank, place, fabric, width, speed, ratio) for rank in ranks]
    mean = sum_costs((each, len(plan.slices) / len(ranks)) for each in steps)
    if not fabric.core_costs:
        alone = _on_links(steps[0], len(plan.slices))
        return replace(alone, wire_bytes=mean.wire_bytes, network_bytes=mean.network_bytes)
    # cores work for all ranks that share them, and the simulation lets the network move meanwhile
    return replace(mean, inside=mean.inside + fabric.core_costs.call_s, network=steps[0].network * len(plan.slices))


def _on_links(first: Cost, slices: int) -> Cost:
    """The steps of rank 0 in the first slice; the other slices follow behind it."""
    own, network = first.encode + first.decode + first.inside, first.network
    total = own + network + (slices - 1) * (max(own, network) + _NOT_HIDDEN * min(own, network))
    busy = slices * network
    shown = max(total - busy, 0.0) / own if own else 0.0
    return Cost(first.encode * shown, first.decode * shown, first.inside * shown, busy)


def _steps(
    plan: "Plan", rank: int, place: GroupPlacement, fabric: Fabric, width: int, speed: CodecSpeed | None, ratio: float
) -> Cost:
    """What the steps of a rank in the first slice take, one after another."""
    topology = plan.topology
    cost = Cost()
    for step in plan.steps(rank, 0):
        shrink = ratio if step.coded else 1.0
        came = [part for part in step.receives if part.peer != rank]  # its own summand is no message, and stays exact
        ways = [[(part.span.size * width * shrink, not topology.near(rank, part.peer)) for part in parts]
                for parts in (step.sends, came)]  # fmt: skip
        # at the root of a sum what comes is more than what goes
        shown = max(ways, key=_bytes) if plan.operation.value == "reduce" else ways[0]
        far = _bytes(part for part in shown if part[1])
        inside = _worked(fabric.core_costs, ways) if fabric.core_costs else _moved(fabric, _bytes(shown) - far, far)
        network = far * place.per_node * place.concurrent / (fabric.node_bytes_per_s * fabric.share)
        sent = _bytes(ways[0]), _bytes(part for part in ways[0] if part[1])
        coding = _coded(step.sends, came, width, speed) if step.coded and speed else Cost()
        cost += coding + Cost(0.0, 0.0, inside, network, *sent)
    return cost


def _bytes(parts: Iterable[tuple[float, bool]]) -> float:
    return sum(nbytes for nbytes, _ in parts)


def _worked(core_costs: CoreCosts, ways: Sequence[Sequence[tuple[float, bool]]]) -> float:
    """Seconds of a core: what was measured of a message is both its ends."""
    return sum(core_costs.step(parts) for parts in ways) / 2


def _moved(fabric: Fabric, near: float, far: float) -> float:
    start = fabric.node_latency_s if far else fabric.within_latency_s
    return start + near / (0.75 * fabric.within_bytes_per_s)


def _coded(sends: "Sequence[Part]", came: "Sequence[Part]", width: int, speed: CodecSpeed) -> Cost:
    """A span is encoded once for all to whom it goes."""
    spans = {part.span for part in sends}
    sizes = sum(span.size for span in spans), sum(part.span.size for part in came)
    return Cost(
        sizes[0] * width / speed.encode_bytes_per_s + len(spans) * speed.call_s,
        sizes[1] * width / speed.decode_bytes_per_s + len(came) * speed.call_s,
    )
