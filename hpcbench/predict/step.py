"""Time of one step, from a simulation of each stage's calls and computation in schedule order."""

from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import NormalDist

from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import UNFLUSHED
from hpcbench.predict import constants
from hpcbench.predict.basis import InputBasis, PredictedValue, combine_errors, find_worst
from hpcbench.predict.cost import Additive, CodecSpeed
from hpcbench.predict.machine import Machine
from hpcbench.predict.simulator import CoreUse, Simulation
from hpcbench.predict.stage import StageCosts, find_stage_parts
from hpcbench.predict.stage_program import StageProgram
from hpcbench.predict.traffic import Costing
from hpcbench.predict.work import ComputeCosts
from hpcbench.predict.workload import Workload

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
"""Parts of the step time. ``tensor``, ``pipeline`` and ``data`` are exposed communication in these dimensions."""


@dataclass(frozen=True)
class ChannelBytes:
    """Bytes that one rank sends through a channel in a step."""

    message_bytes: int
    wire_bytes: float
    network_bytes: float


@dataclass(frozen=True)
class StepTime:
    """A predicted step."""

    seconds: PredictedValue
    parts: dict[str, float]
    """Seconds for each of `PARTS` on the stage with the most work."""
    network_seconds: float
    """Seconds that the stage with the most work waits for the node's network."""
    channels: dict[Traffic, ChannelBytes] = field(default_factory=dict)
    """Traffic of a rank by channel, as a mean over the stages."""
    computed: float = 0.0
    """Seconds that the stage with the most work is not blocked in a call, as counted in a run's log."""


class StepModel:
    """Model of a run's step on a machine.

    Parameters
    ----------
    workload, machine
        The run and its machine.
    speeds
        Measured speeds of codecs.
    """

    def __init__(self, workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None) -> None:
        self.workload, self.machine = workload, machine
        self.traffic = Costing(workload, machine, speeds)
        costs = ComputeCosts(machine, workload.model, workload.train, workload.layout, workload.program)
        kinds = [find_stage_parts(workload, stage) for stage in range(workload.layout.pp)]
        self._kinds = {
            kind: StageCosts(workload, machine, self.traffic, costs, kinds.index(kind)) for kind in dict.fromkeys(kinds)
        }
        self._count = Counter(kinds)
        self._programs = [
            StageProgram(workload, machine, self.traffic, self._kinds[kind], stage) for stage, kind in enumerate(kinds)
        ]

    def run(self) -> StepTime:
        """Simulate the step."""
        layout = self.workload.layout
        stage_ranks = layout.replicas * layout.tp
        networks = [stage * stage_ranks // self.workload.ranks_per_node for stage in range(layout.pp)]
        if stage_ranks >= self.workload.ranks_per_node:
            networks = list(range(layout.pp))
        m, few = self.workload.micro_batches, 3 * layout.pp
        if self._unflushed:
            filled = 2 * -(-layout.pp // m) + 1
            less, more = (self._simulate(networks, m, steps) for steps in (filled, filled + 2))
            stages = [replace(step, end=step.seconds) for step in _combine(less, more, -0.5, 0.5)]
        elif m <= 2 * few:
            stages = self._simulate(networks, m)
        else:
            # A full pipeline is periodic: each additional round of micro-batches takes the same time.
            less, more = (self._simulate(networks, count) for count in (few, few + layout.pp))
            times = (m - few) / layout.pp
            stages = _combine(less, more, 1 - times, times)
        longest = max(range(layout.pp), key=lambda stage: stages[stage].busy)
        return self._split(stages[longest], self._programs[longest].costs)

    @property
    def _unflushed(self) -> bool:
        return self.workload.train.schedule in UNFLUSHED

    def _simulate(self, networks: list[int], micro_batches: int, steps: int = 1) -> "list[_StageTimes]":
        layout, cores = self.workload.layout, self.machine.shared_cores
        programs = [program.list_operations(micro_batches, steps) for program in self._programs]
        alike, core_costs = layout.replicas * layout.tp, self.machine.fabric.core_costs
        takes: CoreUse | None = None
        if core_costs:
            takes = CoreUse(
                waiting=constants.WAITING_CORES,
                driving=constants.DRIVING_CORES,
                networks=core_costs.networks / alike,
            )
        simulation = Simulation(programs, networks, cores / alike if cores else None, takes)
        seconds = simulation.run()
        return [
            _StageTimes(
                *(seconds, stage.time, stage.busy, stage.computed, stage.shared),
                *(stage.waited.get(kind, 0.0) for kind in ("tensor", "pipeline", "data")),
            )
            for stage in simulation.stages
        ]

    def _split(self, times: "_StageTimes", costs: StageCosts) -> StepTime:
        """Split the time of the stage with the most work into parts."""
        seconds, m = times.seconds, self.workload.micro_batches
        parts = dict.fromkeys(PARTS, 0.0)
        gathered = 0.0
        for forward, backward in costs.chunks:
            parts["forward"] += m * forward.work
            parts["backward"] += m * backward.work
            parts["recompute"] += m * backward.again
            for action in (forward, backward):
                parts["tensor"] += m * action.cost.inside
                parts["encode"] += m * action.cost.encode
                parts["decode"] += m * action.cost.decode
                gathered += m * action.gathered
        parts["optimizer"], parts["host link"] = costs.optimizer, costs.host
        self._add_reductions(parts, costs, times.data)
        # On shared cores, all work of a stage takes longer.
        longer = times.busy / (times.busy - times.shared) if times.shared else 1.0
        parts = {name: part * (1.0 if name == "data" else longer) for name, part in parts.items()}
        parts["tensor"] += times.tensor
        waits = times.pipeline + max(seconds - times.end, 0.0)
        shape = 0.0 if self._unflushed else (self.workload.layout.pp - 1) / self.workload.layout.chunks
        mean = (parts["forward"] + parts["backward"] + parts["recompute"] + parts["tensor"]) / m
        parts["bubble"] = min(waits, shape * mean)
        parts["pipeline"] = waits - parts["bubble"]
        moved = min(gathered, parts["tensor"])
        parts["tensor"] -= moved
        parts["data"] += moved
        total = sum(parts.values())
        parts["pipeline"] += max(seconds - total, 0.0) if self.workload.layout.pp > 1 else 0.0
        parts["waiting"] = self._estimate_wait_share() * seconds
        total = seconds + parts["waiting"]
        return StepTime(
            self._estimate_interval(total, parts),
            parts,
            _estimate_network_seconds(costs, times.tensor + times.data),
            self._average_channels(),
            times.computed,
        )

    def _estimate_wait_share(self) -> float:
        """Derive the fraction of a step spent waiting for the slowest rank from the expected maximum step time."""
        ranks = self.workload.layout.ranks
        if ranks == 1:
            return 0.0
        if not self.machine.gpu:
            return constants.WAIT_SHARE
        return constants.RANK_SPREAD * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))  # Blom, 1958

    def _add_reductions(self, parts: dict[str, float], costs: StageCosts, data: float) -> None:
        """Add the times of the reductions and the later calls to the parts: waiting, encoding and decoding."""
        times = self.workload.micro_batches if self.workload.train.zero >= 2 else 1
        exchange = [cost for buckets in costs.reductions for _, cost in buckets]
        encode = times * sum(cost.encode for cost in exchange) + costs.tail.encode
        decode = times * sum(cost.decode for cost in exchange) + costs.tail.decode
        if not self.machine.gpu:  # A CPU core encodes messages itself, so encoding is not part of the waiting time.
            parts["encode"] += encode
            parts["decode"] += decode
            parts["data"] = data
            return
        total = times * sum(cost.seconds for cost in exchange) + costs.tail.seconds
        exposed = min(data / total, 1.0) if total and self.workload.layout.ranks > 1 else 0.0
        parts["encode"] += encode * exposed
        parts["decode"] += decode * exposed
        parts["data"] = max(data - (encode + decode) * exposed, 0.0)

    def _estimate_interval(self, total: float, parts: dict[str, float]) -> PredictedValue:
        """Return the step time with an interval.

        The error of each input applies to the parts that depend on this input.
        """
        machine, fabric = self.machine, self.machine.fabric
        between = fabric.between_basis if self.workload.crosses_nodes else fabric.within_basis
        compute = machine.work_basis or find_worst((machine.products.basis, machine.device.basis))
        codec = find_worst(self.traffic.bases)
        of_part = {
            **dict.fromkeys(("forward", "backward", "recompute", "optimizer", "bubble"), compute),
            "tensor": fabric.within_basis,
            "pipeline": between,
            "data": between,
            "encode": codec,
            "decode": codec,
            "host link": InputBasis.ELSEWHERE if machine.gpu else InputBasis.ASSUMED,
            "waiting": InputBasis.ASSUMED,
        }
        work = sum(seconds for name, seconds in parts.items() if of_part[name] is compute)
        others = [(seconds, of_part[name].error) for name, seconds in parts.items() if of_part[name] is not compute]
        shared = constants.SHARED_CORES_ERROR if machine.shared_cores or machine.oversubscribed else 0.0
        unfitted = compute is not InputBasis.HERE and self.workload.program.slowdown is None
        program = constants.UNFITTED_PROGRAM_ERROR if unfitted else 0.0
        error = combine_errors([(work, compute.error), (work, program), *others, (total, shared)])
        used = find_worst(
            of_part[name] for name, seconds in parts.items() if seconds > 0.02 * total and name != "waiting"
        )
        return PredictedValue.around(total, error, used)

    def _average_channels(self) -> dict[Traffic, ChannelBytes]:
        """Return the bytes that the first rank of a stage sends through each channel, as a mean over the stages."""
        total: dict[Traffic, list[float]] = {}
        for kind, costs in self._kinds.items():
            stages = self._count[kind]
            for call, times in costs.calls.list_all():
                size, index = costs.calls.locate(call)
                if size == 1:
                    continue
                cost = self.traffic.cost(call, size=size)
                sums = total.setdefault(call.channel, [0, 0.0, 0.0])
                sharded = self.workload.program.shard and call.group == "dp"
                sent = cost.wire_bytes if sharded else call.message_bytes(size, index)
                sums[0] += stages * times * sent
                sums[1] += stages * times * cost.wire_bytes
                sums[2] += stages * times * cost.network_bytes
        stages = self.workload.layout.pp
        return {
            key: ChannelBytes(round(message / stages), wire / stages, network / stages)
            for key, (message, wire, network) in total.items()
            if message
        }


def _estimate_network_seconds(costs: StageCosts, waited: float) -> float:
    """Return the part of a stage's waiting time during which the node's network is busy."""
    exchange = sum(cost.network for buckets in costs.reductions for _, cost in buckets) + costs.tail.network
    total = sum(cost.seconds for buckets in costs.reductions for _, cost in buckets) + costs.tail.seconds
    return waited * exchange / total if total else 0.0


@dataclass(frozen=True)
class _StageTimes(Additive):
    """Times of one stage in a simulation, in seconds."""

    seconds: float
    """Time until the last stage ends."""
    end: float
    busy: float
    computed: float
    shared: float
    tensor: float
    """Waiting time for tensor-parallel messages. The next two fields are for pipeline and data-parallel messages."""
    pipeline: float
    data: float


def _combine(
    less: list[_StageTimes], more: list[_StageTimes], times_less: float, times_more: float
) -> list[_StageTimes]:
    """Return `times_less` times the first simulation plus `times_more` times the second, for each stage."""
    return [a * times_less + b * times_more for a, b in zip(less, more, strict=True)]
