"""The profile of a model's layers on a machine, as the partitioner takes it."""

from dataclasses import replace

from hpcbench.predict.buckets import get_itemsize
from hpcbench.predict.call import WIDTHS
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import CONTEXT_BYTES, count_activation_bytes
from hpcbench.predict.partition.chain import PLAIN, ChainLayer, Coding, LayerChain, LinkLevel, Setting
from hpcbench.predict.traffic import Costing
from hpcbench.predict.work import ComputeCosts, ComputeTime
from hpcbench.predict.workload import Workload
from hpcbench.predict.zero import MOMENTS

_BOUNDARIES = (("PP", "FORWARD", "ACT"), ("PP", "BACKWARD", "GRAD"))


def profile_layers(workload: Workload, machine: Machine) -> LayerChain:
    """The model's layers. The first one has the embedding too, and the last one the head: they lie with these."""
    model, train, layout = workload.model, workload.train, workload.layout
    costs = ComputeCosts(machine, model, train, layout, workload.program)
    width, sent = WIDTHS[train.precision], WIDTHS[train.message_formats["gradients"]]
    block = (12 * model.hidden**2 + 13 * model.hidden) / layout.tp
    table = model.vocab * model.hidden / layout.tp
    kept = count_activation_bytes(workload)
    found = []
    for number in range(model.layers):
        ends: list[tuple[ComputeTime, float]] = []
        if number == 0:
            ends.append((costs.embedding, table))
        if number == model.layers - 1:
            ends.append((costs.head, table))
        work = [costs.layer, *(one for one, _ in ends)]
        weights = block + sum(size for _, size in ends)
        found.append(
            ChainLayer(
                seconds=sum((w.forward + w.backward + w.again).total for w in work) * machine.work_factor,
                weight_bytes=weights * sent,
                out_bytes=_stream_elements(workload) * WIDTHS[train.message_formats["activations"]],
                kept_bytes=kept,
                version_bytes=weights * width,
                state_bytes=weights * (width + (1 + MOMENTS) * get_itemsize(train)),
            )
        )
    return LayerChain(found)


def make_setting(
    workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None, *, micro_batches: int = 1
) -> Setting:
    """Links, codecs and memory of a run that sums gradients after so many micro-batches of a replica.

    A rank is a tensor group here.
    """
    tp, fabric = workload.layout.tp, machine.fabric
    near = max(1, min(workload.ranks_per_node, workload.layout.ranks) // tp)
    nodes = -(-workload.layout.ranks // (near * tp))
    levels = [LinkLevel(near, fabric.within_bytes_per_s)]
    if nodes > 1:
        levels.append(LinkLevel(nodes, fabric.node_bytes_per_s * fabric.share))
    costing = Costing(
        replace(workload, layout=workload.layout.model_copy(update={"pp": max(2, nodes)})), machine, speeds
    )
    elements = _stream_elements(workload)
    there, back = (_coding(costing, key, elements, workload, "activations") for key in _BOUNDARIES)
    both = Coding((there.ratio + back.ratio) / 2, (there.codec_s + back.codec_s) / 2)
    bucket = int(workload.train.bucket_mb * 1e6 / get_itemsize(workload.train))
    sums = _coding(costing, ("DP", "BACKWARD", "GRAD"), bucket, workload, "gradients")
    memory = machine.device.memory_bytes - CONTEXT_BYTES if machine.gpu and machine.device.memory_bytes else None
    return Setting(levels, both, sums, memory, 1 / micro_batches)


def _stream_elements(workload: Workload) -> int:
    """Values that a rank sends on of one micro-batch."""
    train, layout = workload.train, workload.layout
    spread = layout.tp if train.sequence_parallel else 1
    return train.micro_batch * train.seq_len * workload.model.hidden // spread


def _coding(costing: Costing, key: tuple[str, str, str], elements: int, workload: Workload, content: str) -> Coding:
    codec = costing.treatment(key).codec
    if codec == "none":
        return PLAIN
    width, speed = WIDTHS[workload.train.message_formats[content]], costing.speed(codec)
    each = 1 / speed.encode_bytes_per_s + 1 / speed.decode_bytes_per_s + 2 * speed.call_s / (elements * width)
    return Coding(costing.ratio(codec, elements, width), each)
