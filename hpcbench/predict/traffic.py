"""What a call costs under a scheme: encoding, decoding, the links within a node, and the node's network.

The engine's own choice of a plan is asked for (`comm.choice`), with the links that the engine would know; the steps of
the plan are then timed on the machine's links. NumPy is imported only where a scheme has plans of its own: the baseline
is the library's.
"""

import importlib.util
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.contract.rules import resolve_treatment
from hpcbench.contract.scheme import Treatment
from hpcbench.contract.traffic import Algorithm, Traffic, TrafficSettings
from hpcbench.errors import UserError
from hpcbench.predict import constants
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.call import PredictedCall
from hpcbench.predict.core_costs import CoreCosts
from hpcbench.predict.cost import CodecSpeed, Cost
from hpcbench.predict.fabric import PIECEWISE, Fabric, GroupPlacement
from hpcbench.predict.machine import Machine
from hpcbench.predict.plan_cost import cost_plan
from hpcbench.predict.workload import Workload

if TYPE_CHECKING:
    from hpcbench.comm.plan import Plan


class Costing:
    """Costs of a run's calls.

    Parameters
    ----------
    workload
        The run, with its scheme.
    machine
        Its links and codecs.
    speeds
        Speeds of codecs, as measured here.
    """

    def __init__(self, workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None) -> None:
        self._workload, self._machine = workload, machine
        self._speeds = speeds or {}
        self._costs: dict[tuple[PredictedCall, float | None], Cost] = {}
        self._setting = TrafficSettings(workload.layout, workload.train, workload.model.tied)
        self._choices: dict[str, Any] = {}
        self.bases: set[InputBasis] = set()

    def cost(self, call: PredictedCall, *, size: int, after_s: float | None = None) -> Cost:
        """Cost of one call over a group of `size`.

        Parameters
        ----------
        after_s
            Seconds that the rank works before the call, which cores that ranks share are told by; None for long.
        """
        if size == 1 or not call.elements:
            return Cost()
        if (call, after_s) not in self._costs:
            fabric = self._machine.fabric
            if fabric.core_costs and after_s is not None:
                fabric = replace(fabric, core_costs=fabric.core_costs.after(after_s))
            self._costs[call, after_s] = self._cost(call, fabric) + self._handed(call, fabric.core_costs)
        return self._costs[call, after_s]

    def _handed(self, call: PredictedCall, core_costs: CoreCosts | None) -> Cost:
        """What a thread takes that drives the call while the rank computes; each piece is a call of its own."""
        workload = self._workload
        at_once = call.channel[0] in ("TP", "SP") and workload.layout.tensor == "1d"
        if not core_costs or not workload.train.overlap or at_once or call.channel[0] == "EXACT":
            return Cost()
        pieces = workload.place_group(call.group).ranks if call.operation in PIECEWISE else 1
        return Cost(inside=pieces * core_costs.background_s)

    def treatment(self, key: Traffic) -> Treatment:
        """Return how the engine carries out the messages of a channel."""
        return resolve_treatment(self._workload.scheme, key, self._setting)

    def speed(self, codec: str) -> CodecSpeed:
        """Speed of a codec on this machine."""
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
        """Bytes after the codec for each before it."""
        if codec == "none":
            return 1.0
        measured = self.speed(codec).ratio
        return measured if measured is not None else _exact_ratio(codec, min(elements, 1 << 20), width)

    def _cost(self, call: PredictedCall, fabric: Fabric) -> Cost:
        place = self._workload.place_group(call.group)
        nbytes = call.elements * call.width
        if call.operation == "send":
            return self._message(call, nbytes, fabric)
        if self.treatment(call.channel).algorithm is Algorithm.NATIVE:
            return self._library(call.operation, nbytes, place, fabric)
        if call.operation == "all-to-all":
            return self._exchange(call, nbytes, place, fabric)
        plan = self._plan(call, place)
        if plan is None or plan.algorithm.value in ("native", "homomorphic"):
            ratio = 1.0 if plan is None or plan.algorithm.value == "native" else 0.5
            return self._library(call.operation, nbytes * ratio, place, fabric)
        codec = plan.codec.name
        speed = self.speed(codec) if codec != "none" else None
        self.bases |= {speed.basis} if speed else set()
        ratio = self.ratio(codec, max((piece.size for piece in plan.slices[0]), default=1), call.width)
        cost = cost_plan(plan, place, fabric, call.width, speed, ratio)
        return cost * place.ranks if call.operation in PIECEWISE else cost

    def _library(self, operation: str, nbytes: float, place: GroupPlacement, fabric: Fabric) -> Cost:
        factor = fabric.library_factor(operation, place)
        inside, network = (part * factor for part in fabric.collective_parts(operation, nbytes, place))
        if fabric.core_costs:
            inside = self._worked(fabric.core_costs, operation, nbytes, place)
        share = (place.ranks - 1) / place.ranks * (2 if operation == "all-reduce" else 1) * nbytes
        return Cost(0, 0, inside, network, share, share if place.nodes > 1 else 0)

    def _worked(self, core_costs: CoreCosts, operation: str, nbytes: float, place: GroupPlacement) -> float:
        """Seconds of a core that a library's collective takes."""
        pieces = place.ranks if operation in PIECEWISE else 1
        once = core_costs.collective(operation, nbytes / pieces, ranks=place.ranks, crossing=place.nodes > 1)
        return pieces * once

    def _exchange(self, call: PredictedCall, nbytes: float, place: GroupPlacement, fabric: Fabric) -> Cost:
        """An all-to-all: every rank encodes a part for each other rank, and decodes those that come.

        A rule for traffic between nodes leaves parts for ranks of the same node as they are.
        """
        treatment = self.treatment(call.channel)
        codec, part = treatment.codec, nbytes / place.ranks
        coded = codec != "none" and not treatment.plain_because(part, one_node=place.nodes == 1)
        ratio = self.ratio(codec, call.elements // place.ranks, call.width) if coded else 1.0
        inside, network = fabric.collective_parts("all-to-all", nbytes * ratio, place)
        if fabric.core_costs:
            inside = self._worked(fabric.core_costs, "all-to-all", nbytes * ratio, place)
        encode = decode = 0.0
        near, away = place.per_node - 1, place.ranks - place.per_node
        crossing = away * part * ratio
        staying = near * part * ratio
        if coded:
            speed = self.speed(codec)
            self.bases.add(speed.basis)
            parts = away if treatment.between_nodes else near + away
            encode = parts * (part / speed.encode_bytes_per_s + speed.call_s)
            decode = parts * (part / speed.decode_bytes_per_s + speed.call_s)
            if treatment.between_nodes:
                inside += near * part * (1 - ratio) / (0.75 * fabric.within_bytes_per_s)
                staying = near * part
        return Cost(encode, decode, inside, network, staying + crossing, crossing)

    def _message(self, call: PredictedCall, nbytes: float, fabric: Fabric) -> Cost:
        workload = self._workload
        treatment = self.treatment(call.channel)
        crossing = workload.stage_crosses
        alike = min(workload.ranks_per_node, workload.layout.replicas * workload.layout.tp) if crossing else 1
        if call.group == "cp":  # the slowest link of the ring is between nodes, where there are several
            place = workload.place_group("cp")
            crossing, alike = place.nodes > 1, place.concurrent
        codec = "none" if treatment.plain_because(nbytes, one_node=not crossing) else treatment.codec
        ratio = self.ratio(codec, call.elements, call.width)
        wire = nbytes * ratio
        if workload.program.sends_once and crossing and not workload.train.sequence_parallel:
            alike = max(1, alike // workload.layout.tp)
        inside, network = fabric.message_parts(wire, crossing=crossing, alike=alike)
        if fabric.core_costs:
            inside = fabric.core_costs.message(wire, crossing=crossing)
        encode = decode = 0.0
        if codec != "none":
            speed = self.speed(codec)
            self.bases.add(speed.basis)
            encode = nbytes / speed.encode_bytes_per_s + speed.call_s
            decode = nbytes / speed.decode_bytes_per_s + speed.call_s
        return Cost(encode, decode, inside, network, wire, wire if crossing else 0.0)

    def _plan(self, call: PredictedCall, place: GroupPlacement) -> "Plan | None":
        _need_numpy(self._workload.scheme.name)
        import numpy as np

        from hpcbench.comm import links
        from hpcbench.comm.channel import resolve_channel
        from hpcbench.comm.choice import Choice
        from hpcbench.comm.plan import Operation
        from hpcbench.comm.topology import Topology

        if call.group not in self._choices:
            known = links.load(Path(self._workload.links)) if self._workload.links else links.DEFAULT
            self._choices[call.group] = Choice(0, Topology.regular(place.nodes, place.per_node), known)
        dtype = _dtype(self._workload.train.precision, call.width)
        stand_in = np.broadcast_to(np.zeros(1, np.float64 if call.width == 8 else np.float32), _vector(call, place))
        try:
            channel = resolve_channel(self._workload.scheme, call.channel, dtype if dtype != stand_in.dtype else None)
            found: Plan | None = self._choices[call.group].plan(
                Operation(call.operation), stand_in, channel, feedback=channel.feedback
            )
        except ValueError as error:
            raise UserError(f"scheme {self._workload.scheme.name}: {error}") from None
        return found


def _vector(call: PredictedCall, place: GroupPlacement) -> int:
    """Elements of the vector that a plan is made for."""
    return call.elements // place.ranks if call.operation in PIECEWISE else call.elements


def _need_numpy(scheme: str) -> None:
    if importlib.util.find_spec("numpy") is None:
        raise UserError(
            f"scheme {scheme}: its plans need NumPy: `pip install numpy ml_dtypes`, or predict the baseline"
        )


def _dtype(precision: str, width: int) -> Any:
    import numpy as np

    if width == 2 and precision == "bf16":
        from hpcbench.codecs.types import BFLOAT16

        return BFLOAT16
    return np.dtype({8: np.float64, 4: np.float32, 2: np.float16}[width])


@lru_cache(maxsize=4096)
def _exact_ratio(codec: str, elements: int, width: int) -> float:
    _need_numpy(codec)
    import numpy as np

    from hpcbench.codecs.registry import get_codec

    dtype = np.dtype({8: np.float64, 4: np.float32, 2: np.float16}[width])
    return get_codec(codec).wire_bytes(elements, dtype) / (elements * width)
