"""Cost of a call under a scheme: encoding, decoding, intra-node links, and the node's network.

The engine's function in `comm.choice` selects the plan, with the same links as in the engine. The steps of the plan are
then timed on the machine's links. NumPy is imported only for schemes with plans, because the baseline uses the MPI
library.
"""

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.contract.rules import resolve_treatment
from hpcbench.contract.traffic import Algorithm, Traffic, TrafficSettings
from hpcbench.contract.treatment import Treatment
from hpcbench.errors import UserError
from hpcbench.predict import constants
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.call import PredictedCall
from hpcbench.predict.core_costs import CoreCosts
from hpcbench.predict.cost import CodecSpeed, Cost
from hpcbench.predict.fabric import PIECEWISE, GroupPlacement
from hpcbench.predict.machine import Machine
from hpcbench.predict.plan_cost import cost_plan
from hpcbench.predict.workload import Workload

if TYPE_CHECKING:
    from hpcbench.comm.plan import Plan


class Costing:
    """Cost model for a run's calls.

    Parameters
    ----------
    workload
        The run and scheme.
    machine
        The machine and its links.
    speeds
        Measured speeds of codecs.
    """

    def __init__(self, workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None) -> None:
        self._workload, self._machine, self._fabric = workload, machine, machine.fabric
        self._speeds = speeds or {}
        self._costs: dict[PredictedCall, Cost] = {}
        self._setting = TrafficSettings(workload.layout, workload.train, workload.model.tied)
        self._choices: dict[str, Any] = {}
        self.bases: set[InputBasis] = set()

    def cost(self, call: PredictedCall, *, size: int) -> Cost:
        """Return the cost of one call in a group of `size` ranks."""
        if size == 1 or not call.elements:
            return Cost()
        if call not in self._costs:
            self._costs[call] = self._cost_call(call)
        return self._costs[call]

    def treatment(self, key: Traffic) -> Treatment:
        """Return the engine's treatment of a channel's messages in the last step."""
        return resolve_treatment(self._workload.scheme, key, self._setting)

    def speed(self, codec: str) -> CodecSpeed:
        """Return the speed of a codec on this machine."""
        if codec in self._speeds:
            return self._speeds[codec]
        family = self._machine.device.family
        rate = constants.CODEC_BYTES_PER_S[family]
        if family == "cpu":
            rate *= self._machine.device.units
        ratio = constants.CODED_RATIO.get(codec.partition(":")[0])
        call = constants.CODEC_CALL_S["cpu" if family == "cpu" else "gpu"]
        return CodecSpeed(rate, rate, call, ratio, InputBasis.ASSUMED)

    def ratio(self, codec: str, elements: int, width: int) -> float:
        """Return a codec's encoded bytes per input byte."""
        if codec == "none":
            return 1.0
        measured = self.speed(codec).ratio
        return measured if measured is not None else _compute_ratio(codec, min(elements, 1 << 20), width)

    def _cost_call(self, call: PredictedCall) -> Cost:
        place = self._workload.place_group(call.group)
        nbytes = call.elements * call.width
        if call.operation == "send":
            return self._cost_message(call, nbytes)
        if self.treatment(call.channel).algorithm is Algorithm.NATIVE:
            if (
                self._workload.program.shard
                and call.group == "dp"
                and call.operation in ("all-gather", "reduce-scatter")
            ):
                return self._cost_sharded(call.operation, nbytes)
            return self._cost_library(call.operation, nbytes, place)
        if call.operation == "all-to-all":
            return self._cost_exchange(call, nbytes, place)
        plan = self._choose_plan(call, place)
        if plan is None or plan.algorithm.value in ("native", "homomorphic"):
            ratio = 1.0 if plan is None or plan.algorithm.value == "native" else 0.5
            return self._cost_library(call.operation, nbytes * ratio, place)
        codec = plan.codec.name
        speed = self.speed(codec) if codec != "none" else None
        self.bases |= {speed.basis} if speed else set()
        ratio = self.ratio(codec, max((piece.size for piece in plan.slices[0]), default=1), call.width)
        cost = cost_plan(plan, place, self._fabric, call.width, speed, ratio)
        return cost * place.ranks if call.operation in PIECEWISE else cost

    def _cost_sharded(self, operation: str, nbytes: float) -> Cost:
        """Return the cost of a collective if states are sharded over a group of replicas, and other groups hold copies.

        Gradient sums are then all-reduced over the copies.
        """
        shard, copies = self._workload.place_group("shard"), self._workload.place_group("copies")
        cost = self._cost_library(operation, nbytes, shard) if shard.ranks > 1 else Cost()
        if operation == "reduce-scatter" and copies.ranks > 1:
            cost += self._cost_library("all-reduce", nbytes / shard.ranks, copies)
        return cost

    def _cost_library(self, operation: str, nbytes: float, place: GroupPlacement) -> Cost:
        factor = self._fabric.library_factor(operation, place)
        times = self._fabric.nccl_parts if self._workload.program.nccl else self._fabric.collective_parts
        inside, network = (part * factor for part in times(operation, nbytes, place))
        if self._fabric.core_costs:
            inside = self._sum_core_seconds(self._fabric.core_costs, operation, nbytes, place)
        share = (place.ranks - 1) / place.ranks * (2 if operation == "all-reduce" else 1) * nbytes
        return Cost(0, 0, inside, network, share, share if place.nodes > 1 else 0)

    def _sum_core_seconds(self, core_costs: CoreCosts, operation: str, nbytes: float, place: GroupPlacement) -> float:
        """Return the core seconds of a library collective."""
        pieces = place.ranks if operation in PIECEWISE else 1
        once = core_costs.time_collective(operation, nbytes / pieces, ranks=place.ranks, crossing=place.nodes > 1)
        return pieces * once

    def _cost_exchange(self, call: PredictedCall, nbytes: float, place: GroupPlacement) -> Cost:
        """Return the cost of an all-to-all. Each rank encodes one part per peer, and decodes received parts.

        With a rule for inter-node traffic, parts for ranks on the same node are not encoded.
        """
        treatment = self.treatment(call.channel)
        codec, part = treatment.codec, nbytes / place.ranks
        coded = codec != "none" and not treatment.plain_because(part, one_node=place.nodes == 1)
        ratio = self.ratio(codec, call.elements // place.ranks, call.width) if coded else 1.0
        inside, network = self._fabric.collective_parts("all-to-all", nbytes * ratio, place)
        if self._fabric.core_costs:
            inside = self._sum_core_seconds(self._fabric.core_costs, "all-to-all", nbytes * ratio, place)
        encode = decode = 0.0
        near, away = place.per_node - 1, place.ranks - place.per_node
        crossing = away * part * ratio
        staying = near * part * ratio
        if coded:
            encode, decode = self._time_codec(codec, part, away if treatment.between_nodes else near + away)
            if treatment.between_nodes:
                inside += near * part * (1 - ratio) / (0.75 * self._fabric.within_bytes_per_s)
                staying = near * part
        return Cost(encode, decode, inside, network, staying + crossing, crossing)

    def _cost_message(self, call: PredictedCall, nbytes: float) -> Cost:
        workload = self._workload
        treatment = self.treatment(call.channel)
        crossing = workload.stage_crosses
        concurrent = min(workload.ranks_per_node, workload.layout.replicas * workload.layout.tp) if crossing else 1
        if call.group == "cp":  # With several nodes, the slowest link of the ring connects two nodes.
            place = workload.place_group("cp")
            crossing, concurrent = place.nodes > 1, place.concurrent
        codec = "none" if treatment.plain_because(nbytes, one_node=not crossing) else treatment.codec
        ratio = self.ratio(codec, call.elements, call.width)
        wire = nbytes * ratio
        if workload.program.sends_once and crossing and not workload.train.sequence_parallel:
            concurrent = max(1, concurrent // workload.layout.tp)
        inside, network = self._fabric.message_parts(wire, crossing=crossing, concurrent=concurrent)
        if self._fabric.core_costs:
            inside = self._fabric.core_costs.time_message(wire, crossing=crossing)
        encode = decode = 0.0
        if codec != "none":
            encode, decode = self._time_codec(codec, nbytes, 1)
        return Cost(encode, decode, inside, network, wire, wire if crossing else 0.0)

    def _time_codec(self, codec: str, nbytes: float, messages: int) -> tuple[float, float]:
        """Return the seconds to encode and to decode messages of `nbytes` each."""
        speed = self.speed(codec)
        self.bases.add(speed.basis)
        return (
            messages * (nbytes / speed.encode_bytes_per_s + speed.call_s),
            messages * (nbytes / speed.decode_bytes_per_s + speed.call_s),
        )

    def _choose_plan(self, call: PredictedCall, place: GroupPlacement) -> "Plan | None":
        _require_numpy(self._workload.scheme.name)
        import numpy as np

        from hpcbench.codecs.registry import get_codec
        from hpcbench.comm import links
        from hpcbench.comm.channel import resolve_channel
        from hpcbench.comm.choice import Choice
        from hpcbench.comm.plan import Operation
        from hpcbench.comm.topology import Topology

        if call.group not in self._choices:
            speeds = links.load(Path(self._workload.links)) if self._workload.links else links.DEFAULT
            self._choices[call.group] = Choice(0, Topology.regular(place.nodes, place.per_node), speeds)
        dtype = _get_dtype(self._workload.train.precision, call.width)
        elements = call.elements // place.ranks if call.operation in PIECEWISE else call.elements
        stand_in = np.broadcast_to(np.zeros(1, np.float64 if call.width == 8 else np.float32), elements)
        try:
            channel = resolve_channel(
                self._workload.scheme,
                call.channel,
                dtype if dtype != stand_in.dtype else None,
                step=self._workload.train.steps,
            )
            if call.codec:
                channel.codec = get_codec(call.codec)
            plan: Plan | None = self._choices[call.group].plan(
                Operation(call.operation), stand_in, channel, feedback=channel.feedback
            )
        except ValueError as error:
            raise UserError(f"scheme {self._workload.scheme.name}: {error}") from None
        return plan


def _require_numpy(scheme: str) -> None:
    if importlib.util.find_spec("numpy") is None:
        raise UserError(
            f"scheme {scheme}: its plans need NumPy: run `pip install numpy ml_dtypes`, or predict only the baseline"
        )


def _get_dtype(precision: str, width: int) -> Any:
    import numpy as np

    if width == 2 and precision == "bf16":
        from hpcbench.codecs.types import BFLOAT16

        return BFLOAT16
    return np.dtype({8: np.float64, 4: np.float32, 2: np.float16}[width])


@lru_cache(maxsize=4096)
def _compute_ratio(codec: str, elements: int, width: int) -> float:
    _require_numpy(codec)
    import numpy as np

    from hpcbench.codecs.registry import get_codec

    dtype = np.dtype({8: np.float64, 4: np.float32, 2: np.float16}[width])
    return get_codec(codec).wire_bytes(elements, dtype) / (elements * width)
