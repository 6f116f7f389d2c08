"""Calls of a step whose lengths depend on the text: rows of experts that drop no tokens, and rows of the embedding."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from hpcbench.contract.layout import Layout
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model, Train
from hpcbench.parallel.sparse.switch import COUNT_BYTES, INDEX_BYTES
from hpcbench.predict.call import WIDTHS, PredictedCall, RepeatedCall
from hpcbench.predict.calls import StepCalls


class Routed(NamedTuple):
    """Token rows that one rank processed in a step, over all expert layers and micro-batches.

    A row is counted once for a forward pass and its backward pass. Recomputation is not counted.
    """

    sent: int
    """Rows sent to experts on other ranks."""
    received: int
    """Rows received from other ranks."""
    computed: int
    """Rows processed by this rank's experts, including its own tokens."""


class SentRows(NamedTuple):
    """Row counts of one rank in a step, over all reductions that were sent as rows."""

    left: int
    """Rows sent by the rank, counted once per receiver."""
    reductions: int
    """Number of reductions that were sent as rows. Other reductions sent the whole gradient."""
    gathered: bool
    """Whether every replica received all rows, instead of only the rows in its own piece."""


class CountedCalls(StepCalls):
    """Calls of one rank in a step, with the rows that were counted in a run."""

    def __init__(
        self,
        model: Model,
        train: Train,
        layout: Layout,
        rank: int,
        *,
        routed: Routed | None = None,
        rows: SentRows | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, train, layout, rank, **options)
        self._routed = routed if model.experts and model.experts.drop == "none" else None
        self._rows = rows

    def _to_experts(self, phase: str, number: int) -> list[RepeatedCall]:
        calls = super()._to_experts(phase, number)
        return calls if self._routed is None else [each for each in calls if each[0].channel[0] == "EXACT"]

    def list_all(self) -> Iterator[RepeatedCall]:
        """List every call of the step.

        Reductions of whole gradients that were not sent have a negative number of repetitions.
        """
        yield from super().list_all()
        if self._routed:
            yield from self._list_routed(self._routed)
        for bucket, count in self.buckets if self._rows and self._layout.replicas > 1 else ():
            if bucket.width:
                assert count == 1
                yield from self._list_rows(self._rows, self.reductions(bucket)[0], bucket.width)

    def _list_routed(self, routed: Routed) -> Iterator[RepeatedCall]:
        """List the exchanges of rows. Sent rows return as results, and received rows are sent back."""
        width, hidden = WIDTHS[self._train.message_formats["activations"]], self._model.hidden
        for phase, kind, times in (("FORWARD", "ACT", 1 + self._again), ("BACKWARD", "GRAD", 1)):
            if self._layout.ep > 1:
                elements = (routed.sent + routed.received) * hidden
                yield PredictedCall(("EP", phase, kind), "send", elements, width, "ep"), times
            if self._layout.tp > 1:
                yield PredictedCall(("TP", phase, kind), "all-reduce", routed.computed * hidden, width, "tp"), times

    def _list_rows(self, rows: SentRows, reduction: PredictedCall, width: int) -> Iterator[RepeatedCall]:
        """List the messages that contain rows. The numbers of rows are exchanged for every reduction."""
        exact, replicas, group = ("EXACT", "BACKWARD", "GRAD"), self._layout.replicas, reduction.group
        times = self.micro_batches if self._train.zero >= 2 else 1
        counts = replicas if rows.gathered else replicas**2
        yield PredictedCall(exact, "all-gather", counts, COUNT_BYTES, group), times
        yield PredictedCall(exact, "send", rows.left, INDEX_BYTES, group), 1
        yield PredictedCall(reduction.channel, "send", rows.left * width, reduction.width, group), 1
        yield reduction, -rows.reductions


def count_counted_bytes(
    model: Model, train: Train, layout: Layout, rank: int, *, routed: Routed | None = None, rows: SentRows | None = None
) -> dict[Traffic, int]:
    """Count the bytes that one rank sends in a step, like `count_step_bytes` but based on counted rows."""
    calls = CountedCalls(model, train, layout, rank, routed=routed, rows=rows)
    sent = Counter[Traffic]()
    for call, times in calls.list_all():
        sent[call.channel] += times * call.message_bytes(*calls.locate(call))
    return dict(+sent)
