"""The time of one step: the calls and the work of each stage, in the order of the schedule, simulated."""

from dataclasses import dataclass, field

from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.predict import constants
from hpcbench.predict.basis import Basis, Figure, total_error, worst
from hpcbench.predict.calls import Calls, Key, Repeated
from hpcbench.predict.machine import Machine
from hpcbench.predict.simulate import Busy, Flow, Operation, Post, Simulation, Wait
from hpcbench.predict.subject import Subject
from hpcbench.predict.traffic import CodecSpeed, Cost, Traffic, total_cost
from hpcbench.predict.work import NOTHING, Costs, Work

PARTS = (
    "forward",
    "backward",
    "recompute",
    "bubble",
    "tensor",
    "pipeline",
    "data",
    "encode",
    "decode",
    "optimizer",
    "host link",
    "waiting",
)
"""What the time of a step is split into; tensor, pipeline and data are exposed communication of these dimensions."""


@dataclass(frozen=True)
class Sent:
    """What one rank sends through a channel in a step."""

    message_bytes: int
    wire_bytes: float
    network_bytes: float


@dataclass(frozen=True)
class StepTime:
    """A predicted step."""

    seconds: Figure
    parts: dict[str, float]
    """Seconds of each of `PARTS`, on the stage that works the longest."""
    network_seconds: float
    """Of them those in which that stage waits for the node's network."""
    channels: dict[Key, Sent] = field(default_factory=dict)
    """Of all ranks of the stage's kind, the mean of a rank."""


@dataclass
class _Action:
    """Forward or backward of a part, of one micro-batch."""

    work: float = 0.0
    again: float = 0.0
    cost: Cost = field(default_factory=Cost)
    """Within the action."""

    @property
    def own(self) -> float:
        return self.work + self.again + self.cost.encode + self.cost.decode + self.cost.inside


class _StageProgram:
    """What one stage does."""

    def __init__(self, step: "Step", stage: int) -> None:
        subject = step.subject
        rank = stage * subject.layout.dp * subject.layout.tp
        node = subject.place("node").per_node if subject.train.node_copy else None
        self.step, self.stage = step, stage
        self.calls = Calls(subject.model, subject.train, subject.layout, rank, updates=10**9, node_ranks=node)
        self.parts = {number: (self._forward(number), self._backward(number)) for number in self.calls.parts}
        self.reductions = {
            number: [
                self._cost([one for bucket in [bucket] for one in self.calls.reduction(bucket)])
                for bucket in self.calls.buckets
                if bucket.part == number
            ]
            for number in self.calls.parts
        }
        self.tail = self._cost(self.calls.end())
        if subject.program.gathers_ahead:
            gathers = self._cost([one for one in self.calls.end() if one[0].channel[0] == "ZERO"])
            ahead = sum(forward.work for forward, _ in self.parts.values())
            hidden = min(1.0, ahead / gathers.seconds) if gathers.seconds else 0.0
            self.tail += gathers * -hidden
        held = sum(bucket.length for bucket in self.calls.buckets)
        owned = held / (subject.layout.dp if subject.train.zero else 1)
        self.optimizer = step.costs.optimizer_seconds(owned)
        self.host = step.host_seconds(owned)

    def _cost(self, repeated: list[Repeated]) -> Cost:
        cost, place = self.step.traffic.cost, self.calls.place
        return total_cost((cost(call, size=place(call)[0]), times) for call, times in repeated)

    def _forward(self, number: int) -> _Action:
        work = self.step.work(number)
        gathered = [one for b in self.calls.buckets if b.part == number and (one := self.calls.gathered_forward(b))]
        cost = self._cost(self.calls.forward(number))
        if self.step.subject.program.overlaps_tensor == "all":
            cost = _hidden(cost, cost, work.forward.products)
        return self._with_gathers(_Action(work.forward.total, 0.0, cost), self._cost(gathered), number)

    def _backward(self, number: int) -> _Action:
        work, program = self.step.work(number), self.step.subject.program
        cost = self._cost(self.calls.backward(number))
        if program.overlaps_tensor != "none":
            # sums stand beside the product of weights' gradients; gatherings come before both products
            beside = [
                (call, times)
                for call, times in self.calls.backward(number)
                if program.overlaps_tensor == "all"
                or (call.channel[1] == "BACKWARD" and call.operation != "all-gather")
            ]
            cost = _hidden(cost, self._cost(beside), work.weight_gradients)
        gathered = [one for b in self.calls.buckets if b.part == number and (one := self.calls.gathered_backward(b))]
        return self._with_gathers(_Action(work.backward.total, work.again.total, cost), self._cost(gathered), number)

    def _with_gathers(self, action: _Action, gathers: Cost, number: int) -> _Action:
        """ZeRO-3: what is gathered ahead hides behind the work of the unit before."""
        if not gathers.seconds:
            return action
        hidden = 0.0
        if self.step.subject.train.overlap:
            units = max(len(self.step.cut[number]), 1)
            hidden = min(action.own, gathers.seconds) * (1 - 1 / units)
        left = max(gathers.seconds - hidden, 0.0) / gathers.seconds
        self.step.gathered += (gathers.inside + gathers.network) * left
        action.cost += Cost(
            gathers.encode * left,
            gathers.decode * left,
            gathers.inside * left,
            gathers.network * left,
        )
        return action

    def operations(self, micro_batches: int) -> list[Operation]:
        """In the order of the schedule, with so many micro-batches."""
        step, subject = self.step, self.step.subject
        train, layout = subject.train, subject.layout
        found: list[Operation] = []
        last_part = layout.parts - 1
        actions = SCHEDULES[train.schedule](self.stage, layout.pp, micro_batches, layout.chunks)
        message = self.calls.activations(0)
        sending = step.traffic.cost(message, size=layout.pp) if message else Cost()
        back = self.calls.gradients_back(1)
        returning = step.traffic.cost(back, size=layout.pp) if back else Cost()
        overlaps = train.overlap and layout.dp > 1
        reduces = layout.dp > 1
        for work, i, chunk in actions:
            number = chunk * layout.pp + self.stage
            forward, backward = self.parts[number]
            if work == "forward":
                if number:
                    found.append(Wait(("forward", i, number), "pipeline"))
                    found.append(Busy(sending.decode))
                self._act(found, forward, 1.0)
                if number < last_part:
                    found.append(Busy(sending.encode))
                    self._send(found, ("forward", i, number + 1), sending)
                continue
            if number < last_part:
                found.append(Wait(("backward", i, number), "pipeline"))
                found.append(Busy(returning.decode))
            each_time = train.zero >= 2 and reduces
            buckets = self.reductions[number]
            if reduces and overlaps and buckets and (each_time or i == micro_batches - 1):
                share = 1 / len(buckets)
                for k, cost in enumerate(buckets):
                    self._act(found, backward, share)
                    found.append(
                        Post(
                            ("reduced", number, i, k, self.stage),
                            cost.encode + cost.inside,
                            cost.network,
                            cost.decode,
                            "dp",
                        )
                    )
            else:
                self._act(found, backward, 1.0)
                if each_time:
                    for cost in buckets:
                        self._call(found, cost, "data")
            if number:
                found.append(Busy(returning.encode))
                self._send(found, ("backward", i, number - 1), returning)
        if reduces and overlaps:
            for number in self.calls.parts:
                for i in range(micro_batches) if train.zero >= 2 else (micro_batches - 1,):
                    for k in range(len(self.reductions[number])):
                        found.append(Wait(("reduced", number, i, k, self.stage), "data"))
        elif reduces and train.zero < 2:
            for number in self.calls.parts:
                for cost in self.reductions[number]:
                    self._call(found, cost, "data")
        self._call(found, self.tail, "data")
        found.append(Busy(self.optimizer + self.host))
        return found

    def _send(self, found: list[Operation], key: object, cost: Cost) -> None:
        if self.step.subject.program.waits_for_messages:
            found.append(Flow(cost.inside, cost.network, "pipeline"))
            found.append(Post(key, 0.0, 0.0))
        else:
            found.append(Post(key, cost.inside, cost.network))

    def _act(self, found: list[Operation], action: _Action, share: float) -> None:
        found.append(Busy(action.own * share))
        if action.cost.network > 0:
            found.append(Flow(0.0, action.cost.network * share, "tensor"))

    def _call(self, found: list[Operation], cost: Cost, kind: str) -> None:
        found.append(Flow(cost.encode + cost.inside + cost.decode, cost.network, kind))


def _hidden(cost: Cost, beside: Cost, products: float) -> Cost:
    """`cost` without what of its part `beside` is hidden behind products, which lose some of their speed."""
    if not beside.inside:
        return cost
    return cost + Cost(inside=-min(products, beside.inside) * (1 - constants.OVERLAP_COST))


class Step:
    """A step of a run on a machine.

    Parameters
    ----------
    subject
        The run.
    machine
        Where.
    speeds
        Of codecs, as measured here.
    """

    def __init__(self, subject: Subject, machine: Machine, speeds: dict[str, CodecSpeed] | None = None) -> None:
        self.subject, self.machine = subject, machine
        self.traffic = Traffic(subject, machine, speeds)
        self.costs = Costs(machine, subject.model, subject.train, subject.layout.tp, subject.program)
        self.cut = subject.layout.layers_of(subject.model.layers)
        self.gathered = 0.0
        self._layer = self.costs.layer()
        self._embedding, self._head = self.costs.embedding(), self.costs.head()

    def work(self, number: int) -> Work:
        """Of part `number`, of one micro-batch."""
        total = NOTHING
        layer, layers = self._layer, len(self.cut[number])
        total += Work(
            layer.forward * layers, layer.backward * layers, layer.again * layers, layer.weight_gradients * layers
        )
        if number == 0:
            total += self._embedding
        if number == self.subject.layout.parts - 1:
            total += self._head
        return total

    def host_seconds(self, owned: float) -> float:
        """With offload: reduced gradients down, the update by the host's cores, weights up."""
        train = self.subject.train
        if not train.offload:
            return 0.0
        times = self.subject.micro_batches if train.zero >= 2 else 1
        link = constants.HOST_LINK_BYTES_PER_S.get(self.machine.device.family, self.machine.device.copy_bytes_per_s)
        return owned * 4 * (times + 1) / link + owned * 28 / 20e9

    def run(self) -> StepTime:
        """Simulate it."""
        layout = self.subject.layout
        programs = [_StageProgram(self, stage) for stage in range(layout.pp)]
        stage_ranks = layout.dp * layout.tp
        networks = [stage * stage_ranks // self.subject.ranks_per_node for stage in range(layout.pp)]
        if stage_ranks >= self.subject.ranks_per_node:
            networks = list(range(layout.pp))
        m, few = self.subject.micro_batches, 3 * layout.pp
        if m <= 2 * few:
            outcome = _Outcome.of(programs, networks, m)
        else:
            # a full pipeline repeats itself: what one more round of micro-batches takes, all further ones take
            less, more = (_Outcome.of(programs, networks, count) for count in (few, few + layout.pp))
            outcome = less.further(more, (m - few) / layout.pp)
        longest = max(range(layout.pp), key=lambda stage: outcome.busy[stage])
        return self._split(outcome, programs, longest)

    def _split(self, outcome: "_Outcome", programs: list[_StageProgram], stage: int) -> StepTime:
        """Where the time of the stage that works longest has gone."""
        program, seconds, waited = programs[stage], outcome.seconds, outcome.waited[stage]
        m, train = self.subject.micro_batches, self.subject.train
        parts = dict.fromkeys(PARTS, 0.0)
        for forward, backward in program.parts.values():
            parts["forward"] += m * forward.work
            parts["backward"] += m * backward.work
            parts["recompute"] += m * backward.again
            for action in (forward, backward):
                parts["tensor"] += m * action.cost.inside
                parts["encode"] += m * action.cost.encode
                parts["decode"] += m * action.cost.decode
        parts["tensor"] += waited.get("tensor", 0.0)
        data = waited.get("data", 0.0)
        waits = waited.get("pipeline", 0.0) + max(seconds - outcome.end[stage], 0.0)
        shape = (self.subject.layout.pp - 1) / self.subject.layout.chunks
        mean = (parts["forward"] + parts["backward"] + parts["recompute"] + parts["tensor"]) / m
        parts["bubble"] = min(waits, shape * mean)
        parts["pipeline"] = waits - parts["bubble"]
        exchange = [cost for costs in program.reductions.values() for cost in costs]
        times = m if train.zero >= 2 else 1
        encode, decode = (times * sum(getattr(cost, one) for cost in exchange) for one in ("encode", "decode"))
        whole = times * sum(cost.seconds for cost in exchange) + program.tail.seconds
        exposed = min(data / whole, 1.0) if whole and self.subject.layout.ranks > 1 else 0.0
        parts["encode"] += (encode + program.tail.encode) * exposed
        parts["decode"] += (decode + program.tail.decode) * exposed
        parts["data"] = max(data - (encode + decode + program.tail.encode + program.tail.decode) * exposed, 0.0)
        moved = min(self.gathered / max(self.subject.layout.pp, 1) * m, parts["tensor"])
        parts["tensor"] -= moved
        parts["data"] += moved
        parts["optimizer"], parts["host link"] = program.optimizer, program.host
        known = sum(parts.values())
        parts["pipeline"] += max(seconds - known, 0.0) if self.subject.layout.pp > 1 else 0.0
        parts["waiting"] = constants.WAIT_SHARE * seconds if self.subject.layout.ranks > 1 else 0.0
        total = seconds + parts["waiting"]
        return StepTime(self._figure(total, parts), parts, self._network(program, waited, m), self._channels(programs))

    def _network(self, program: _StageProgram, waits: dict[str, float], m: int) -> float:
        waited = sum(seconds for kind, seconds in waits.items() if kind != "pipeline")
        exchange = sum(cost.network for costs in program.reductions.values() for cost in costs) + program.tail.network
        whole = sum(cost.seconds for costs in program.reductions.values() for cost in costs) + program.tail.seconds
        share = exchange / whole if whole else 0.0
        return waited * share if waited else 0.0

    def _figure(self, total: float, parts: dict[str, float]) -> Figure:
        """The interval: errors of the inputs, each on its own part of the time."""
        machine, fabric = self.machine, self.machine.fabric
        crossing = self.subject.layout.ranks > self.subject.ranks_per_node
        between = fabric.between_basis if crossing else fabric.within_basis
        compute = worst((machine.products.basis, machine.device.basis))
        codec = worst(self.traffic.bases)
        of_part = {
            **dict.fromkeys(("forward", "backward", "recompute", "optimizer", "bubble"), compute),
            "tensor": fabric.within_basis,
            "pipeline": between,
            "data": between,
            "encode": codec,
            "decode": codec,
            "host link": Basis.ELSEWHERE if machine.gpu else Basis.ASSUMED,
            "waiting": Basis.ASSUMED,
        }
        work = sum(seconds for name, seconds in parts.items() if of_part[name] is compute)
        others = [(seconds, of_part[name].error) for name, seconds in parts.items() if of_part[name] is not compute]
        error = total_error([(work, compute.error), *others])
        used = worst(of_part[name] for name, seconds in parts.items() if seconds > 0.02 * total and name != "waiting")
        return Figure.around(total, error, used)

    def _channels(self, programs: list[_StageProgram]) -> dict[Key, Sent]:
        """What the first rank of each stage sends, the mean over the stages."""
        total: dict[Key, list[float]] = {}
        for program in programs:
            for call, times in program.calls.all():
                size, index = program.calls.place(call)
                if size == 1:
                    continue
                cost = self.traffic.cost(call, size=size)
                sums = total.setdefault(call.channel, [0, 0.0, 0.0])
                sums[0] += times * call.message_bytes(size, index)
                sums[1] += times * cost.wire_bytes
                sums[2] += times * cost.network_bytes
        stages = len(programs)
        return {
            key: Sent(round(message / stages), wire / stages, network / stages)
            for key, (message, wire, network) in total.items()
            if message
        }


@dataclass(frozen=True)
class _Outcome:
    """What a simulation has come to, by stage."""

    seconds: float
    end: list[float]
    busy: list[float]
    waited: list[dict[str, float]]

    @classmethod
    def of(cls, programs: list[_StageProgram], networks: list[int], micro_batches: int) -> "_Outcome":
        simulation = Simulation([program.operations(micro_batches) for program in programs], networks)
        seconds, stages = simulation.run(), simulation.stages
        return cls(
            seconds,
            [stage.time for stage in stages],
            [stage.busy for stage in stages],
            [dict(s.waited) for s in stages],
        )

    def further(self, more: "_Outcome", times: float) -> "_Outcome":
        """So many times what `more` has over this, on top of this."""

        def on(here: float, there: float) -> float:
            return here + times * (there - here)

        return _Outcome(
            on(self.seconds, more.seconds),
            [*map(on, self.end, more.end)],
            [*map(on, self.busy, more.busy)],
            [
                {kind: on(here.get(kind, 0.0), there.get(kind, 0.0)) for kind in {**here, **there}}
                for here, there in zip(self.waited, more.waited, strict=True)
            ],
        )
