"""The results of ``hpcbench predict``, as a document and as data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.plot_style import need_matplotlib
from hpcbench.predict import plots as predicted_plots
from hpcbench.predict.basis import Estimate
from hpcbench.predict.break_even import EQUAL, BreakEven
from hpcbench.predict.command import make_document, predict_study
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import KINDS, PEAKS, format_bytes, suggest_remedy
from hpcbench.predict.partition.plans import describe_plans
from hpcbench.predict.prediction import Prediction
from hpcbench.predict.step import PARTS, ChannelBytes
from hpcbench.present.document import Column, Document, Entry, Field, Item, Sentences, Table, make_chapter, tabulate
from hpcbench.present.notation import figure_column, percent, text_column, whole
from hpcbench.present.results import Results, resolve_format


def predict_and_show(
    study: Path,
    *,
    site: str | None,
    measured: Path | None,
    ranks: Sequence[int],
    sets: Sequence[str],
    format: str | None,
    output: Path | None,
    plots: Path | None,
    only: str | None = None,
    partition: bool = False,
) -> int:
    """Predict and print; gives the exit status: 1 where a run does not fit.

    Raises
    ------
    UserError
        Study, site or options are wrong.
    """
    format = resolve_format(format, output)
    if plots is not None or format == "html":
        need_matplotlib("--plots" if plots is not None else "a page")
    predicted = Predicted(
        *predict_study(study, site=site, measured=measured, ranks=ranks, sets=sets, only=only, partition=partition)
    )
    predicted.save((), plots)
    predicted.show(format, output)
    return int(any(one.memory.fits is False for one in predicted.found))


@dataclass(frozen=True)
class Predicted(Results):
    """Predictions, with what they rest on."""

    found: Sequence[Prediction]
    about: dict[str, Any]
    machine: Machine

    def document(self, *, figures: bool = False) -> Document:
        """Return the tables, and below them what does not fit and what the figures rest on."""
        found, machine = self.found, self.machine
        title = f"{self.about['study']} on {self.about['site']}, predicted"
        misfits = (
            f"{_name(one)}: does not fit: {suggest_remedy(one.workload, one.memory)}."
            for one in found
            if one.memory.fits is False
        )
        blocks = (
            _time(found, machine),
            _split(found),
            _memory(found),
            _traffic(found),
            *(predicted_plots.draw_figures(found, self.about, machine) if figures else ()),
            Sentences(tuple(misfits), "bad"),
            Sentences(tuple(list_notes(self.about, machine)), "warning"),
        )
        return Document(title, (make_chapter(title, "", blocks),))

    def content(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return make_document(self.found, self.about, self.machine)

    def rows(self) -> list[dict[str, Any]]:
        """Return the predictions."""
        predictions: list[dict[str, Any]] = self.content()["predictions"]
        return predictions


def list_notes(about: dict[str, Any], machine: Machine) -> list[str]:
    """What the numbers rest on, and what the reader must know, one sentence each."""
    products, fabric = about["products"], machine.fabric
    lines = [
        f"Products: {products['basis']} ({products['source']}). Links: "
        f"{fabric.describe(between=False)} ({fabric.within_basis.value}), "
        f"{fabric.describe(between=True)} ({fabric.between_basis.value}).",
        "Intervals come from the errors of these inputs; they are no confidence intervals of repeated runs.",
    ]
    lines += about["learned"]
    if about["measured"]:
        lines.append(f"Measured here: {', '.join(about['measured'])}.")
    elif not about["learned"]:
        lines.append(
            "Nothing was measured here: `hpcbench bench gemm` and `hpcbench bench network` narrow the intervals."
        )
    return [*lines, *describe_plans(about["plans"])]


def _name(one: Prediction) -> str:
    return " ".join(part for part in (one.scheme, f"({one.cell})" if one.cell else "") if part)


def _names(of: Callable[[Item], Prediction]) -> list[Field[Item]]:
    return [text_column("scheme", lambda item: of(item).scheme), text_column("cell", lambda item: of(item).cell)]


def _first(item: tuple[Any, ...]) -> Prediction:
    prediction: Prediction = item[0]
    return prediction


def _interval(figure: Estimate, digits: int = 3) -> Entry:
    words = f"{figure.value:.{digits}g} ({figure.low:.{digits}g} to {figure.high:.{digits}g})"
    return Entry(words, figure.value)


def _time(found: Sequence[Prediction], machine: Machine) -> Table | None:
    def mfu(one: Prediction) -> float:
        return one.tflops * 1e12 / machine.device.peak(one.workload.train.precision)

    fields: list[Field[Prediction]] = [
        *_names(lambda one: one),
        figure_column("ranks", lambda one: one.workload.layout.ranks, whole),
        (Column("step_s", "step s"), lambda one: _interval(one.time.seconds)),
        figure_column("samples/s", lambda one: one.samples_per_s.value, "{:.4g}".format),
        figure_column("TFLOPS", lambda one: one.tflops, "{:.3g}".format, help="Model FLOPS of a rank."),
        figure_column("MFU", mfu, percent, help="Model FLOPS over the device's peak."),
        (Column("gain", "gain", help="Speed over the baseline's, less 1."), lambda one: _gain(one.against)),
        (
            Column("break_even_gbit_per_s", "break-even Gbit/s", help="Bandwidth of a node below which it pays."),
            lambda one: _break_even(one.against),
        ),
        text_column("rests on", lambda one: one.time.seconds.basis.value),
    ]
    answers = [f"{_name(one)}: {one.against.words}." for one in found if one.against]
    return tabulate("time", "Predicted time of a step", found, fields, notes=answers)


def _gain(against: BreakEven | None) -> Entry:
    if against is None:
        return Entry()
    return Entry("unknown", "unknown") if against.gain is None else Entry(f"{100 * against.gain:+.1f} %", against.gain)


def _break_even(against: BreakEven | None) -> Entry:
    words = describe_break_even(against)
    if against is None or against.bytes_per_s is None:
        return Entry(words, None if against is None else words)
    return Entry(words, against.bytes_per_s * 8e-9)


def describe_break_even(against: BreakEven | None) -> str:
    """Return the bandwidth of a break-even in Gbit/s, or what holds at every bandwidth."""
    if against is None:
        return "-"
    if against.bytes_per_s is None:
        return "unknown"
    if 0 < against.bytes_per_s < math.inf:
        return f"{against.bytes_per_s * 8e-9:.3g}"
    if against.gain is None or abs(against.gain) < EQUAL:
        return "none: as fast as the baseline"
    if against.bytes_per_s == math.inf:
        return "none: faster at any bandwidth"
    # Without fewer bytes between nodes, a gain comes from less work and is the same on slow networks, or smaller.
    return "none: saves no bytes between nodes" if against.gain > 0 else "none: slower at any bandwidth"


def _split(found: Sequence[Prediction]) -> Table | None:
    def share(part: str) -> Callable[[Prediction], float | None]:
        return lambda one: one.time.parts[part] / one.time.seconds.value or None

    fields = [*_names(lambda one: one), *(figure_column(part, share(part), percent) for part in PARTS)]
    return tabulate("split", "Where it goes, on the stage that works longest", found, fields)


def _memory(found: Sequence[Prediction]) -> Table | None:
    def size(kind: str) -> Callable[[tuple[Prediction, str]], float]:
        return lambda item: item[0].memory.peaks[item[1]][kind]

    def total(item: tuple[Prediction, str]) -> float:
        return sum(item[0].memory.peaks[item[1]].values())

    def fits(item: tuple[Prediction, str]) -> str:
        memory, peak = item[0].memory, item[1]
        return {True: "yes", False: "NO", None: "?"}[memory.fits] if peak == memory.peak else ""

    fields: list[Field[tuple[Prediction, str]]] = [
        *_names(_first),
        text_column("peak", lambda item: item[1]),
        *(figure_column(kind, size(kind), format_bytes) for kind in KINDS),
        figure_column("all", total, format_bytes),
        text_column("fits", fits),
    ]
    peaks = [(one, peak) for one in found for peak in PEAKS]
    return tabulate("memory", "Memory of the rank that needs the most", peaks, fields)


def _traffic(found: Sequence[Prediction]) -> Table | None:
    fields: list[Field[tuple[Prediction, str, ChannelBytes]]] = [
        *_names(_first),
        text_column("channel", lambda item: item[1]),
        figure_column("message", lambda item: item[2].message_bytes, format_bytes),
        figure_column("wire", lambda item: item[2].wire_bytes, format_bytes),
        figure_column("between nodes", lambda item: item[2].network_bytes, format_bytes),
    ]
    channels = [(one, " ".join(key), sent) for one in found for key, sent in one.time.channels.items()]
    title = "What a rank sends in a step, the mean of the stages' first ranks"
    return tabulate("traffic", title, channels, fields)
