"""Operations of one pipeline stage in a step, in schedule order."""

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
    """Generator of a stage's operations.

    Parameters
    ----------
    workload, machine
        The run and its machine.
    traffic
        Costs of calls.
    costs
        Costs of the stages of this kind.
    stage
        Index of the stage.
    """

    def __init__(self, workload: Workload, machine: Machine, traffic: Costing, costs: StageCosts, stage: int) -> None:
        self._workload, self._machine, self._traffic = workload, machine, traffic
        self.costs, self.stage = costs, stage

    def list_operations(self, micro_batches: int, steps: int = 1) -> list[StageOperation]:
        """List the operations in schedule order, with `micro_batches` micro-batches per step.

        Without a flush, steps overlap. Otherwise, the operations of a step are repeated.
        """
        train, layout = self._workload.train, self._workload.layout
        operations: list[StageOperation] = []
        for step in range(steps):
            if train.schedule in UNFLUSHED:
                actions = Stream(layout.pp, micro_batches, steps).actions(self.stage, step)
            else:
                actions = SCHEDULES[train.schedule](self.stage, layout.pp, micro_batches, layout.chunks)
            self._add_step(operations, actions, micro_batches)
        return operations

    def _add_step(
        self, operations: list[StageOperation], actions: Iterable[PipelineAction], micro_batches: int
    ) -> None:
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
                    operations.append(WaitForTransfer(("forward", i, number), "pipeline"))
                    _add_busy(operations, sending.decode)
                self._add_pass(operations, forward, 1.0)
                if number < last_part:
                    _add_busy(operations, sending.encode)
                    self._send(operations, ("forward", i, number + 1), sending)
                continue
            if number < last_part:
                operations.append(WaitForTransfer(("backward", i, number), "pipeline"))
                _add_busy(operations, returning.decode)
            buckets = costs.reductions[chunk]
            if overlaps and buckets and (each_time or (i + 1) % micro_batches == 0):
                share = 1 / sum(size for size, _ in buckets)
                for k, (size, cost) in enumerate(buckets):
                    self._add_pass(operations, backward, share * size)
                    key = ("reduced", number, i, k, self.stage)
                    self._post(operations, key, cost)
                    posted.append((key, cost))
            else:
                self._add_pass(operations, backward, 1.0)
                if each_time:
                    for _, cost in buckets:
                        self._add_call(operations, cost)
            if number:
                _add_busy(operations, returning.encode)
                self._send(operations, ("backward", i, number - 1), returning)
        for reduced, cost in posted:
            operations.append(WaitForTransfer(reduced, "data"))
            if not self._machine.gpu:
                _add_busy(operations, cost.decode)
        if reduces and not overlaps and not each_time:
            for buckets in costs.reductions:
                for _, cost in buckets:
                    self._add_call(operations, cost)
        self._add_call(operations, costs.tail)
        operations.append(Compute(costs.optimizer + costs.host))

    def _add_pass(self, operations: list[StageOperation], action: PassCost, share: float) -> None:
        """Add operations of a share of a pass. On shared cores, other ranks compute while one waits for the network."""
        network = action.cost.network * share
        computing = Compute(action.busy * share, (action.work + action.again) / action.busy if action.busy else 1.0)
        if network > 0 and self._machine.fabric.core_costs:
            key = ("act", self.stage, len(operations))
            post = BackgroundTransfer(key, 0.0, network, driven=self._workload.train.overlap)
            operations += [post, computing, WaitForTransfer(key, "tensor")]
            return
        operations.append(computing)
        if network > 0:
            operations.append(BlockingTransfer(0.0, network, "tensor"))

    def _send(self, operations: list[StageOperation], key: object, cost: Cost) -> None:
        if self._machine.fabric.core_costs:
            _add_busy(operations, cost.inside)
            # Messages to one rank arrive in send order, because they share a connection.
            way = key[0] if isinstance(key, tuple) else key
            operations.append(
                BackgroundTransfer(key, 0.0, cost.network, 0.0, f"pp {way}", driven=self._workload.train.overlap)
            )
        elif self._workload.program.waits_for_messages:
            operations.append(BlockingTransfer(cost.inside, cost.network, "pipeline"))
            operations.append(BackgroundTransfer(key, 0.0, 0.0))
        else:
            operations.append(BackgroundTransfer(key, cost.inside, cost.network))

    def _post(self, operations: list[StageOperation], key: object, cost: Cost) -> None:
        """Add a background reduction.

        A GPU encodes while it computes, whereas a CPU core encodes and computes in turn.
        """
        if self._machine.gpu:
            operations.append(BackgroundTransfer(key, cost.encode + cost.inside, cost.network, cost.decode, "dp"))
        elif self._machine.fabric.core_costs:
            _add_busy(operations, cost.encode)
            operations.append(BackgroundTransfer(key, 0.0, cost.network, 0.0, "dp", driven=True))
            _add_busy(operations, cost.inside)
        else:
            _add_busy(operations, cost.encode)
            operations.append(BackgroundTransfer(key, cost.inside, cost.network, 0.0, "dp"))

    def _add_call(self, operations: list[StageOperation], cost: Cost) -> None:
        if self._machine.gpu:
            operations.append(BlockingTransfer(cost.encode + cost.inside + cost.decode, cost.network, "data"))
        elif self._machine.fabric.core_costs:
            key = ("call", self.stage, len(operations))
            _add_busy(operations, cost.encode, 0.0)
            operations.append(BackgroundTransfer(key, 0.0, cost.network))
            _add_busy(operations, cost.inside, 0.0)
            operations.append(WaitForTransfer(key, "data"))
            _add_busy(operations, cost.decode, 0.0)
        else:
            _add_busy(operations, cost.encode, 0.0)
            operations.append(BlockingTransfer(cost.inside, cost.network, "data"))
            _add_busy(operations, cost.decode, 0.0)


def _add_busy(operations: list[StageOperation], seconds: float, computes: float = 1.0) -> None:
    if seconds:
        operations.append(Compute(seconds, computes))
