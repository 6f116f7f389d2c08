"""Prediction of a run: time, bytes, memory, and input sources."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpcbench.errors import UserError
from hpcbench.predict import flops
from hpcbench.predict.basis import InputBasis, PredictedValue
from hpcbench.predict.break_even import BreakEven, compare_steps, leave_undecided
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.experts import describe_experts
from hpcbench.predict.fabric import Fabric
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import PredictedMemory, predict_memory
from hpcbench.predict.parameter_server import predict_step_time
from hpcbench.predict.step import StepTime
from hpcbench.predict.workload import Workload


@dataclass(frozen=True)
class Prediction:
    """Prediction for one cell and scheme."""

    cell: str
    scheme: str
    workload: Workload
    time: StepTime
    memory: PredictedMemory
    against: BreakEven | None = None
    """Comparison with the baseline, or None for the baseline itself or if the baseline was not predicted."""

    @property
    def samples_per_s(self) -> PredictedValue:
        """Samples per second."""
        return self.time.seconds.inverse(self.workload.train.global_batch)

    @property
    def tflops(self) -> float:
        """Model TFLOP/s per rank."""
        model, train = self.workload.model, self.workload.train
        count = flops.count_model_flops(
            layers=model.layers,
            hidden=model.hidden,
            vocab=model.vocab,
            seq_len=train.seq_len,
            experts=describe_experts(model, train, self.workload.layout),
            block=flops.describe_block(model),
        )
        return count * train.global_batch / self.workload.layout.ranks / self.time.seconds.value / 1e12

    def to_json(self, peak: float) -> dict[str, Any]:
        """Return the prediction as plain data. The MFU is computed from `peak`, the FLOP/s of the device."""
        return {
            "cell": self.cell,
            "scheme": self.scheme,
            "ranks": self.workload.layout.ranks,
            "step_seconds": asdict(self.time.seconds),
            "parts": self.time.parts,
            "network_seconds": self.time.network_seconds,
            "samples_per_s": asdict(self.samples_per_s),
            "model_tflops": self.tflops,
            "mfu": self.tflops * 1e12 / peak,
            "channels": {" ".join(key): asdict(sent) for key, sent in self.time.channels.items()},
            "memory": {
                "rank": self.memory.rank,
                "peaks": self.memory.peaks,
                "bytes": asdict(self.memory.figure),
                "host_bytes": self.memory.host_bytes,
                "limit": self.memory.limit,
                "fits": self.memory.fits,
            },
            "against_baseline": self.against.to_json() if self.against else None,
        }


def predict(
    cell: str,
    workloads: Sequence[tuple[str, Workload]],
    machine: Machine,
    *,
    baseline: str,
    speeds: dict[str, CodecSpeed] | None = None,
    refused: list[str] | None = None,
) -> list[Prediction]:
    """Predict the schemes of one cell, and compare them with the baseline if it is included.

    Parameters
    ----------
    refused
        List to which the error of each scheme that cannot be predicted is appended, or None to raise the error.
    """
    predictions = []
    for name, workload in workloads:
        try:
            time = predict_step_time(workload, machine, speeds)
        except UserError as error:
            if refused is None:
                raise
            refused.append(str(error))
            continue
        memory = predict_memory(workload, machine.device.memory_bytes if machine.gpu else None)
        predictions.append(Prediction(cell, name, workload, time, memory))
    base = next((prediction for prediction in predictions if prediction.scheme == baseline), None)
    if base is None:
        return predictions
    return [
        prediction if prediction is base else replace(prediction, against=_compare(base, prediction, machine.fabric))
        for prediction in predictions
    ]


def _compare(base: Prediction, prediction: Prediction, fabric: Fabric) -> BreakEven:
    crossing = base.workload.crosses_nodes
    if (fabric.between_basis if crossing else fabric.within_basis) is InputBasis.ASSUMED:
        return leave_undecided(fabric.describe(between=crossing))
    return compare_steps(base.time, prediction.time, fabric.node_bytes_per_s)


def scale_to_ranks(workload: Workload, ranks: int) -> Workload:
    """Return the same run on `ranks` ranks, with more or fewer replicas and the same number of tokens per replica.

    Raises
    ------
    ValueError
        The number of ranks is not a multiple of the ranks per replica.
    """
    layout = workload.layout
    replica = layout.ranks // layout.dp
    if ranks % replica or ranks < replica:
        names = ("cp", "tp", "pp") if layout.cp > 1 else ("tp", "pp")
        sizes = " x ".join(str(getattr(layout, name)) for name in names)
        raise ValueError(f"{ranks} is not a multiple of {' x '.join(names)} = {sizes} = {replica}")
    dp = ranks // replica
    batch = workload.train.global_batch // layout.dp * dp
    return replace(
        workload,
        layout=layout.model_copy(update={"dp": dp}),
        train=workload.train.model_copy(update={"global_batch": batch}),
    )


def compute_gains(
    cells: Sequence[tuple[Sequence[tuple[str, Workload]], Machine]], baseline: str
) -> dict[str, list[float]]:
    """Return the gain of each scheme over the baseline in each cell. A cell consists of workloads and their machine."""
    gains: dict[str, list[float]] = {}
    for workloads, machine in cells:
        plain = predict_step_time(dict(workloads)[baseline], machine).seconds.value
        for name, workload in workloads:
            if name != baseline:
                gains.setdefault(name, []).append(plain / predict_step_time(workload, machine).seconds.value - 1)
    return gains
