"""Profile of a model's layers on a machine, for the partitioner."""

from dataclasses import replace

from hpcbench.predict.buckets import get_itemsize
from hpcbench.predict.call import WIDTHS
from hpcbench.predict.cost import CodecSpeed
from hpcbench.predict.flops import describe_block
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import CONTEXT_BYTES, count_activation_bytes
from hpcbench.predict.partition.chain import PLAIN, ChainLayer, Coding, LayerChain, LinkLevel, Setting
from hpcbench.predict.program_memory import count_kept_bytes
from hpcbench.predict.traffic import Costing
from hpcbench.predict.work import ComputeCosts, ComputeTime
from hpcbench.predict.workload import Workload
from hpcbench.predict.zero import MOMENTS

_BOUNDARIES = (("PP", "FORWARD", "ACT"), ("PP", "BACKWARD", "GRAD"))


def profile_layers(workload: Workload, machine: Machine) -> LayerChain:
    """Profile the model's layers. The first layer includes the embedding, and the last layer includes the head."""
    model, train, layout = workload.model, workload.train, workload.layout
    costs = ComputeCosts(machine, model, train, layout, workload.program)
    width, sent = WIDTHS[train.precision], WIDTHS[train.message_formats["gradients"]]
    block = describe_block(model).count_parameters(model.hidden) / layout.tp
    table = model.vocab * model.hidden / layout.tp
    of_program = workload.program.states  # Other programs than the engine have their own rules.
    activations = (
        count_kept_bytes(workload, recompute=train.recompute) if of_program else count_activation_bytes(workload)
    )
    layers = []
    for number in range(model.layers):
        ends: list[tuple[ComputeTime, float]] = []
        if number == 0:
            ends.append((costs.embedding, table))
        if number == model.layers - 1:
            ends.append((costs.head, table))
        work = [costs.layer, *(end for end, _ in ends)]
        weights = block + sum(size for _, size in ends)
        layers.append(
            ChainLayer(
                seconds=sum((w.forward + w.backward + w.again).total for w in work) * machine.work_factor,
                weight_bytes=weights * sent,
                out_bytes=_count_stream_elements(workload) * WIDTHS[train.message_formats["activations"]],
                kept_bytes=activations,
                version_bytes=weights * width,
                state_bytes=weights * (width + (1 + MOMENTS) * get_itemsize(train)),
            )
        )
    return LayerChain(layers)


def make_setting(
    workload: Workload, machine: Machine, speeds: dict[str, CodecSpeed] | None = None, *, micro_batches: int = 1
) -> Setting:
    """Return the links, codecs and memory of a run that sums gradients after `micro_batches` micro-batches.

    In the partitioner, a rank stands for a tensor-parallel group.
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
    elements = _count_stream_elements(workload)
    there, back = (_find_coding(costing, key, elements, workload, "activations") for key in _BOUNDARIES)
    both = Coding((there.ratio + back.ratio) / 2, (there.codec_s + back.codec_s) / 2)
    bucket = int(workload.train.bucket_mb * 1e6 / get_itemsize(workload.train))
    sums = _find_coding(costing, ("DP", "BACKWARD", "GRAD"), bucket, workload, "gradients")
    memory = machine.device.memory_bytes - CONTEXT_BYTES if machine.gpu and machine.device.memory_bytes else None
    return Setting(levels, both, sums, memory, 1 / micro_batches)


def _count_stream_elements(workload: Workload) -> int:
    """Return the number of values that a rank sends to the next stage for one micro-batch."""
    train, layout = workload.train, workload.layout
    spread = layout.tp if train.sequence_parallel else 1
    return train.micro_batch * train.seq_len * workload.model.hidden // spread


def _find_coding(
    costing: Costing, key: tuple[str, str, str], elements: int, workload: Workload, content: str
) -> Coding:
    codec = costing.treatment(key).codec
    if codec == "none":
        return PLAIN
    width, speed = WIDTHS[workload.train.message_formats[content]], costing.speed(codec)
    each = 1 / speed.encode_bytes_per_s + 1 / speed.decode_bytes_per_s + 2 * speed.call_s / (elements * width)
    return Coding(costing.ratio(codec, elements, width), each)
