"""Results of ``hpcbench predict`` as a document and as data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.plot_style import need_matplotlib
from hpcbench.predict import plots as predicted_plots
from hpcbench.predict.basis import PredictedValue
from hpcbench.predict.break_even import EQUAL, BreakEven
from hpcbench.predict.command import make_document, predict_study
from hpcbench.predict.machine import Machine
from hpcbench.predict.memory import KINDS, PEAKS, format_bytes, suggest_remedy
from hpcbench.predict.partition.plans import describe_plans
from hpcbench.predict.prediction import Prediction
from hpcbench.predict.step import PARTS, ChannelBytes
from hpcbench.present.document import Column, Document, Entry, Field, Item, Sentences, Table, make_chapter, tabulate
from hpcbench.present.notation import figure_column, integer, percent, text_column
from hpcbench.present.results import RowResults, check_output, resolve_format


def predict_and_show(
    study: Path, *, format: str | None, output: Path | None, plots: Path | None, **options: Any
) -> int:
    """Predict a study and print the results. The returned exit status is 1 if a run does not fit.

    Parameters
    ----------
    options
        Options of `predict_study`.

    Raises
    ------
    UserError
        The study, the site or an option is wrong.
    """
    format = resolve_format(format, output)
    check_output("--output", output)
    if plots is not None or format == "html":
        need_matplotlib("--plots" if plots is not None else "a page")
    predicted = Predicted(*predict_study(study, **options))
    predicted.save((), plots)
    predicted.show(format, output)
    return int(any(prediction.memory.fits is False for prediction in predicted.predictions))


@dataclass(frozen=True)
class Predicted(RowResults):
    """Predictions and their input sources."""

    predictions: Sequence[Prediction]
    about: dict[str, Any]
    machine: Machine

    def document(self, *, figures: bool = False) -> Document:
        """Return the tables, followed by runs that do not fit and by input sources."""
        predictions, machine = self.predictions, self.machine
        title = f"{self.about['study']} on {self.about['site']}, predicted"
        misfits = (
            f"{_name(each)}: does not fit into memory: {suggest_remedy(each.workload, each.memory)}."
            for each in predictions
            if each.memory.fits is False
        )
        blocks = (
            _tabulate_time(predictions, machine),
            _tabulate_parts(predictions),
            _tabulate_memory(predictions),
            _tabulate_traffic(predictions),
            *(predicted_plots.draw_figures(predictions, self.about, machine) if figures else ()),
            Sentences(tuple(misfits), "bad"),
            Sentences(tuple(_describe_steps(predictions)), "warning"),
            Sentences(tuple(list_notes(self.about, machine)), "warning"),
        )
        return Document(title, (make_chapter(title, "", blocks),))

    def content(self) -> dict[str, Any]:
        """Return all results as plain data."""
        return make_document(self.predictions, self.about, self.machine)

    def rows(self) -> list[dict[str, Any]]:
        """Return the predictions."""
        predictions: list[dict[str, Any]] = self.content()["predictions"]
        return predictions


def list_notes(about: dict[str, Any], machine: Machine) -> list[str]:
    """List the input sources and the limitations of the results, one sentence each."""
    products, fabric = about["products"], machine.fabric
    program = about["program"]
    assumed = f" Assumed without a source: {', '.join(program['assumed'])}." if program["assumed"] else ""
    lines = [
        f"Program: {program['name']}, {program['title']}.{assumed}",
        f"Products: {products['basis']} ({products['source']}). Links: "
        f"{fabric.describe(between=False)} ({fabric.within_basis.value}), "
        f"{fabric.describe(between=True)} ({fabric.between_basis.value}).",
        "Intervals are meant to contain 80 % of the measured times. Their width follows from the errors of these "
        "inputs.",
    ]
    lines += about["learned"]
    if about["measured"]:
        lines.append(f"Measured here: {', '.join(about['measured'])}.")
    elif not about["learned"]:
        lines.append(
            "Nothing was measured here: `hpcbench bench gemm` and `hpcbench bench network` narrow the intervals."
        )
    return [*lines, *describe_plans(about["plans"])]


def _describe_steps(predictions: Sequence[Prediction]) -> list[str]:
    """Describe the schemes whose treatment of messages changes during a run."""
    return [
        f"{_name(each)}: some rules depend on the step: times are predicted for the last step, "
        f"{each.workload.train.steps}, and memory for all steps."
        for each in predictions
        if len(each.workload.scheme.change_steps) > 1
    ]


def _name(prediction: Prediction) -> str:
    cell = f" ({prediction.cell})" if prediction.cell else ""
    return f"{prediction.scheme}{cell}"


def _list_name_columns(of: Callable[[Item], Prediction]) -> list[Field[Item]]:
    return [text_column("scheme", lambda item: of(item).scheme), text_column("cell", lambda item: of(item).cell)]


def _get_prediction(item: tuple[Any, ...]) -> Prediction:
    prediction: Prediction = item[0]
    return prediction


def _make_interval_entry(figure: PredictedValue) -> Entry:
    text = f"{figure.value:.3g} ({figure.low:.3g} to {figure.high:.3g})"
    return Entry(text, figure.value)


def _tabulate_time(predictions: Sequence[Prediction], machine: Machine) -> Table | None:
    def compute_mfu(item: Prediction) -> float:
        return item.tflops * 1e12 / machine.device.peak(item.workload.train.precision)

    fields: list[Field[Prediction]] = [
        *_list_name_columns(lambda item: item),
        figure_column("ranks", lambda item: item.workload.layout.ranks, integer),
        (Column("step_s", "step s"), lambda item: _make_interval_entry(item.time.seconds)),
        figure_column("samples/s", lambda item: item.samples_per_s.value, "{:.4g}".format),
        figure_column("TFLOPS", lambda item: item.tflops, "{:.3g}".format, help="Model FLOPS of a rank."),
        figure_column("MFU", compute_mfu, percent, help="Model FLOPS divided by the device's peak."),
        (
            Column("gain", "gain", help="Speed divided by that of the baseline, minus 1."),
            lambda item: _make_gain(item.against),
        ),
        (
            Column(
                "break_even_gbit_per_s", "break-even Gbit/s", help="Bandwidth of a node below which the scheme pays."
            ),
            lambda item: _make_break_even(item.against),
        ),
        text_column("rests on", lambda item: item.time.seconds.basis.value),
    ]
    answers = [f"{_name(item)}: {item.against.sentence}." for item in predictions if item.against]
    return tabulate("time", "Predicted time of a step", predictions, fields, notes=answers)


def _make_gain(against: BreakEven | None) -> Entry:
    if against is None:
        return Entry()
    return Entry("unknown", "unknown") if against.gain is None else Entry(f"{100 * against.gain:+.1f} %", against.gain)


def _make_break_even(against: BreakEven | None) -> Entry:
    text = describe_break_even(against)
    if against is None or against.bytes_per_s is None:
        return Entry(text, None if against is None else text)
    return Entry(text, against.bytes_per_s * 8e-9)


def describe_break_even(against: BreakEven | None) -> str:
    """Return the break-even bandwidth in Gbit/s, or the outcome in words if it does not depend on the bandwidth."""
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
    # Without savings in inter-node bytes, a gain comes from less work, and slow networks do not increase it.
    return "none: saves no bytes between nodes" if against.gain > 0 else "none: slower at any bandwidth"


def _tabulate_parts(predictions: Sequence[Prediction]) -> Table | None:
    def get_share(part: str) -> Callable[[Prediction], float | None]:
        return lambda item: item.time.parts[part] / item.time.seconds.value or None

    fields = [
        *_list_name_columns(lambda item: item),
        *(figure_column(part, get_share(part), percent) for part in PARTS),
    ]
    return tabulate("split", "Parts of the step time, on the stage with the most work", predictions, fields)


def _tabulate_memory(predictions: Sequence[Prediction]) -> Table | None:
    def get_size(kind: str) -> Callable[[tuple[Prediction, str]], float]:
        return lambda item: item[0].memory.peaks[item[1]][kind]

    def sum_kinds(item: tuple[Prediction, str]) -> float:
        return sum(item[0].memory.peaks[item[1]].values())

    def describe_fit(item: tuple[Prediction, str]) -> str:
        memory, peak = item[0].memory, item[1]
        return {True: "yes", False: "NO", None: "?"}[memory.fits] if peak == memory.peak else ""

    fields: list[Field[tuple[Prediction, str]]] = [
        *_list_name_columns(_get_prediction),
        text_column("peak", lambda item: item[1]),
        *(figure_column(kind, get_size(kind), format_bytes) for kind in KINDS),
        figure_column("all", sum_kinds, format_bytes),
        text_column("fits", describe_fit),
    ]
    peaks = [(prediction, peak) for prediction in predictions for peak in PEAKS]
    return tabulate("memory", "Memory of the rank that needs the most", peaks, fields)


def _tabulate_traffic(predictions: Sequence[Prediction]) -> Table | None:
    fields: list[Field[tuple[Prediction, str, ChannelBytes]]] = [
        *_list_name_columns(_get_prediction),
        text_column("channel", lambda item: item[1]),
        figure_column("message", lambda item: item[2].message_bytes, format_bytes),
        figure_column("wire", lambda item: item[2].wire_bytes, format_bytes),
        figure_column("between nodes", lambda item: item[2].network_bytes, format_bytes),
    ]
    channels = [(item, " ".join(key), sent) for item in predictions for key, sent in item.time.channels.items()]
    title = "Bytes that a rank sends in a step, mean of the first ranks of all stages"
    return tabulate("traffic", title, channels, fields)
