"""Memory of a rank under the rules of another training program. Pure.

States are given in bytes per parameter. A layer with fused kernels keeps these 16-bit values: the inputs and outputs of
two norms, queries, keys and values, the attention output, and the inputs and output of the activation function
(Transformer Engine; arXiv 2205.05198, table 2, without scores and dropout). Sequence parallelism shards all of these
values.
"""

from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.predict.activations import count_alive, count_layer_bytes
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.experts import count_rows
from hpcbench.predict.workload import Workload


def count_kept_bytes(workload: Workload, *, recompute: str | int) -> float:
    """Return the minimum bytes that one layer keeps per micro-batch until the backward pass."""
    model, train, layout = workload.model, workload.train, workload.layout
    tokens = train.micro_batch * train.seq_len // layout.cp
    spread = layout.tp if train.sequence_parallel else 1
    if recompute not in ("none", "selective"):
        return 2.0 * tokens * model.hidden / spread / (1 if recompute == "full" else int(recompute))
    if workload.program.keeps == "input":
        return 2.0 * tokens * model.hidden / spread
    if workload.program.keeps == "unfused":
        return count_layer_bytes(
            seq_len=train.seq_len // layout.cp,
            micro_batch=train.micro_batch,
            hidden=model.hidden,
            heads=model.heads,
            tp=layout.tp,
            sequence_parallel=train.sequence_parallel,
            recompute=recompute,
        )
    norms = 4 * model.hidden
    attention: float = model.qkv_width + model.hidden
    rows = tokens
    middle: float = (3 if model.gated else 2) * model.middle
    if model.experts:
        rows = count_rows(model.experts, train, layout.cp)
        middle = (3 if model.gated else 2) * model.expert_middle + model.hidden
    if recompute == "selective":  # Half of the layer's products are recomputed, as in torchtitan.
        attention, middle = attention / 2, middle / 2
    return 2.0 * (tokens * (norms / spread + attention / layout.tp) + rows * middle / layout.tp)


def list_program_peaks(workload: Workload, stage: int) -> dict[str, dict[str, float]]:
    """Return a rank's bytes, by peak and kind, for the kinds that the program uses."""
    model, train, layout, states = workload.model, workload.train, workload.layout, workload.program.states
    calls = StepCalls(model, train, layout, stage * layout.replicas * layout.tp)
    parameters = sum(bucket.length * count for bucket, count in calls.buckets)
    largest = max(bucket.length for bucket, _ in calls.buckets)
    pieces = sum(bucket.length / max(workload.shard // bucket.ep, 1) * count for bucket, count in calls.buckets)
    weights = states["weights"] * (pieces if train.zero == 3 else parameters)
    gradients = states["gradients"] * (pieces if train.zero >= 2 else parameters)
    optimizer = 0.0 if train.offload else states["optimizer"] * (pieces if train.zero else parameters)
    gathered = 2.0 * 2 * largest if train.zero >= 2 else 0.0  # Two 16-bit layers: one in use, one arriving.
    cut = layout.layers_of(model.layers)
    actions = list(SCHEDULES[train.schedule](stage, layout.pp, workload.micro_batches, layout.chunks))
    layers = count_alive(actions, [len(cut[number]) for number in calls.parts])
    activations = layers * count_kept_bytes(workload, recompute=train.recompute)
    again = count_kept_bytes(workload, recompute="none") if train.recompute not in ("none", "selective") else 0.0
    logits = 0.0
    if stage == layout.pp - 1:  # A fused cross entropy keeps the logits once in 16 bits and once in fp32.
        logits = train.micro_batch * train.seq_len // layout.cp * model.vocab / layout.tp * 6.0
    base = {"weights": weights, "optimizer": optimizer, "gradients": gradients}
    return {
        "before backward": {**base, "activations": activations, "transient": gathered + again + logits},
        "after backward": {**base, "transient": gathered},
        "after reduction": {**base, "transient": gathered},
    }
