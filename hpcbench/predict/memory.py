"""MemoryUse of a rank at the three peaks of a step, by kind, and whether it fits. Pure; needs no NumPy.

Before the backward pass all activations are alive that the schedule keeps; after it all gradients are; after the
reduction the owner's sums are left, and the optimizer works.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hpcbench.contract.rules import resolve_treatments
from hpcbench.contract.traffic import TrafficSettings
from hpcbench.contract.training import UNFLUSHED
from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.parallel.stream import Stream
from hpcbench.predict import context, zero
from hpcbench.predict import grid as grids
from hpcbench.predict.activations import count_alive, count_layer_bytes
from hpcbench.predict.basis import Estimate, InputBasis
from hpcbench.predict.buckets import get_itemsize
from hpcbench.predict.call import WIDTHS
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.experts import count_kept_elements, count_rows
from hpcbench.predict.workload import Workload

KINDS = ("weights", "stashes", "gradients", "optimizer", "activations", "transient", "codec buffers", "residuals")
PEAKS = ("before backward", "after backward", "after reduction")
CONTEXT_BYTES = 1.2e9
"""What CUDA, the libraries and fragments take of a GPU: assumed."""
_ERROR = 0.10


@dataclass(frozen=True)
class MemoryUse:
    """MemoryUse of the worst rank."""

    rank: int
    """The first of the stage that needs the most."""
    peaks: dict[str, dict[str, float]]
    """Bytes by peak and kind."""
    host_bytes: float
    """With its host: what is offloaded."""
    limit: float | None
    """MemoryUse of a device; None if nobody said."""

    @property
    def peak(self) -> str:
        """Which of the three is the largest."""
        return max(self.peaks, key=lambda name: sum(self.peaks[name].values()))

    @property
    def bytes(self) -> float:
        """At the largest peak."""
        return sum(self.peaks[self.peak].values())

    @property
    def figure(self) -> Estimate:
        """The same with its interval."""
        return Estimate.around(self.bytes, _ERROR * self.bytes, InputBasis.ELSEWHERE)

    @property
    def fits(self) -> bool | None:
        """None where the device's memory is not known."""
        return None if self.limit is None else self.bytes + CONTEXT_BYTES <= self.limit


BYTE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def find_byte_unit(sizes: Iterable[float]) -> tuple[str, float]:
    """Return the unit that fits the largest of some sizes in bytes, and its bytes."""
    largest = max(sizes, default=0.0)
    return next((unit for unit in BYTE_UNITS if largest >= unit[1]), BYTE_UNITS[-1])


def format_bytes(size: float) -> str:
    """Return a size with the unit that fits it, so that no size but 0 is shown as 0."""
    if size == 0:
        return "0"
    unit, scale = find_byte_unit([float(f"{size:.3g}")])
    return f"{size / scale:.3g} {unit}"


def predict_memory(workload: Workload, limit: float | None) -> MemoryUse:
    """MemoryUse of the rank that needs the most.

    Parameters
    ----------
    limit
        Bytes of its device.
    """
    layout = workload.layout
    stages = [_stage(workload, stage) for stage in range(layout.pp)]
    worst = max(range(layout.pp), key=lambda stage: max(sum(kinds.values()) for kinds in stages[stage][0].values()))
    peaks, host = stages[worst]
    return MemoryUse(worst * layout.replicas * layout.tp, peaks, host, limit)


def suggest_remedy(workload: Workload, found: MemoryUse) -> str:
    """What to change so that it fits: the first of the usual means that this run does not use yet."""
    train, layout = workload.train, workload.layout
    if train.recompute == "none" and found.peaks[found.peak]["activations"] > 0.3 * found.bytes:
        return "set train.recompute: full"
    if train.zero == 0 and layout.replicas > 1:
        return "set train.zero: 1"
    if train.micro_batch > 1 and found.peaks[found.peak]["activations"] > 0.2 * found.bytes:
        return f"lower train.micro_batch from {train.micro_batch}"
    if layout.tp > 1 and not train.sequence_parallel and found.peaks[found.peak]["activations"] > 0.2 * found.bytes:
        return "set train.sequence_parallel: true"
    if train.zero < 3 and layout.replicas > 1 and layout.pp == 1:
        return f"set train.zero: {train.zero + 1}"
    if not train.offload and train.optimizer == "adamw":
        return "set train.offload: true, or spread the model over more ranks by layout.tp or layout.pp"
    return "spread the model over more ranks by layout.tp or layout.pp"


def _stage(workload: Workload, stage: int) -> tuple[dict[str, dict[str, float]], float]:
    model, train, layout = workload.model, workload.train, workload.layout
    node = workload.place_group("node").per_node if train.node_copy else None
    calls = StepCalls(model, train, layout, stage * layout.replicas * layout.tp, node_ranks=node)
    lengths = [bucket.length * count for bucket, count in calls.buckets]
    width, master = WIDTHS[train.precision], get_itemsize(train)
    held = count_lasting_bytes(workload, calls, node)
    whole, largest = sum(lengths), max(bucket.length for bucket, _ in calls.buckets)
    weights = held["device parameters"]
    sums = held.get("device gradients", 0)  # stage 2 and 3 on the device: the owner's sums and nothing whole
    sums_host = held.get("host gradients", 0)
    optimizer = held.get("device optimizer", 0)
    whole_gradients = whole * width if train.zero < 2 else min(2 * largest, whole) * width
    in_place = train.zero == 0 and width == master and not train.offload
    owned = sums - (whole * width if train.zero < 2 else 0)
    if in_place:
        owned = 0
    guests = max(laid.together for laid in calls.laid.values()) * width if train.zero == 3 else 0
    several = workload.micro_batches > 1
    # sums of the micro-batch before that have not been added yet
    pieces = sum(bucket.length // (layout.replicas // bucket.ep) * count for bucket, count in calls.buckets)
    arriving = pieces * master if train.zero >= 2 and several and train.overlap and layout.replicas > 1 else 0
    versions, in_run = 1, workload.micro_batches
    if train.schedule in UNFLUSHED:  # micro-batches of later steps have entered, and need weights of earlier ones
        versions = Stream.of(train, stages=layout.pp, micro_batches=in_run).versions(stage)
        in_run = max(in_run, layout.pp)
    actions = list(SCHEDULES[train.schedule](stage, layout.pp, in_run, layout.chunks))
    cut = layout.layers_of(model.layers)
    layers = [len(cut[number]) for number in calls.parts]
    alive = count_alive(actions, layers)
    routed = [len(model.experts.layers_of(cut[number])) if model.experts else 0 for number in calls.parts]
    kept = alive * count_activation_bytes(workload) + count_alive(actions, routed) * _expert_bytes(workload)
    sent = calls.activations(0)
    passed = 0.0
    if sent and layout.pp > 1:  # what each micro-batch under way sent on, and a message in each direction
        message = sent.elements * width
        kept += count_alive(actions) * message
        passed = 2.0 * message
    again = 0.0
    if train.recompute not in ("none", "selective"):
        count = 1 if train.recompute == "full" else int(train.recompute)
        again = count * count_activation_bytes(workload, recompute="none")
        again += min(count, max(routed)) * _expert_bytes(workload, recompute="none")
    logits = 0.0
    if stage == layout.pp - 1:
        tokens = train.micro_batch * train.seq_len // layout.cp
        logits = tokens * model.vocab / layout.tp * (width + 3 * master)
    messages = 2.0 * largest * master if layout.replicas > 1 else 0.0
    # pushes that wait for an update on a shard, one from each worker; and weights on their way
    served = 0.0 if train.sync == "all-reduce" else 2.0 * whole * master
    codec, residuals = _codec_bytes(workload, calls, largest, whole)
    stashes = (versions - 1) * whole * width
    lasting: dict[str, float] = {"weights": weights, "stashes": stashes, "optimizer": optimizer}
    lasting |= {"residuals": residuals, "codec buffers": codec}
    peaks = {
        "before backward": {
            "gradients": owned + arriving + (whole_gradients if several or train.zero < 2 else 0),
            "activations": kept,
            "transient": again
            + logits
            + guests
            + passed
            + _grid_transient(workload)
            + _blocks(workload)
            + _rows_transient(workload),
        },
        "after backward": {
            "gradients": owned + whole_gradients,
            "activations": 0.0,
            "transient": messages + guests + served,
        },
        "after reduction": {
            "gradients": owned + (whole_gradients if train.zero < 2 else 0),
            "activations": 0.0,
            "transient": largest * master * 2.0 + served,
        },
    }
    host = sums_host + held.get("host optimizer", 0)
    return {peak: {kind: float({**lasting, **kinds}[kind]) for kind in KINDS} for peak, kinds in peaks.items()}, host


def count_lasting_bytes(workload: Workload, calls: StepCalls, node: int | None) -> dict[str, int]:
    """What lasts from step to step: of experts, and of all else, which has more replicas."""
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


def _expert_bytes(workload: Workload, recompute: str | int | None = None) -> float:
    """Bytes that a layer's experts keep of a micro-batch beyond what an MLP keeps."""
    model, train, tp, cp = workload.model, workload.train, workload.layout.tp, workload.layout.cp
    how = train.recompute if recompute is None else recompute
    if model.experts is None or how not in ("none", "selective"):
        return 0.0
    mlp = 8.0 * train.micro_batch * (train.seq_len // cp) * model.hidden / tp
    return (count_kept_elements(model, train, tp, cp) - mlp) * WIDTHS[train.precision]


def _beside(workload: Workload) -> float:
    """Buffers that live as long as a layer computes: of a tensor grid, of shared positions, of rows for experts."""
    return _grid_transient(workload) + _blocks(workload) + _rows_transient(workload)


def _rows_transient(workload: Workload) -> float:
    """Buffers of the rows that leave for experts, and of those that come."""
    model, train = workload.model, workload.train
    if model.experts is None or workload.layout.ep == 1:
        return 0.0
    return 2.0 * count_rows(model.experts, train, workload.layout.cp) * model.hidden * get_itemsize(train)


def count_activation_bytes(workload: Workload, recompute: str | int | None = None) -> float:
    """Bytes that one layer keeps of one micro-batch, by what this program saves.

    Programs with dropout and scores in memory follow arXiv 2205.05198, table 2. The engine has neither: it keeps the
    inputs and outputs of two norms, queries, keys and values, the core's result twice, and both sides of the
    activation: ``s b h (8 + 26/t)`` in 16 bits, and 4/t more for each rotated half.
    """
    model, train, t = workload.model, workload.train, workload.layout.tp
    how = train.recompute if recompute is None else recompute
    wide = WIDTHS[train.precision] / 2
    if workload.program.dropout or how not in ("none", "selective"):
        published = count_layer_bytes(
            seq_len=train.seq_len // workload.layout.cp,
            micro_batch=train.micro_batch,
            hidden=model.hidden,
            heads=model.heads,
            tp=t,
            sequence_parallel=train.sequence_parallel or workload.layout.tensor != "1d",
            recompute=how,
        )
        return published * wide
    if workload.layout.tensor != "1d":
        return _grid_activation_bytes(workload, how) + _rows(workload, how)
    spread = t if train.sequence_parallel else 1
    # norms lie with the positions of the rank, what enters the regions is gathered
    norms, entered = 4 / spread, 4.0
    rotated = 4.0 if model.positions == "rotary" and model.rotary_fraction else 0.0
    inside = (26.0 + rotated) / t - (8.0 / t if how == "selective" else 0.0)
    tokens = train.seq_len // workload.layout.cp * train.micro_batch
    return tokens * model.hidden * (norms + entered + inside) * wide + _rows(workload, how)


def _rows(workload: Workload, how: str | int) -> float:
    """Bytes of the rows of probabilities that ring self-attention keeps of a layer."""
    model, train, layout = workload.model, workload.train, workload.layout
    if layout.cp == 1 or layout.context != "rsa" or how == "selective":
        return 0.0
    heads = context.count_values(model, train, layout) * model.heads // model.hidden
    return float(heads * train.seq_len * WIDTHS[train.precision])


def _blocks(workload: Workload) -> float:
    """Bytes of what comes and goes while attention works over ranks.

    In a ring these are two blocks of keys and values that come, sums of their gradients that come and go, and gradients
    of queries; for whole rows of scores also the rows, in the precision of sums; for Ulysses, exchanges of three and of
    one tensor that go and come.
    """
    model, train, layout = workload.model, workload.train, workload.layout
    if layout.cp == 1:
        return 0.0
    n = context.count_values(model, train, layout)
    tensors = {"ring": 2 * 2 + 3 * 2 + 1, "rsa": 2 + 3 + 1, "ulysses": 2 * (3 + 1)}[layout.context]
    rows = n * model.heads // model.hidden * train.seq_len if layout.context == "rsa" else 0
    return float((tensors * n + 2 * rows) * get_itemsize(train))


def _grid_activation_bytes(workload: Workload, how: str | int) -> float:
    """Bytes of activations on a tensor grid.

    Norms keep what they normed in the precision of sums, and products whose operands are gathered keep these as they
    were multiplied.
    """
    model, train, grid = workload.model, workload.train, workload.layout.grid
    rows, width = train.seq_len // workload.layout.cp * train.micro_batch, WIDTHS[train.precision]
    stream = rows * model.hidden / grid.ranks
    rotated = 2.0 if model.positions == "rotary" and model.rotary_fraction else 0.0
    # queries, keys, values, the core's result once more, and what enters the activation
    inside = stream * (3 + 1 + 4 + rotated - (4.0 if how == "selective" else 0.0))
    products = sum(grids.count_kept_elements(grid, layer) for layer in grids.list_block_products(rows, model.hidden))
    return 2 * stream * get_itemsize(train) + (inside + products) * width


def _grid_transient(workload: Workload) -> float:
    """Buffers of a product on a tensor grid, of the one that needs the most."""
    if workload.layout.tensor == "1d":
        return 0.0
    model, train, grid = workload.model, workload.train, workload.layout.grid
    rows = train.seq_len // workload.layout.cp * train.micro_batch
    layers = [*grids.list_block_products(rows, model.hidden), grids.make_head(rows, model)]
    return float(max(grids.count_transient_elements(grid, layer) for layer in layers) * get_itemsize(train))


def _spread(workload: Workload) -> int:
    """Ranks that share the residual stream."""
    return workload.layout.tp if workload.layout.tensor != "1d" else 1


def _codec_bytes(workload: Workload, calls: StepCalls, largest: int, whole: int) -> tuple[float, float]:
    """Buffers of encoded messages, and residuals of error feedback."""
    if workload.scheme.algorithm == "native":
        return 0.0, 0.0
    setting = TrafficSettings(workload.layout, workload.train, workload.model.tied)
    most = residuals = 0.0
    tokens = workload.train.micro_batch * workload.train.seq_len // workload.layout.cp
    stream = tokens * workload.model.hidden / _spread(workload)
    for triple, treatment in resolve_treatments(workload.scheme, setting).items():
        if treatment.feedback:
            residuals = 8.0 * whole
        if treatment.codec == "none":
            continue
        elements = largest if triple[0] in ("DP", "ZERO") else stream
        if triple[0] == "EP" and workload.model.experts:
            came = count_rows(workload.model.experts, workload.train, workload.layout.cp)
            elements = came * workload.model.hidden
        most = max(most, 4.0 * elements)
    return 2 * most, residuals
