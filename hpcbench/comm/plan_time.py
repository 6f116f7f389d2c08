"""Estimated time of a plan, from the speeds of links and codecs.

The model has a latency per message, a bandwidth per link, and a speed per codec (alpha, beta, gamma). With pipelined
slices, the time of the slowest resource hides the times of all others.
"""

import math

from hpcbench.comm.links import Links, interpolate
from hpcbench.comm.plan import Plan

_NOT_HIDDEN = 0.25
"""Fraction of the shorter of wire time and work time that is not hidden by the longer.

Overlap is imperfect, because both use cores and memory.
"""


def seconds(plan: Plan, links: Links) -> float:
    """Estimate the time of a plan in seconds. A measured time takes precedence over the model."""
    measured = measured_seconds(plan, links)
    return measured if measured is not None else model_seconds(plan, links)


def measured_seconds(plan: Plan, links: Links) -> float | None:
    """Return the time measured on this topology for a size near the plan's, or None if there is no such measurement."""
    if links.foreign(plan.topology):
        return None
    nbytes = plan.n * plan.dtype.itemsize
    if plan.algorithm.value == "native":
        points = [(size, s) for operation, size, s in links.native if operation == plan.operation.value]
    else:
        key = plan.operation.value, plan.codec.name, plan.algorithm.value, len(plan.slices)
        points = [(size, s) for op, codec, size, how, count, s in links.measured if (op, codec, how, count) == key]
    return interpolate(sorted(points), nbytes)


def model_seconds(plan: Plan, links: Links) -> float:
    """Return the modeled time of a plan in seconds. The model includes only links and codecs."""
    nbytes = plan.n * plan.dtype.itemsize
    topology = plan.topology
    if plan.algorithm.value in ("native", "homomorphic"):
        rounds = 1 if plan.operation.value != "all-reduce" else 2
        nodes, per_node = topology.nodes, topology.per_node
        between = rounds * (nodes - 1) / nodes * nbytes / links.between.bytes_per_s
        within = rounds * (per_node - 1) / per_node * nbytes / links.within.bytes_per_s
        hops = rounds * math.ceil(math.log2(max(2, topology.ranks)))
        latency = links.between.latency_s if nodes > 1 else links.within.latency_s
        return hops * latency + between + within
    if plan.operation.value == "broadcast":
        return _broadcast(plan, links)
    if plan.operation.value == "reduce":
        return _reduce(plan, links)
    speed = links.speed(plan.codec.name)
    latency = wire = work = 0.0
    members = topology.members[0]
    for step in plan.steps(members[0], 0):
        parts = (*step.sends, *step.receives)
        crossing = any(not topology.near(members[0], part.peer) for part in parts)
        latency += (links.between if crossing else links.within).latency_s
        sent = sum(part.span.size for part in step.sends) * plan.dtype.itemsize
        size = sent * (speed.ratio if step.coded else 1.0)
        if crossing:
            wire += size * len(members) / links.between.bytes_per_s
        else:
            work += size / links.within.bytes_per_s
        work += len(parts) * speed.call_s  # sending or receiving takes about as long as a codec call
        if step.coded:
            spans = {part.span for part in step.sends}
            encoded = sum(span.size for span in spans) * plan.dtype.itemsize
            came = sum(part.span.size for part in step.receives) * plan.dtype.itemsize
            work += encoded / speed.encode_bytes_per_s + came / speed.decode_bytes_per_s
            work += (len(spans) + len(step.receives)) * speed.call_s
    hidden = min(wire, work)
    return latency + wire + work + (len(plan.slices) - 1) * (max(wire, work) + _NOT_HIDDEN * hidden)


def _broadcast(plan: Plan, links: Links) -> float:
    """Return the time in seconds until the last slice reaches the last rank of the chain or tree."""
    topology, speed, slices = plan.topology, links.speed(plan.codec.name), len(plan.slices)
    hops, crossing = topology.ranks - 1, topology.nodes - 1
    if slices == 1:
        hops, crossing = hops.bit_length(), crossing.bit_length()
    values = max(piece.size for (piece,) in plan.slices) * plan.dtype.itemsize
    wire = values * speed.ratio
    encode, decode = (values / rate + speed.call_s for rate in (speed.encode_bytes_per_s, speed.decode_bytes_per_s))
    within = links.within.latency_s + wire / links.within.bytes_per_s if hops > crossing else 0.0
    between = links.between.latency_s + wire / links.between.bytes_per_s if crossing else 0.0
    way = (hops - crossing) * within + crossing * between
    return encode + way + decode + (slices - 1) * max(within, between, encode, decode)


def _reduce(plan: Plan, links: Links) -> float:
    """Return the time in seconds until the root has received and decoded the slices of all other ranks."""
    topology, speed = plan.topology, links.speed(plan.codec.name)
    values = max(piece.size for (piece,) in plan.slices) * plan.dtype.itemsize
    far = sum(not topology.near(plan.root, rank) for rank in range(topology.ranks))
    near = topology.ranks - 1 - far
    link = links.between if far else links.within
    wire = values * speed.ratio * (far / links.between.bytes_per_s + near / links.within.bytes_per_s)
    work = (far + near) * (values / speed.decode_bytes_per_s + speed.call_s)
    encode = values / speed.encode_bytes_per_s + speed.call_s
    more = max(wire, work) + _NOT_HIDDEN * min(wire, work)
    return encode + link.latency_s + wire + work + (len(plan.slices) - 1) * more
