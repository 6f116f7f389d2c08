"""What each thing costs that a stage of the pipeline does. Stages that hold alike parts have alike costs."""

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
    """Forward or backward of a part, of one micro-batch."""

    work: float = 0.0
    again: float = 0.0
    cost: Cost = field(default_factory=Cost)
    """Within the action."""
    gathered: float = 0.0
    """Seconds of `cost` that gathering weights takes."""

    @property
    def own(self) -> float:
        """Seconds in which the stage itself is busy."""
        return self.work + self.again + self.cost.encode + self.cost.decode + self.cost.inside


class StagePart(NamedTuple):
    """What decides on the costs of a part of the model."""

    layers: int
    first: bool
    last: bool
    routed: int = 0
    """Those of the layers that have experts."""


def classify_stage(workload: Workload, stage: int) -> tuple[StagePart, ...]:
    """What decides on the costs of a stage."""
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
    """Into how large groups the buckets of a part are put, in their order, at most a 24th of all: 1, 1, 2, ... 2, 1, 1.

    Groups spare events. A group goes when its last bucket is filled, which is later than need be by less than a 24th of
    the backward pass; the first and the last ones, whose time shows, are alone.
    """
    most, ahead, left, size = max(1, buckets // _GROUPS), list[int](), buckets, 1
    while left >= 2 * size:
        ahead.append(size)
        left -= 2 * size
        size = min(most, sum(ahead))
    return [*ahead, *([left] if left else []), *reversed(ahead)]


_GROUPS = 24


class StageCosts:
    """ComputeCosts of the stages of one kind.

    Parameters
    ----------
    workload, machine
        The run, and where.
    traffic, costs
        What calls cost, and what work does.
    stage
        The first of its kind.

    Attributes
    ----------
    chunks
        Forward and backward of each part that a stage holds.
    reductions
        Reductions of each of these parts, buckets in the order in which they are filled: how many, and their cost.
    tail
        Cost of what comes after the reductions.
    """

    def __init__(self, workload: Workload, machine: Machine, traffic: Costing, costs: ComputeCosts, stage: int) -> None:
        self._workload, self._machine, self._traffic, self._costs = workload, machine, traffic, costs
        rank = stage * workload.layout.replicas * workload.layout.tp
        node = workload.place_group("node").per_node if workload.train.node_copy else None
        self.calls = StepCalls(workload.model, workload.train, workload.layout, rank, updates=10**9, node_ranks=node)
        self.parts = classify_stage(workload, stage)
        numbers = list(self.calls.parts)
        pairs = zip(numbers, self.parts, strict=True)
        self.chunks = [(self._forward(number, part), self._backward(number, part)) for number, part in pairs]
        self.reductions = [self._reductions(self.calls.laid[number]) for number in numbers]
        end = self.calls.end()
        self.tail = self.cost(end)
        if workload.program.gathers_ahead:
            gathers = self.cost([one for one in end if one[0].channel[0] == "ZERO"])
            ahead = sum(forward.work for forward, _ in self.chunks)
            hidden = min(1.0, ahead / gathers.seconds) if gathers.seconds else 0.0
            self.tail += gathers * -hidden
        held = sum(bucket.length * count for bucket, count in self.calls.buckets)
        owned = held / (workload.layout.replicas if workload.train.zero else 1)
        self.optimizer = costs.optimizer_seconds(owned, held)
        self.host = costs.host_seconds(owned, workload.micro_batches)

    def cost(self, repeated: Iterable[RepeatedCall], after_s: float | None = None) -> Cost:
        """Cost of calls, one after another, with so much work before each."""
        cost, place = self._traffic.cost, self.calls.locate
        return sum_costs((cost(call, size=place(call)[0], after_s=after_s), times) for call, times in repeated)

    def _between(self, work: float, repeated: Sequence[RepeatedCall]) -> float | None:
        """ComputeTime of a rank before each of these calls, of which a product's pieces are several."""
        place = self.calls.locate
        calls = sum(times * (place(call)[0] if call.operation in PIECEWISE else 1) for call, times in repeated)
        return work / calls if calls and self._machine.fabric.core_costs else None

    def _reductions(self, laid: BucketLayout) -> list[tuple[int, Cost]]:
        costs = [self.cost([(self.calls.reduction(bucket), 1)]) for bucket, _ in laid.kinds]
        found, begin = [], 0
        for size in group_buckets(len(laid.order)):
            group = laid.order[begin : begin + size]
            begin += size
            found.append((size, sum_costs((costs[k], group.count(k)) for k in set(group))))
        return found

    def _gathered(self, number: int, of: Callable[[PredictedBucket], RepeatedCall | None]) -> list[RepeatedCall]:
        found = ((of(bucket), count) for bucket, count in self.calls.laid[number].kinds)
        return [(one[0], one[1] * count) for one, count in found if one]

    def _work(self, part: StagePart) -> ComputeTime:
        """ComputeTime of one micro-batch."""
        total = NOTHING + self._costs.layer * part.layers
        if part.routed:
            total += self._costs.experts * part.routed
        if part.first:
            total += self._costs.embedding
        if part.last:
            total += self._costs.head
        return total * self._machine.work_factor

    def _forward(self, number: int, part: StagePart) -> PassCost:
        work, calls = self._work(part), self.calls.forward(number)
        gathered = self._gathered(number, self.calls.gathered_forward)
        cost = self.cost(calls, self._between(work.forward.total, calls))
        if self._workload.program.overlaps_tensor == "all":
            sums = self.cost([(call, times) for call, times in calls if call.operation == "reduce-scatter"])
            # the last piece of a sum has no product beside it; a gathering begins with the rank's own piece
            cost = _hidden(cost, cost + sums * (-1 / self._workload.layout.tp), work.forward.products)
        cost = self._beside_products(cost, calls, work.forward.products)
        cost += self._beside_attention(self.calls.attention_forward(number), work.forward.attention)
        return self._with_gathers(PassCost(work.forward.total, 0.0, cost), self.cost(gathered), part)

    def _backward(self, number: int, part: StagePart) -> PassCost:
        work, program, calls = self._work(part), self._workload.program, self.calls.backward(number)
        cost = self.cost(calls, self._between(work.backward.total + work.again.total, calls))
        cost = self._beside_products(cost, calls, work.backward.products)
        if program.overlaps_tensor != "none":
            # sums stand beside the product of weights' gradients; gatherings come before both products
            beside = [
                (call, times)
                for call, times in calls
                if program.overlaps_tensor == "all"
                or (call.channel[1] == "BACKWARD" and call.operation != "all-gather")
            ]
            cost = _hidden(cost, self.cost(beside), work.weight_gradients)
        attention = work.backward.attention + work.again.attention
        cost += self._beside_attention(self.calls.attention_backward(number), attention)
        gathered = self._gathered(number, self.calls.gathered_backward)
        return self._with_gathers(PassCost(work.backward.total, work.again.total, cost), self.cost(gathered), part)

    def _beside_products(self, cost: Cost, calls: Sequence[RepeatedCall], products: float) -> Cost:
        """What is left of a cost beside the products of a tensor grid.

        All pieces but the first come while the one before is multiplied; weights that are gathered, and sums of their
        gradients, move while another product is made.
        """
        train, layout = self._workload.train, self._workload.layout
        if layout.tensor == "1d" or not train.overlap or self._machine.fabric.core_costs:
            return cost
        pieces = max(layout.grid.sizes.values())
        for one in calls:
            operation, channel = one[0].operation, one[0].channel
            if operation in PIECEWISE:
                share = 1 - 1 / pieces
            else:
                share = 0.5 if len(channel) == 4 and carries_weights(channel[3]) else 0.0
            beside = self.cost([one])
            moving = share * (beside.inside + beside.network)
            if moving and products > 0:
                hidden = min(moving, share * products)
                products -= hidden
                left = hidden / (beside.inside + beside.network)
                cost += Cost(inside=-left * beside.inside, network=-left * beside.network)
        return cost

    def _beside_attention(self, calls: Sequence[RepeatedCall], attention: float) -> Cost:
        """What is left of the calls of attention over ranks, beside what attention itself computes.

        In a ring all blocks but the last are computed while another one comes. Of the two halves of Ulysses' exchange
        one half hides.
        """
        cost, layout = self.cost(calls), self._workload.layout
        moving = cost.inside + cost.network
        if not moving or not self._workload.train.overlap or self._machine.fabric.core_costs:
            return cost
        share = 0.5 if layout.context == "ulysses" else 1 - 1 / layout.cp
        hidden = min(1.0, share * attention / moving)
        return cost + Cost(inside=-hidden * cost.inside, network=-hidden * cost.network)

    def _with_gathers(self, action: PassCost, gathers: Cost, part: StagePart) -> PassCost:
        """ZeRO-3: what is gathered ahead hides behind the work of the unit before."""
        if not gathers.seconds:
            return action
        # where ranks share cores, the simulation lets the network move while they compute
        if self._workload.train.overlap and not self._machine.fabric.core_costs:
            hidden = min(action.own, gathers.seconds) * (1 - 1 / max(part.layers, 1))
            gathers *= 1 - hidden / gathers.seconds
        action.gathered = gathers.inside + gathers.network
        action.cost += gathers
        return action


def _hidden(cost: Cost, beside: Cost, products: float) -> Cost:
    """`cost` without what of its part `beside` is hidden behind products, which lose some of their speed."""
    if not beside.inside:
        return cost
    return cost + Cost(inside=-min(products, beside.inside) * (1 - constants.OVERLAP_COST))
