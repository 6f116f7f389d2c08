"""Cost of each pipeline stage operation. Stages with the same parts have the same costs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpcbench.contract.grid import carries_weights
from hpcbench.predict import constants
from hpcbench.predict.buckets import BucketLayout, PredictedBucket
from hpcbench.predict.call import RepeatedCall
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.cost import Cost, sum_costs
from hpcbench.predict.fabric import PIECEWISE
from hpcbench.predict.machine import Machine
from hpcbench.predict.traffic import Costing
from hpcbench.predict.work import NOTHING, ComputeCosts, ComputeTime
from hpcbench.predict.workload import Workload


@dataclass
class PassCost:
    """Cost of a part's forward or backward pass for one micro-batch."""

    work: float = 0.0
    """Seconds of computation."""
    again: float = 0.0
    """Seconds of recomputation."""
    cost: Cost = field(default_factory=Cost)
    """Cost of the calls within the pass."""
    gathered: float = 0.0
    """Part of `cost` for gathering weights, in seconds."""

    @property
    def busy(self) -> float:
        """Seconds of work on the stage itself."""
        return self.work + self.again + self.cost.encode + self.cost.decode + self.cost.inside


class StagePart(NamedTuple):
    """Properties that determine the costs of a model part."""

    layers: int
    first: bool
    last: bool
    routed: int = 0
    """Number of expert layers."""


def find_stage_parts(workload: Workload, stage: int) -> tuple[StagePart, ...]:
    """Return a stage's parts. Stages with equal parts have the same costs."""
    layout = workload.layout
    cut = layout.layers_of(workload.model.layers)
    numbers = range(stage, layout.parts, layout.pp)
    experts = workload.model.experts
    return tuple(
        StagePart(
            len(cut[number]),
            number == 0,
            number == layout.parts - 1,
            len(experts.layers_of(cut[number])) if experts else 0,
        )
        for number in numbers
    )


def group_buckets(buckets: int) -> list[int]:
    """Return the sizes of bucket groups in order, each at most 1/24 of all buckets: 1, 1, 2, ... 2, 1, 1.

    Grouping reduces the number of simulated events. A group is sent when its last bucket is filled, which delays
    buckets by less than 1/24 of the backward pass. The first and last buckets are not grouped, because their time is
    exposed.
    """
    most, ahead, left, size = max(1, buckets // _GROUPS), list[int](), buckets, 1
    while left >= 2 * size:
        ahead.append(size)
        left -= 2 * size
        size = min(most, sum(ahead))
    return [*ahead, *([left] if left else []), *reversed(ahead)]


_GROUPS = 24


class StageCosts:
    """Costs of all stages of one kind.

    Parameters
    ----------
    workload, machine
        The run and its machine.
    traffic, costs
        Costs of calls and of computation.
    stage
        Index of the first stage of this kind.

    Attributes
    ----------
    chunks
        Forward and backward pass of each part of the stage.
    reductions
        Reductions of each part: pairs (number of buckets, cost) in the order in which buckets are filled.
    tail
        Cost of the calls after the reductions.
    """

    def __init__(self, workload: Workload, machine: Machine, traffic: Costing, costs: ComputeCosts, stage: int) -> None:
        self._workload, self._machine, self._traffic, self._costs = workload, machine, traffic, costs
        rank = stage * workload.layout.replicas * workload.layout.tp
        node = workload.place_group("node").per_node if workload.train.node_copy else None
        rule = traffic.treatment(("DP", "BACKWARD", "GRAD"))
        self.calls = StepCalls(
            *(workload.model, workload.train, workload.layout, rank),
            updates=10**9,
            node_ranks=node,
            low_rank=rule.low_rank,
            mixed_widths=(rule.codec, rule.mixed_bits),
        )
        numbers = list(self.calls.parts)
        pairs = zip(numbers, find_stage_parts(workload, stage), strict=True)
        self.chunks = [(self._forward(number, part), self._backward(number, part)) for number, part in pairs]
        self.reductions = [self._group_reductions(self.calls.laid[number]) for number in numbers]
        end = self.calls.end()
        self.tail = self.cost(end)
        if workload.program.gathers_ahead:
            gathers = self.cost([(call, times) for call, times in end if call.channel[0] == "ZERO"])
            ahead = sum(forward.work for forward, _ in self.chunks)
            hidden = min(1.0, ahead / gathers.seconds) if gathers.seconds else 0.0
            self.tail += gathers * -hidden
        held = sum(bucket.length * count for bucket, count in self.calls.buckets)
        owned = held / (workload.layout.replicas if workload.train.zero else 1)
        self.optimizer = costs.time_optimizer(owned, held)
        self.host = costs.time_host_update(owned, workload.micro_batches)

    def cost(self, repeated: Iterable[RepeatedCall]) -> Cost:
        """Return the total cost of sequential calls."""
        cost, place = self._traffic.cost, self.calls.locate
        return sum_costs((cost(call, size=place(call)[0]), times) for call, times in repeated)

    def _group_reductions(self, laid: BucketLayout) -> list[tuple[int, Cost]]:
        costs = [self._cost_reductions(bucket) for bucket, _ in laid.kinds]
        groups, begin = [], 0
        for size in group_buckets(len(laid.order)):
            group = laid.order[begin : begin + size]
            begin += size
            groups.append((size, sum_costs((costs[k], group.count(k)) for k in set(group))))
        return groups

    def _cost_reductions(self, bucket: PredictedBucket) -> Cost:
        """Return the cost of a bucket's reductions, including low-rank products and the copies of mixed widths."""
        calls = self.calls.reductions(bucket)
        cost = self.cost([(call, 1) for call in calls])
        if self.calls.guess_widths(bucket):
            cost += Cost(encode=self._costs.time_splitting(bucket.length))
        elif len(calls) > 1:
            cost += Cost(encode=self._costs.time_factors(bucket.length))
        return cost

    def _list_gathers(self, number: int, of: Callable[[PredictedBucket], RepeatedCall | None]) -> list[RepeatedCall]:
        gathers = ((of(bucket), count) for bucket, count in self.calls.laid[number].kinds)
        return [(repeated[0], repeated[1] * count) for repeated, count in gathers if repeated]

    def _sum_work(self, part: StagePart) -> ComputeTime:
        """Return the computing time of one micro-batch."""
        total = NOTHING + self._costs.layer * part.layers
        if part.routed:
            total += self._costs.experts * part.routed
        if part.first:
            total += self._costs.embedding
        if part.last:
            total += self._costs.head
        return total * (self._machine.work_factor * (self._workload.program.slowdown or 1.0))

    def _forward(self, number: int, part: StagePart) -> PassCost:
        work, calls = self._sum_work(part), self.calls.forward(number)
        gathers = self._list_gathers(number, self.calls.gathered_forward)
        cost = self.cost(calls)
        if self._workload.program.overlaps_tensor == "all":
            sums = self.cost([(call, times) for call, times in calls if call.operation == "reduce-scatter"])
            # The last piece of a sum cannot overlap with a product. A gather starts with the rank's own piece.
            cost = _hide(cost, cost + sums * (-1 / self._workload.layout.tp), work.forward.products)
        cost = self._hide_behind_products(cost, calls, work.forward.products)
        cost += self._hide_behind_attention(self.calls.attention_forward(number), work.forward.attention)
        return self._add_gathers(PassCost(work.forward.total, 0.0, cost), self.cost(gathers), part)

    def _backward(self, number: int, part: StagePart) -> PassCost:
        work, program, calls = self._sum_work(part), self._workload.program, self.calls.backward(number)
        cost = self._hide_behind_products(self.cost(calls), calls, work.backward.products)
        if program.overlaps_tensor != "none":
            # Sums overlap with the weight gradient product. Gathers precede both products.
            overlapped = [
                (call, times)
                for call, times in calls
                if program.overlaps_tensor == "all"
                or (call.channel[1] == "BACKWARD" and call.operation != "all-gather")
            ]
            cost = _hide(cost, self.cost(overlapped), work.weight_gradients)
        attention = work.backward.attention + work.again.attention
        cost += self._hide_behind_attention(self.calls.attention_backward(number), attention)
        gathers = self._list_gathers(number, self.calls.gathered_backward)
        return self._add_gathers(PassCost(work.backward.total, work.again.total, cost), self.cost(gathers), part)

    def _hide_behind_products(self, cost: Cost, calls: Sequence[RepeatedCall], products: float) -> Cost:
        """Return the part of a cost that is not hidden behind tensor grid products.

        Each piece except the first arrives while the previous piece is multiplied. Gathered weights and the sums of
        their gradients are transferred during another product.
        """
        train, layout = self._workload.train, self._workload.layout
        if layout.tensor == "1d" or not train.overlap or self._machine.fabric.core_costs:
            return cost
        pieces = max(layout.grid.sizes.values())
        for repeated in calls:
            operation, channel = repeated[0].operation, repeated[0].channel
            if operation in PIECEWISE:
                share = 1 - 1 / pieces
            else:
                share = 0.5 if len(channel) == 4 and carries_weights(channel[3]) else 0.0
            call_cost = self.cost([repeated])
            moving = share * (call_cost.inside + call_cost.network)
            if moving and products > 0:
                hidden = min(moving, share * products)
                products -= hidden
                part = hidden / (call_cost.inside + call_cost.network)
                cost += Cost(inside=-part * call_cost.inside, network=-part * call_cost.network)
        return cost

    def _hide_behind_attention(self, calls: Sequence[RepeatedCall], attention: float) -> Cost:
        """Return the exposed cost of context-parallel calls, which attention computation does not hide.

        In a ring, each block except the last is computed while another block arrives. In the Ulysses exchange, the
        transfer of one of the two halves is hidden.
        """
        cost, layout = self.cost(calls), self._workload.layout
        moving = cost.inside + cost.network
        if not moving or not self._workload.train.overlap or self._machine.fabric.core_costs:
            return cost
        share = 0.5 if layout.context == "ulysses" else 1 - 1 / layout.cp
        hidden = min(1.0, share * attention / moving)
        return cost + Cost(inside=-hidden * cost.inside, network=-hidden * cost.network)

    def _add_gathers(self, action: PassCost, gathers: Cost, part: StagePart) -> PassCost:
        """Add the ZeRO-3 gathers. A gather is hidden behind the work of the previous unit."""
        if not gathers.seconds:
            return action
        # If ranks share cores, the simulation overlaps the network with computation.
        if self._workload.train.overlap and not self._machine.fabric.core_costs:
            hidden = min(action.busy, gathers.seconds) * (1 - 1 / max(part.layers, 1))
            gathers *= 1 - hidden / gathers.seconds
        action.gathered = gathers.inside + gathers.network
        action.cost += gathers
        return action


def _hide(cost: Cost, overlapped: Cost, products: float) -> Cost:
    """Return `cost` without the part of `overlapped` that products hide. Overlap slows the products down."""
    if not overlapped.inside:
        return cost
    return cost + Cost(inside=-min(products, overlapped.inside) * (1 - constants.OVERLAP_COST))
