"""Computing time of model parts for one micro-batch on one rank: products, attention, and memory traffic.

Memory-bound 16-bit kernels move these bytes per element, forward and backward: LayerNorm 4 and 8, bias with GELU 4 and
6, a residual sum 6, bias with dropout and residual 7 and 5, causal softmax 3 and 4 per element of the square score
matrix, attention dropout 5 and 5. Costs of other precisions are proportional to the width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model, Train
from hpcbench.predict import constants
from hpcbench.predict.attention import time_fused_attention, time_unfused_product
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.call import WIDTHS
from hpcbench.predict.cost import Additive
from hpcbench.predict.experts import describe_experts
from hpcbench.predict.layers import interpolate_factors
from hpcbench.predict.machine import Machine
from hpcbench.predict.program import TrainingProgram


@dataclass(frozen=True)
class Seconds(Additive):
    """Time in seconds for each kind of work."""

    products: float = 0.0
    attention: float = 0.0
    memory: float = 0.0

    @property
    def total(self) -> float:
        """Sum of the times for all kinds of work."""
        return self.products + self.attention + self.memory


@dataclass(frozen=True)
class ComputeTime(Additive):
    """Computing time of a model part."""

    forward: Seconds
    backward: Seconds
    again: Seconds
    """Recomputation before the backward pass."""
    weight_gradients: float = 0.0
    """Time in seconds of backward products that can hide a tensor-parallel sum."""


NOTHING = ComputeTime(Seconds(), Seconds(), Seconds())


class ComputeCosts:
    """Computing times of a run on one machine.

    Parameters
    ----------
    machine
        Machine, which contains the device and the table of matrix products.
    model, train, layout
        Model, settings and layout of the run.
    program
        Training program.
    """

    def __init__(self, machine: Machine, model: Model, train: Train, layout: Layout, program: TrainingProgram) -> None:
        self._machine, self._device = machine, machine.device
        self._model, self._train, self._tp, self._program = model, train, layout.tp, program
        self._ep = layout.ep
        self._grid = layout.grid if layout.tensor != "1d" else None
        self._layout = layout
        self._tokens = train.micro_batch * train.seq_len // layout.cp
        spread = layout.tp if train.sequence_parallel or self._grid else 1
        self._stream = self._tokens * model.hidden // spread
        """Number of values of the residual stream that a rank holds between tensor-parallel regions."""
        self._floor = constants.KERNEL_S if machine.gpu else 0.0
        # Grid layers are not measured. The factor of a whole layer with as many weights as the rank's part is used.
        ways = layout.tp if self._grid is None else 1
        self._longer = interpolate_factors(
            machine.layers,
            positions=model.positions,
            hidden=model.hidden * (ways / layout.tp) ** 0.5,
            tokens=self._tokens,
            ways=ways,
            spread=spread > 1,
        )
        family = machine.device.family
        measured_here = machine.products.basis is InputBasis.HERE
        self._in_step = 1.0 if measured_here else constants.PRODUCT_IN_STEP[family] * machine.device.product_share
        if machine.gpu and not measured_here and "PCIe" not in machine.name:
            self._in_step *= constants.TABLE_OF_PCIE.get(family, 1.0)

    def _time_product(self, m: int, n: int, k: int, passage: str) -> float:
        rate = self._machine.products.efficiency(m, n, k, passage) * self._in_step
        return max(2.0 * m * n * k / (self._device.peak(self._train.precision) * rate), self._floor)

    def _time_layer(self, word: str, out: int, into: int) -> tuple[float, float, float]:
        """Return the times in seconds of a layer's output, input gradient and weight gradient. Sizes are global."""
        if self._grid is None:
            cut_out, cut_into = (1, self._tp) if word == "row" else (self._tp, 1)
            return self._time_overlapped(word, self._tokens, out // cut_out, into // cut_into)
        at, streamed = self._grid.products[word].at, self._grid.products[word].streamed
        pieces = self._grid.products[word].forward.pieces
        sizes = {"M": self._tokens, "K": into, "N": out}
        m, k, n = (
            size // self._grid.count(at[dim]) // (pieces if dim == streamed else 1) for dim, size in sizes.items()
        )
        there, back, weight = self._time_linear(m, n, k)
        return there * pieces, back * pieces, weight * pieces

    def _time_overlapped(self, word: str, tokens: int, out: int, into: int) -> tuple[float, float, float]:
        """Return the times in seconds of a layer's products if messages overlap with them.

        A product whose rows are received from or sent to other ranks is computed in pieces. The method applies to the
        forward products of both kinds of layers, and to the input gradient of row-parallel layers. Other products are
        not split.
        """
        there, back, weight = self._time_linear(tokens, out, into)
        if self._tp == 1 or self._program.overlaps_tensor != "all" or not self._train.sequence_parallel:
            return there, back, weight
        pieces = self._tp / min(constants.PIECES_AT_ONCE, self._tp)
        rows = max(1, round(tokens / pieces))
        there = max(there, pieces * self._time_product(rows, out, into, "fwd"))
        if word == "row":
            back = max(back, pieces * self._time_product(rows, into, out, "dgrad"))
        return there, back, weight

    def _time_linear(self, tokens: int, out: int, into: int) -> tuple[float, float, float]:
        return (
            self._time_product(tokens, out, into, "fwd"),
            self._time_product(tokens, into, out, "dgrad"),
            self._time_product(out, into, tokens, "wgrad"),
        )

    def _count_cast_bytes(self, shapes: Sequence[tuple[str, int, int]]) -> tuple[list[int], list[int]]:
        """Return the number of bytes moved to cast layer inputs and output gradients to 8 bits.

        The cast of weights, which takes place once per step, is neglected.
        """
        if not self._program.fp8:
            return [], []
        once = self._tokens * constants.FP8_CAST_BYTES
        return (
            [once * into // (self._tp if word == "row" else 1) for word, _, into in shapes],
            [once * out // (1 if word == "row" else self._tp) for word, out, _ in shapes],
        )

    def _time_memory(self, *moved: float) -> float:
        """Return the total time in seconds of memory-bound kernels, given each kernel's bytes in 16-bit precision."""
        rate = self._device.copy_bytes_per_s * constants.MEMORY_IN_STEP
        width = WIDTHS[self._train.precision] / 2
        least = constants.SMALL_KERNEL_S if self._machine.gpu else 0.0
        return sum(least + nbytes * width / rate for nbytes in moved if nbytes)

    def _time_core(self) -> tuple[Seconds, Seconds, Seconds]:
        """Return the times of core attention: forward, backward, and recomputation."""
        model, train, program = self._model, self._train, self._program
        heads = train.micro_batch * model.heads // self._tp
        s, d, cp, context = train.seq_len, model.head_dim, self._layout.cp, self._layout.context
        rsa = cp > 1 and context == "rsa"
        if program.fused_attention and not rsa:
            flops = 2.0 * heads * s * s * d / cp  # causal: half of two products of 2 s s d
            long = s if context == "ulysses" else s // cp
            once = time_fused_attention(
                self._device, kernel=program.attention, seq_len=long, head_dim=d, flops=flops, precision=train.precision
            )
            return Seconds(attention=once), Seconds(attention=2.5 * once), Seconds(attention=once)
        # Ring self-attention computes only the causal half of its full score rows.
        rows, columns, square = (s // cp, s // 2, heads * s * s // cp) if rsa else (s, s, heads * s * s)
        scores, sums = (
            time_unfused_product(
                self._machine.products, self._device, batch_heads=heads, m=rows, n=n, k=k, precision=train.precision
            )
            for n, k in ((columns, d), (d, columns))
        )
        drop = 5 * square if program.dropout and not rsa else 0
        forward = Seconds(attention=scores + sums, memory=self._time_memory(3 * square, drop))
        backward = Seconds(attention=2 * (scores + sums), memory=self._time_memory(4 * square, drop))
        return forward, backward, forward

    @cached_property
    def layer(self) -> ComputeTime:
        """Return the time of one block."""
        model, train, program, t = self._model, self._train, self._program, self._tp
        h, tokens, norms = model.hidden, self._tokens, self._stream
        entry = self._count_entry(model.middle)
        shapes = (("column", model.qkv_width, h), ("row", h, h), ("column", entry, h), ("row", h, model.middle))
        faster = constants.FP8_SPEED if program.fp8 else 1.0
        linear = [[seconds / faster for seconds in self._time_layer(*shape)] for shape in shapes]
        cast, cast_back = self._count_cast_bytes(shapes)
        there, back, again = self._time_core()
        wide = [12 * out * into // t for _, out, into in shapes]  # fp32 gradients: read, add, write
        middle = tokens * self._count_moved(model.middle) // t
        keys = model.groups * model.head_dim
        rotary = 8 * tokens * (h + keys) // t * model.rotary_fraction if model.positions == "rotary" else 0.0
        moves = 4 * tokens * h // t  # transposition of positions and heads
        if program.fused:
            residual, residual_back = (7 * norms, 11 * norms) if program.dropout else (6 * norms, 8 * norms)
            added, added_back = [residual] * 2, [residual_back] * 2
        else:
            added, added_back = [6 * norms] * 2, [6 * norms] * 2
        forward = Seconds(
            products=sum(product[0] for product in linear),
            memory=self._time_memory(4 * norms, 4 * norms, *added, middle, rotary, moves, moves, *cast),
        )
        grown = [] if program.wide_gradients else [nbytes / 2 for nbytes in wide]
        backward = Seconds(
            products=sum(product[1] + product[2] for product in linear),
            memory=self._time_memory(
                8 * norms, 8 * norms, *added_back, middle * 3 // 2, rotary, moves, moves, *cast_back
            )
            + self._time_memory(*grown) / (WIDTHS[train.precision] / 2),
        )
        recomputed = Seconds()
        if train.recompute == "selective":
            recomputed = again if not program.fused_attention else there
            if program.again is not None:
                recomputed = forward * program.again
        elif train.recompute != "none":
            recomputed = forward + again
        if self._machine.gpu:
            least = constants.HOST_KERNEL_S * 20
            forward, there = _extend(forward, there, least)
            backward, back = _extend(backward, back, 2 * least)
        weight_gradients = sum(product[2] for product in linear)
        return self._apply_factors(ComputeTime(forward + there, backward + back, recomputed, weight_gradients))

    def _count_entry(self, middle: int) -> int:
        """Return the output width of an MLP's first layer."""
        return (2 if self._model.gated else 1) * middle

    def _count_moved(self, middle: int) -> int:
        """Return the number of bytes per token that an activation function reads and writes in 16-bit precision."""
        return 2 * (self._count_entry(middle) + middle)

    def _apply_factors(self, work: ComputeTime) -> ComputeTime:
        """Multiply computing times by the measured factors of whole layers."""
        there, back = self._longer
        return ComputeTime(work.forward * there, work.backward * back, work.again * there, work.weight_gradients * back)

    @cached_property
    def experts(self) -> ComputeTime:
        """Return the additional time of an expert layer, compared with a block that has an MLP.

        Each expert processes the rows that it receives. The products of the MLP are subtracted.
        """
        model, train, t = self._model, self._train, self._tp
        if model.experts is None:
            return NOTHING
        h, held = model.hidden, model.experts.count // self._ep
        received = round(train.micro_batch * describe_experts(model, train, self._layout).executed) // self._layout.cp
        sizes = (
            (held, max(received // held, 1), model.expert_middle),
            (int(model.experts.shared), self._tokens, model.shared_middle),
            (-1, self._tokens, model.middle),
        )
        router = self._time_linear(self._tokens, model.experts.count, h)
        there, back = router[0], router[1] + router[2]
        for times, rows, width in sizes:
            for row in (
                self._time_linear(rows, self._count_entry(width) // t, h),
                self._time_linear(rows, h, width // t),
            ):
                there, back = there + times * row[0], back + times * (row[1] + row[2])
        middle = received * self._count_moved(model.expert_middle) - self._tokens * self._count_moved(model.middle)
        middle = (middle + model.experts.shared * self._tokens * self._count_moved(model.shared_middle)) // t
        moves = 4 * received * h  # Rows are reordered before sending and after arrival, in both directions.
        forward = Seconds(products=there, memory=self._time_memory(max(middle, 0), *[moves] * 4))
        backward = Seconds(products=back, memory=self._time_memory(max(middle * 3 // 2, 0), *[moves] * 4))
        again = forward if train.recompute not in ("none", "selective") else Seconds()
        return self._apply_factors(ComputeTime(forward, backward, again))

    @cached_property
    def embedding(self) -> ComputeTime:
        """Return the forward and backward time of the embedding lookup."""
        once = Seconds(memory=self._time_memory(4 * self._stream))
        return ComputeTime(once, once * 2, Seconds())

    @cached_property
    def head(self) -> ComputeTime:
        """Return the time of the last norm, the logits and the loss."""
        vocab, h = self._model.vocab // self._tp, self._model.hidden
        forward, data, weight = self._time_layer("head", self._model.vocab, h)
        loss = constants.LOSS_BYTES * self._tokens * vocab / (self._device.copy_bytes_per_s)
        norm = self._stream
        work = ComputeTime(
            Seconds(products=forward, memory=loss / 2 + self._time_memory(4 * norm)),
            Seconds(products=data + weight, memory=loss / 2 + self._time_memory(8 * norm)),
            Seconds(),
        )
        return self._apply_factors(work)

    def time_optimizer(self, owned: float, held: float) -> float:
        """Return the time of an update in seconds.

        If the update time was measured, three costs are added: reading the owned gradients for the norm, dividing the
        held gradients by the number of replicas, and writing the held weights.

        Parameters
        ----------
        owned
            Number of parameters that the rank updates.
        held
            Number of parameters that the rank holds.
        """
        factor, rate = self._machine.work_factor, self._device.copy_bytes_per_s
        if self._machine.update_s is None:
            return constants.OPTIMIZER_BYTES * owned / rate * factor
        return factor * (owned * (self._machine.update_s + 12 / rate) + held * 16 / rate)

    def time_factors(self, elements: int) -> float:
        """Return the time in seconds of the three products of a low-rank approximation, which memory traffic limits.

        Gradients and errors are read for their sum, for each product, and for the new error.
        """
        return constants.FACTOR_BYTES * elements / self._device.copy_bytes_per_s * self._machine.work_factor

    def time_splitting(self, elements: int) -> float:
        """Return the time in seconds to split a gradient by width, which memory traffic limits."""
        return constants.SPLIT_BYTES * elements / self._device.copy_bytes_per_s * self._machine.work_factor

    def time_host_update(self, owned: float, micro_batches: int) -> float:
        """Return the time in seconds of an offloaded update, including gradient and weight transfers."""
        train = self._train
        if not train.offload:
            return 0.0
        times = micro_batches if train.zero >= 2 else 1
        link = constants.HOST_LINK_BYTES_PER_S.get(self._device.family, self._device.copy_bytes_per_s)
        return owned * 4 * (times + 1) / link + owned * constants.HOST_UPDATE_BYTES / constants.HOST_BYTES_PER_S


def _extend(first: Seconds, second: Seconds, least: float) -> tuple[Seconds, Seconds]:
    """Extend the memory time of `first` so that the total is at least `least`, the host's kernel launch time."""
    missing = max(least - first.total - second.total, 0.0)
    return first + Seconds(memory=missing), second
