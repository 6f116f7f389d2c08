"""Traffic and memory of expert layers, computed as integers from the settings alone. Pure."""

from collections.abc import Iterator

from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model, Train
from hpcbench.predict.call import WIDTHS, PredictedCall, RepeatedCall
from hpcbench.predict.flops import DENSE, ExpertShape


def count_rows(experts: Experts, train: Train, cp: int) -> int:
    """Return the number of rows that a rank sends to a layer's experts, and also receives, in a micro-batch.

    The result is the number of expert slots, including empty slots. Without token dropping, the result is the number of
    expert choices of the rank's tokens. In this case, the rank receives the same number only if the load is balanced.
    The positions are divided among `cp` ranks.
    """
    if experts.drop == "none":
        return train.micro_batch * (train.seq_len // cp) * experts.top
    return experts.count * train.micro_batch * experts.places(train.seq_len)


def list_expert_calls(model: Model, train: Train, layout: Layout, phase: str, layers: int) -> Iterator[RepeatedCall]:
    """List the calls of `layers` expert layers in one pass of a micro-batch.

    The calls are row exchanges with the experts, and tensor-parallel sums in each expert.

    Parameters
    ----------
    model, train, layout
        The run's model, settings and layout.
    phase
        ``FORWARD`` or ``BACKWARD``.
    layers
        Number of layers with experts.
    """
    experts, kind = model.experts, "ACT" if phase == "FORWARD" else "GRAD"
    if experts is None or not layers:
        return
    if phase == "FORWARD" and layout.cp > 1:
        counts = train.micro_batch * experts.count
        yield PredictedCall(("EXACT", phase, kind), "all-reduce", counts, 8, "cp"), layers
    if experts.drop == "none" and phase == "FORWARD" and layout.ep > 1:
        yield PredictedCall(("EXACT", phase, kind), "all-to-all", experts.count, 8, "ep"), layers
    width = WIDTHS[train.message_formats["activations"]]
    elements = count_rows(experts, train, layout.cp) * model.hidden
    if layout.ep > 1:
        yield PredictedCall(("EP", phase, kind), "all-to-all", elements, width, "ep"), 2 * layers
    if layout.tp > 1:
        yield PredictedCall(("TP", phase, kind), "all-reduce", elements, width, "tp"), layers


def count_kept_elements(model: Model, train: Train, tp: int, cp: int) -> float:
    """Return the number of elements that a layer's experts keep per micro-batch, without the layer's input.

    The kept elements are the sent rows, the received rows sorted by expert, the input and output of the activation
    function, and the results before and after they are sent back. A shared expert keeps the input and output of its
    activation function. All elements are kept until the backward pass.
    """
    if model.experts is None:
        return 0.0
    tokens, rows = train.micro_batch * train.seq_len // cp, count_rows(model.experts, train, cp)
    inside = rows * count_mlp_elements(model, model.expert_middle)
    if model.experts.shared:
        inside += tokens * count_mlp_elements(model, model.shared_middle)
    return 5.0 * rows * model.hidden + inside / tp


def count_mlp_elements(model: Model, middle: int) -> int:
    """Return the number of elements that an MLP keeps per token: input and output of the activation function.

    A gated MLP also keeps the activated gate.
    """
    return (4 if model.gated else 2) * middle


def describe_experts(model: Model, train: Train, layout: Layout) -> ExpertShape:
    """Return the sizes of the model's experts, for the formulas that count operations and parameters."""
    if model.experts is None:
        return DENSE
    return shape_of_experts(model.experts, layers=model.layers, seq_len=train.seq_len, ep=layout.ep, tp=layout.tp)


def shape_of_experts(experts: Experts, *, layers: int, seq_len: int, ep: int, tp: int) -> ExpertShape:
    """Return the expert sizes of a model with `layers` layers, for the formulas that count operations and parameters.

    If experts are distributed over or sharded across ranks, all expert slots are sent, including empty slots.
    Otherwise, only kept rows are computed.
    """
    return ExpertShape(
        layers=len(experts.layers_of(range(layers))),
        held=experts.count + experts.shared,
        shared=int(experts.shared),
        choices=experts.count,
        chosen=experts.top * seq_len,
        places=None if experts.drop == "none" else experts.count * experts.places(seq_len),
        padded=ep > 1 or tp > 1,
        routers=tp,
        width=experts.width,
        shared_width=experts.shared_width,
    )
