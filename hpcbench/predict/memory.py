"""Memory of a rank at the three peaks of a step, by kind, and a check against the device's memory. Pure, without NumPy.

Before the backward pass, memory contains the activations that the schedule keeps. After the backward pass, it
contains all gradients. After the reduction, while the optimizer runs, it contains the gradient sums that the rank owns.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hpcbench.contract.rules import list_treatments
from hpcbench.contract.traffic import TrafficSettings
from hpcbench.contract.training import UNFLUSHED, Model
from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.parallel.stream import Stream
from hpcbench.predict import context, zero
from hpcbench.predict import grid as grids
from hpcbench.predict.activations import count_alive
from hpcbench.predict.basis import InputBasis, PredictedValue
from hpcbench.predict.buckets import get_itemsize
from hpcbench.predict.call import WIDTHS
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.experts import count_kept_elements, count_mlp_elements, count_rows
from hpcbench.predict.program_memory import list_program_peaks
from hpcbench.predict.workload import Workload

KINDS = ("weights", "stashes", "gradients", "optimizer", "activations", "transient", "codec buffers", "residuals")
PEAKS = ("before backward", "after backward", "after reduction")
CONTEXT_BYTES = 1.2e9
"""GPU memory used by CUDA, libraries and fragmentation (assumed)."""
_ERROR = 0.10


@dataclass(frozen=True)
class PredictedMemory:
    """Memory of the rank that needs most memory."""

    rank: int
    """First rank of the stage that needs most memory."""
    peaks: dict[str, dict[str, float]]
    """Bytes by peak and kind."""
    host_bytes: float
    """Offloaded bytes on the rank's host."""
    limit: float | None
    """Device memory in bytes, or None if unknown."""
    basis: InputBasis = InputBasis.ELSEWHERE
    """Source of the rules for states and activations."""

    @property
    def peak(self) -> str:
        """Name of the largest peak."""
        return max(self.peaks, key=lambda name: sum(self.peaks[name].values()))

    @property
    def bytes(self) -> float:
        """Bytes at the largest peak."""
        return sum(self.peaks[self.peak].values())

    @property
    def figure(self) -> PredictedValue:
        """Bytes at the largest peak, with an interval."""
        return PredictedValue.around(self.bytes, _ERROR * self.bytes, self.basis)

    @property
    def fits(self) -> bool | None:
        """Whether the rank's data fit into device memory, or None if that memory is unknown or inside the interval."""
        if self.limit is None or self.figure.low <= self.limit < self.bytes + CONTEXT_BYTES:
            return None
        return self.bytes + CONTEXT_BYTES <= self.limit


BYTE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def find_byte_unit(sizes: Iterable[float]) -> tuple[str, float]:
    """Return the best unit for the largest size, and the unit's number of bytes."""
    largest = max(sizes, default=0.0)
    return next((unit for unit in BYTE_UNITS if largest >= unit[1]), BYTE_UNITS[-1])


def format_bytes(size: float) -> str:
    """Format a size with a suitable unit, so that only 0 is shown as 0."""
    if size == 0:
        return "0"
    unit, scale = find_byte_unit([float(f"{size:.3g}")])
    return f"{size / scale:.3g} {unit}"


def predict_memory(workload: Workload, limit: float | None) -> PredictedMemory:
    """Predict the memory of the rank that needs most memory.

    Parameters
    ----------
    limit
        Memory of the device in bytes, or None if unknown.
    """
    layout = workload.layout
    stages = [_predict_stage(workload, stage) for stage in range(layout.pp)]
    worst = max(range(layout.pp), key=lambda stage: max(sum(kinds.values()) for kinds in stages[stage][0].values()))
    peaks, host = stages[worst]
    guessed = {"states", "keeps"}.intersection(workload.program.assumed)
    basis = InputBasis.ASSUMED if guessed else InputBasis.ELSEWHERE
    return PredictedMemory(worst * layout.replicas * layout.tp, peaks, host, limit, basis)


def suggest_remedy(workload: Workload, memory: PredictedMemory) -> str:
    """Suggest a change so that a run fits: the first usual setting that the run does not use yet."""
    train, layout = workload.train, workload.layout
    if train.recompute == "none" and memory.peaks[memory.peak]["activations"] > 0.3 * memory.bytes:
        return "set train.recompute: full"
    if train.zero == 0 and layout.replicas > 1:
        return "set train.zero: 1"
    if train.micro_batch > 1 and memory.peaks[memory.peak]["activations"] > 0.2 * memory.bytes:
        return f"lower train.micro_batch from {train.micro_batch}"
    if layout.tp > 1 and not train.sequence_parallel and memory.peaks[memory.peak]["activations"] > 0.2 * memory.bytes:
        return "set train.sequence_parallel: true"
    if train.zero < 3 and layout.replicas > 1 and layout.pp == 1:
        return f"set train.zero: {train.zero + 1}"
    if not train.offload and train.optimizer == "adamw":
        return "set train.offload: true, or spread the model over more ranks with layout.tp or layout.pp"
    return "spread the model over more ranks with layout.tp or layout.pp"


def _predict_stage(workload: Workload, stage: int) -> tuple[dict[str, dict[str, float]], float]:
    """Return the bytes of a stage by peak and kind, and the offloaded bytes."""
    if workload.program.states:
        programs = list_program_peaks(workload, stage)
        return {peak: {kind: kinds.get(kind, 0.0) for kind in KINDS} for peak, kinds in programs.items()}, 0.0
    model, train, layout = workload.model, workload.train, workload.layout
    node = workload.place_group("node").per_node if train.node_copy else None
    calls = StepCalls(model, train, layout, stage * layout.replicas * layout.tp, node_ranks=node)
    lengths = [bucket.length * count for bucket, count in calls.buckets]
    width, master = WIDTHS[train.precision], get_itemsize(train)
    held = count_lasting_bytes(workload, calls, node)
    parameters, largest = sum(lengths), max(bucket.length for bucket, _ in calls.buckets)
    weights = held["device parameters"]
    sums = held.get("device gradients", 0)  # At ZeRO stages 2 and 3 only the owner's sums exist.
    sums_host = held.get("host gradients", 0)
    optimizer = held.get("device optimizer", 0)
    full_gradients = parameters * width if train.zero < 2 else min(2 * largest, parameters) * width
    in_place = train.zero == 0 and width == master and not train.offload
    owned = sums - (parameters * width if train.zero < 2 else 0)
    if in_place:
        owned = 0
    gathered = max(laid.together for laid in calls.laid.values()) * width if train.zero == 3 else 0
    several = workload.micro_batches > 1
    # Differences of all pieces remain allocated until the gathers have finished. The weights are their reference.
    changes = any(rule.differences for rule in workload.scheme.rules) and train.zero in (1, 2) and layout.replicas > 1
    # The previous micro-batch may still have pending sums.
    pieces = sum(bucket.length // (layout.replicas // bucket.ep) * count for bucket, count in calls.buckets)
    differences = pieces * master if changes else 0
    arriving = pieces * master if train.zero >= 2 and several and train.overlap and layout.replicas > 1 else 0
    versions, in_run = 1, workload.micro_batches
    if train.schedule in UNFLUSHED:  # Micro-batches of later steps use earlier weights.
        versions = Stream.of(train, stages=layout.pp, micro_batches=in_run).versions(stage)
        in_run = max(in_run, layout.pp)
    actions = list(SCHEDULES[train.schedule](stage, layout.pp, in_run, layout.chunks))
    cut = layout.layers_of(model.layers)
    layers = [len(cut[number]) for number in calls.parts]
    alive = count_alive(actions, layers)
    routed = [len(model.experts.layers_of(cut[number])) if model.experts else 0 for number in calls.parts]
    activations = alive * count_activation_bytes(workload)
    activations += count_alive(actions, routed) * _count_expert_bytes(workload)
    sent = calls.activations(0)
    passed = 0.0
    if sent and layout.pp > 1:  # The stage keeps each sent message, and holds one message in each direction.
        message = sent.elements * width
        activations += count_alive(actions) * message
        passed = 2.0 * message
    again = 0.0
    if train.recompute not in ("none", "selective"):
        count = 1 if train.recompute == "full" else int(train.recompute)
        again = count * count_activation_bytes(workload, recompute="none")
        again += min(count, max(routed)) * _count_expert_bytes(workload, recompute="none")
    logits = 0.0
    if stage == layout.pp - 1:
        tokens = train.micro_batch * train.seq_len // layout.cp
        logits = tokens * model.vocab / layout.tp * (width + 3 * master)
    messages = 2.0 * largest * master if layout.replicas > 1 else 0.0
    messages += _count_split_elements(workload, largest, parameters) * master
    # A parameter server holds one pending push from each worker, and the weights that are being sent.
    served = 0.0 if train.sync == "all-reduce" else 2.0 * parameters * master
    codec, residuals = _count_codec_bytes(workload, calls, largest, parameters)
    buffers = _count_grid_buffers(workload) + _count_attention_buffers(workload) + _count_row_buffers(workload)
    stashes = (versions - 1) * parameters * width
    lasting: dict[str, float] = {"weights": weights, "stashes": stashes, "optimizer": optimizer}
    lasting |= {"residuals": residuals, "codec buffers": codec}
    peaks = {
        "before backward": {
            "gradients": owned + arriving + (full_gradients if several or train.zero < 2 else 0),
            "activations": activations,
            "transient": again + logits + gathered + passed + buffers,
        },
        "after backward": {
            "gradients": owned + full_gradients,
            "activations": 0.0,
            "transient": messages + gathered + served,
        },
        "after reduction": {
            "gradients": owned + (full_gradients if train.zero < 2 else 0),
            "activations": 0.0,
            "transient": largest * master * 2.0 + served + differences,
        },
    }
    host = sums_host + held.get("host optimizer", 0)
    return {peak: {kind: float({**lasting, **kinds}[kind]) for kind in KINDS} for peak, kinds in peaks.items()}, host


def count_lasting_bytes(workload: Workload, calls: StepCalls, node: int | None) -> dict[str, int]:
    """Count the bytes that persist between steps. Experts are counted separately, because they have fewer replicas."""
    train, layout = workload.train, workload.layout
    total: dict[str, int] = {}
    for ep in sorted({1, layout.ep}):
        lengths = [bucket.length * count for bucket, count in calls.buckets if bucket.ep == ep]
        held = zero.count_state_bytes(
            train.zero,
            lengths,
            layout.replicas // ep,
            parameter=WIDTHS[train.precision],
            master=get_itemsize(train),
            offload=train.offload,
            node_ranks=node,
        )
        total = {kind: total.get(kind, 0) + nbytes for kind, nbytes in held.items()}
    return total


def _count_expert_bytes(workload: Workload, recompute: str | int | None = None) -> float:
    """Return the number of bytes that a layer's experts keep per micro-batch, minus the bytes of an MLP."""
    model, train, tp, cp = workload.model, workload.train, workload.layout.tp, workload.layout.cp
    how = train.recompute if recompute is None else recompute
    if model.experts is None or how not in ("none", "selective"):
        return 0.0
    mlp = count_mlp_elements(model, model.middle) * train.micro_batch * (train.seq_len // cp) / tp
    return (count_kept_elements(model, train, tp, cp) - mlp) * WIDTHS[train.precision]


def _count_row_buffers(workload: Workload) -> float:
    """Return the total size in bytes of the rows that are sent to experts and of the rows that arrive for experts."""
    model, train = workload.model, workload.train
    if model.experts is None or workload.layout.ep == 1:
        return 0.0
    return 2.0 * count_rows(model.experts, train, workload.layout.cp) * model.hidden * get_itemsize(train)


def count_activation_bytes(workload: Workload, recompute: str | int | None = None) -> float:
    """Return the number of bytes that one layer keeps per micro-batch.

    The engine keeps the inputs and outputs of two norms, queries, keys and values, two copies of the attention output,
    and the input and output of the activation function: for a GPT ``s b h (8 + 26/t)`` in 16 bits, and 4/t more with
    rotary positions. A gated MLP also keeps the activated gate. Selective recomputation drops one attention output, but
    keeps the inputs of core attention. On a CPU, PyTorch's RMSNorm also keeps the normalized values, which are not
    counted here. Other recomputation keeps only the input of every n-th layer.
    """
    model, train, t = workload.model, workload.train, workload.layout.tp
    how = train.recompute if recompute is None else recompute
    wide = WIDTHS[train.precision] / 2
    spread = t if train.sequence_parallel or workload.layout.tensor != "1d" else 1
    tokens = train.seq_len // workload.layout.cp * train.micro_batch
    if how not in ("none", "selective"):
        return 2 * wide * tokens * model.hidden / spread / (1 if how == "full" else int(how))
    if workload.layout.tensor != "1d":
        return _count_grid_activation_bytes(workload, how) + _count_score_bytes(workload, how)
    # Norms hold only the rank's positions. Inputs of tensor-parallel regions are gathered.
    norms, entered = 4 / spread, 4.0
    h, qkv, rotated = model.hidden, model.qkv_width, _count_rotated(model)
    attention = qkv + rotated + 2 * h - (h if how == "selective" else 0)
    inside = 2.0 * (attention + count_mlp_elements(model, model.middle)) / t
    return tokens * (h * (norms + entered) + inside) * wide + _count_score_bytes(workload, how)


def _count_rotated(model: Model) -> int:
    """Return the number of rotated query and key values per token."""
    if model.positions != "rotary" or not model.rotary_fraction:
        return 0
    return (model.heads + model.groups) * model.head_dim


def _count_score_bytes(workload: Workload, how: str | int) -> float:
    """Return the size in bytes of the attention probabilities that ring self-attention keeps per layer."""
    model, train, layout = workload.model, workload.train, workload.layout
    if layout.cp == 1 or layout.context != "rsa" or how == "selective":
        return 0.0
    heads = context.count_values(model, train, layout) * model.heads // model.hidden
    return float(heads * train.seq_len * WIDTHS[train.precision])


def _count_attention_buffers(workload: Workload) -> float:
    """Return the buffer bytes of context-parallel attention.

    A ring needs two received blocks of keys and values, received and sent sums of their gradients, and query gradients.
    ``rsa`` also needs full rows of scores in the accumulation precision. Ulysses needs send and receive buffers for
    exchanges of three tensors and of one tensor.
    """
    model, train, layout = workload.model, workload.train, workload.layout
    if layout.cp == 1:
        return 0.0
    n = context.count_values(model, train, layout)
    keys = context.count_key_values(model, train, layout)
    elements = {
        "ring": (2 * 2 + 3 * 2) * keys + n,
        "rsa": (2 + 3) * keys + n,
        "ulysses": 2 * (n + 2 * keys + n),
    }[layout.context]
    rows = n * model.heads // model.hidden * train.seq_len if layout.context == "rsa" else 0
    return float((elements + 2 * rows) * get_itemsize(train))


def _count_grid_activation_bytes(workload: Workload, how: str | int) -> float:
    """Return the activation bytes of a layer on a tensor grid.

    Norms keep their results in the accumulation precision. Products with gathered operands keep the gathered operands.
    """
    model, train, grid = workload.model, workload.train, workload.layout.grid
    rows, width = train.seq_len // workload.layout.cp * train.micro_batch, WIDTHS[train.precision]
    stream = rows * model.hidden / grid.ranks
    h, qkv = model.hidden, model.qkv_width
    # queries, keys, values; a copy of the attention output; activation values that are not inputs of a product
    middle = count_mlp_elements(model, model.middle) - model.middle
    attention = qkv + _count_rotated(model) + (0 if how == "selective" else h)
    inside = rows / grid.ranks * (attention + middle)
    products = sum(grids.count_kept_elements(grid, layer) for layer in grids.list_block_products(rows, model))
    return 2 * stream * get_itemsize(train) + (inside + products) * width


def _count_grid_buffers(workload: Workload) -> float:
    """Return the buffer bytes of the product that needs the largest buffers on a tensor grid."""
    if workload.layout.tensor == "1d":
        return 0.0
    model, train, grid = workload.model, workload.train, workload.layout.grid
    rows = train.seq_len // workload.layout.cp * train.micro_batch
    layers = [*grids.list_block_products(rows, model), grids.make_head(rows, model)]
    return float(max(grids.count_transient_elements(grid, layer) for layer in layers) * get_itemsize(train))


def _count_split_elements(workload: Workload, largest: int, parameters: int) -> int:
    """Return the number of gradients that are copied to messages of mixed widths at the same time."""
    setting = TrafficSettings(workload.layout, workload.train, workload.model.tied)
    if not any(treatment.mixed_bits for _, treatment in list_treatments(workload.scheme, setting)):
        return 0
    if not workload.train.overlap:
        return largest
    return parameters if workload.train.zero < 2 else min(2 * largest, parameters)


def _count_codec_bytes(workload: Workload, calls: StepCalls, largest: int, parameters: int) -> tuple[float, float]:
    """Return the size in bytes of encoded-message buffers and error-feedback residuals."""
    if workload.scheme.algorithm == "native":
        return 0.0, 0.0
    setting = TrafficSettings(workload.layout, workload.train, workload.model.tied)
    most = residuals = lazy = 0.0
    tokens = workload.train.micro_batch * workload.train.seq_len // workload.layout.cp
    stream = tokens * workload.model.hidden / (workload.layout.tp if workload.layout.tensor != "1d" else 1)
    for triple, treatment in list_treatments(workload.scheme, setting):
        if treatment.keeps_errors and triple[0] == "DP":
            residuals = max(residuals, (16.0 if treatment.feedback_average else 8.0) * parameters)
        if treatment.keeps_errors and triple[0] == "PP":
            lazy = 4.0 * sum(back.elements for back in map(calls.gradients_back, calls.parts) if back)
        if treatment.sample_changes:
            sent = [
                call.elements
                for part in calls.parts
                for call in (calls.activations(part), calls.gradients_back(part))
                if call
            ]
            lazy += get_itemsize(workload.train) * treatment.sample_changes * sum(sent) / workload.train.micro_batch
        if treatment.codec == "none":
            continue
        elements = largest if triple[0] in ("DP", "ZERO") else stream
        if triple[0] == "EP" and workload.model.experts:
            rows = count_rows(workload.model.experts, workload.train, workload.layout.cp)
            elements = rows * workload.model.hidden
        most = max(most, 4.0 * elements)
    return 2 * most, residuals + lazy
