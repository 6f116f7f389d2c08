"""What one stage of the pipeline does in a step, in the order of its schedule."""

from collections.abc import Iterable

from hpcbench.contract.training import UNFLUSHED
from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.parallel.schedule import Action as PipelineAction
from hpcbench.parallel.stream import Stream
from hpcbench.predict.cost import Cost
from hpcbench.predict.machine import Machine
from hpcbench.predict.operations import BackgroundTransfer, BlockingTransfer, Compute, StageOperation, WaitForTransfer
from hpcbench.predict.stage import PassCost, StageCosts
from hpcbench.predict.traffic import Costing
from hpcbench.predict.workload import Workload


class StageProgram:
    """The operations of a stage.

    Parameters
    ----------
    workload, machine
        The run, and where.
    traffic
        What calls cost.
    costs
        Costs of its kind.
    stage
        Its number.
    """

    def __init__(self, workload: Workload, machine: Machine, traffic: Costing, costs: StageCosts, stage: int) -> None:
        self._workload, self._machine, self._traffic = workload, machine, traffic
        self.costs, self.stage = costs, stage

    def operations(self, micro_batches: int, steps: int = 1) -> list[StageOperation]:
        """In the order of the schedule, with so many micro-batches a step.

        Only without a flush are several steps more than one step several times.
        """
        train, layout = self._workload.train, self._workload.layout
        found: list[StageOperation] = []
        if train.schedule in UNFLUSHED:
            stream = Stream(layout.pp, micro_batches, steps)
            for step in range(steps):
                self._step(found, stream.actions(self.stage, step), micro_batches)
            return found
        for _ in range(steps):
            actions = SCHEDULES[train.schedule](self.stage, layout.pp, micro_batches, layout.chunks)
            self._step(found, actions, micro_batches)
        return found

    def _step(self, found: list[StageOperation], actions: Iterable[PipelineAction], micro_batches: int) -> None:
        train, layout, costs = self._workload.train, self._workload.layout, self.costs
        last_part = layout.parts - 1
        message, back = costs.calls.activations(0), costs.calls.gradients_back(1)
        sending = self._traffic.cost(message, size=layout.pp) if message else Cost()
        returning = self._traffic.cost(back, size=layout.pp) if back else Cost()
        reduces = layout.replicas > 1
        overlaps, each_time = train.overlap and reduces, train.zero >= 2 and reduces
        posted: list[tuple[object, Cost]] = []
        for work, i, chunk in actions:
            number = chunk * layout.pp + self.stage
            forward, backward = costs.chunks[chunk]
            if work == "forward":
                if number:
                    found.append(WaitForTransfer(("forward", i, number), "pipeline"))
                    _busy(found, sending.decode)
                self._act(found, forward, 1.0)
                if number < last_part:
                    _busy(found, sending.encode)
                    self._send(found, ("forward", i, number + 1), sending)
                continue
            if number < last_part:
                found.append(WaitForTransfer(("backward", i, number), "pipeline"))
                _busy(found, returning.decode)
            buckets = costs.reductions[chunk]
            if overlaps and buckets and (each_time or (i + 1) % micro_batches == 0):
                share = 1 / sum(size for size, _ in buckets)
                for k, (size, cost) in enumerate(buckets):
                    self._act(found, backward, share * size)
                    key = ("reduced", number, i, k, self.stage)
                    self._post(found, key, cost)
                    posted.append((key, cost))
            else:
                self._act(found, backward, 1.0)
                if each_time:
                    for _, cost in buckets:
                        self._call(found, cost, "data")
            if number:
                _busy(found, returning.encode)
                self._send(found, ("backward", i, number - 1), returning)
        for reduced, cost in posted:
            found.append(WaitForTransfer(reduced, "data"))
            if not self._machine.gpu:
                _busy(found, cost.decode)
        if reduces and not overlaps and not each_time:
            for buckets in costs.reductions:
                for _, cost in buckets:
                    self._call(found, cost, "data")
        self._call(found, costs.tail, "data")
        found.append(Compute(costs.optimizer + costs.host))

    def _act(self, found: list[StageOperation], action: PassCost, share: float) -> None:
        """Compute a share of an action. Where ranks share cores, others compute while one waits for the network."""
        network = action.cost.network * share
        computing = Compute(action.own * share, (action.work + action.again) / action.own if action.own else 1.0)
        if network > 0 and self._machine.fabric.core_costs:
            key = ("act", self.stage, len(found))
            post = BackgroundTransfer(key, 0.0, network, driven=self._workload.train.overlap)
            found += [post, computing, WaitForTransfer(key, "tensor")]
            return
        found.append(computing)
        if network > 0:
            found.append(BlockingTransfer(0.0, network, "tensor"))

    def _send(self, found: list[StageOperation], key: object, cost: Cost) -> None:
        if self._machine.fabric.core_costs:
            _busy(found, cost.inside)
            # messages to one rank come in the order in which they were sent, over one connection
            way = key[0] if isinstance(key, tuple) else key
            found.append(
                BackgroundTransfer(key, 0.0, cost.network, 0.0, f"pp {way}", driven=self._workload.train.overlap)
            )
        elif self._workload.program.waits_for_messages:
            found.append(BlockingTransfer(cost.inside, cost.network, "pipeline"))
            found.append(BackgroundTransfer(key, 0.0, 0.0))
        else:
            found.append(BackgroundTransfer(key, cost.inside, cost.network))

    def _post(self, found: list[StageOperation], key: object, cost: Cost) -> None:
        """A reduction in the background. A GPU encodes beside its products; a core has none beside itself."""
        if self._machine.gpu:
            found.append(BackgroundTransfer(key, cost.encode + cost.inside, cost.network, cost.decode, "dp"))
        elif self._machine.fabric.core_costs:
            _busy(found, cost.encode)
            found.append(BackgroundTransfer(key, 0.0, cost.network, 0.0, "dp", driven=True))
            _busy(found, cost.inside)
        else:
            _busy(found, cost.encode)
            found.append(BackgroundTransfer(key, cost.inside, cost.network, 0.0, "dp"))

    def _call(self, found: list[StageOperation], cost: Cost, kind: str) -> None:
        if self._machine.gpu:
            found.append(BlockingTransfer(cost.encode + cost.inside + cost.decode, cost.network, kind))
        elif self._machine.fabric.core_costs:
            key = ("call", self.stage, len(found))
            _busy(found, cost.encode, 0.0)
            found.append(BackgroundTransfer(key, 0.0, cost.network))
            _busy(found, cost.inside, 0.0)
            found.append(WaitForTransfer(key, kind))
            _busy(found, cost.decode, 0.0)
        else:
            _busy(found, cost.encode, 0.0)
            found.append(BlockingTransfer(cost.inside, cost.network, kind))
            _busy(found, cost.decode, 0.0)


def _busy(found: list[StageOperation], seconds: float, computes: float = 1.0) -> None:
    if seconds:
        found.append(Compute(seconds, computes))
