"""Recompute the speeds and verdicts of stored reports from the numbers of each run in the JSON documents.

    python benchmarks/stored_reports.py [REPORT.json ...]

The logs of these studies are not stored. A document contains the mean step time of each run (`time.step`), and the
run's work, losses, traffic and environment. For each cell, the script recomputes the comparison, the answer and the
notes. The script replaces these parts in the document, and in the text file next to the document (`table.txt` for
`report.json`, otherwise the same name). All other tables are unchanged. Two results need the loss of every step and are
copied from the document: the comparison at equal time, and whether the loss was still falling. Without arguments, the
script updates the demo, with its figure, and `results/reference/studies`.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from provenance import ROOT

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.criteria import Criteria
from hpcbench.contract.events import Configuration, Environment, Evaluation, TrafficTotals
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.state import ResolvedState
from hpcbench.contract.step_line import Step
from hpcbench.contract.submission import RunPlan
from hpcbench.present.document import Document
from hpcbench.present.figures import svg
from hpcbench.present.records import encode
from hpcbench.present.rich_text import write
from hpcbench.report import weaknesses
from hpcbench.report.build import build
from hpcbench.report.compare import Cell, SchemeRow, compare
from hpcbench.report.findings import LossFinding, LossTest
from hpcbench.report.formats.json_document import content
from hpcbench.report.measures import Measures, measure
from hpcbench.report.plots.trade_off import plot_trade_off
from hpcbench.report.significance import student_t_quantile
from hpcbench.report.statistics import CONFIDENCE, Mean

STUDIES = ("experts", "long-context", "pruning", "sparse")
STORED = ("demo-2-cores/report.json", *(f"studies/{name}.json" for name in STUDIES))
WIDTH = 168
OF_RUN = (
    *("step_seconds", "step_seconds_median", "step_seconds_p95", "samples_per_s", "tokens_per_s"),
    *("tokens_per_s_per_rank", "model_flops_per_rank", "hardware_flops_per_rank"),
)
"""Report quantities of a run that depend on the run's step time."""
OF_SCHEME = re.compile(
    r"step_seconds.*|samples_per_s|tokens_per_s.*|(model|hardware)_flops_per_rank|speed.*|verdict|kind|beaten_by|weaknesses"
)
"""Report quantities of a scheme that depend on the scheme's step time."""
AT_EQUAL_TIME = "loss_in_time"
DIGITS = 12
ROUNDING = 10.0 ** (2 - DIGITS)
"""Relative difference that rounding to this number of digits can cause."""
_SIZE = re.compile(r" ([0-9.]+) ([KMB]) parameters")
_SCALE = re.compile(r"a model that guesses has a loss of ([0-9.]+), .* each byte occurs(?: has a loss of)? ([0-9.]+)\.")


def measured(stored: dict[str, Any], study: str, site: str, cell: dict[str, Any]) -> Measures:
    """Return the report quantities of a stored run, with speeds computed from the mean step time."""
    settings, last, count = stored["settings"], stored["planned_steps"], stored["throughput_steps"]
    log = RunLog(Path(stored["log"]))
    for k in range(last - count + 1, last + 1):
        log.steps.add(Step(k, last, seconds=stored["time"]["step"], loss=stored["loss_train"] if k == last else None))
    scale = next((match for sentence in cell["answer"] if (match := _SCALE.search(sentence))), None)
    configured: dict[str, float] = {}
    if scale:
        configured |= {"valid_loss_uniform": float(scale[1]), "valid_loss_unigram": float(scale[2])}
    if size := _SIZE.search(cell["title"]):
        configured["parameters"] = round(float(size[1]) * {"K": 1e3, "M": 1e6, "B": 1e9}[size[2]])
    log.events += [
        Environment.read(stored["environment"]),
        Configuration.read(configured),
        TrafficTotals.read({"from_step": last - count + 1, "to_step": last, "channels": stored["traffic"]}),
        Evaluation.read({"step": last, "split": "valid", "loss": stored["loss_valid"]}),
    ]
    run = RunResult(
        *(stored["run"], study, site, stored["scheme"], stored["repeat"], stored["pairing"], cell["cell"]),
        ResolvedState(stored["state"], stored["reason"], stored["where"]),
        log,
        LoggedSettings.read(settings),
        *(stored["job"], stored["exit"], stored["start"], stored["end"], stored["host"], stored["job"]),
    )
    # In older reports, speeds were not work over mean time, and `step_seconds` was the median.
    middle = stored.get("step_seconds_median") or stored["step_seconds"]
    result = measure(run)
    faster = (result.samples_per_s or 0.0) / stored["samples_per_s"]
    if math.isclose(faster, 1.0, rel_tol=ROUNDING):
        faster = 1.0  # the stored speed is rounded: otherwise the last digits would change whenever the script runs
    rates = {
        name: stored[name] and stored[name] * faster for name in ("model_flops_per_rank", "hardware_flops_per_rank")
    }
    return replace(
        result,
        **rates,
        step_seconds_median=middle,
        step_seconds_p95=stored.get("step_seconds_p95"),
        unevenness=stored["time"]["step"] / middle,
        skipped=stored["skipped"],
        nan_steps=stored["nan_steps"],
        diverged_at=stored["diverged_at"],
        notes=tuple(stored["notes"]),
    )


def at_equal_time(stored: dict[str, Any]) -> LossFinding | None:
    """Return the stored comparison of a scheme at equal time: its interval, without a conclusion.

    The pairs are not stored, so the comparison is excluded from the multiplicity correction.
    """
    interval = stored[f"{AT_EQUAL_TIME}_difference"]
    if interval is None:
        return None
    estimate, low, high, pairs = (interval[key] for key in ("estimate", "low", "high", "pairs"))
    error = None if low is None else (high - low) / 2 / student_t_quantile((1 + CONFIDENCE) / 2, pairs - 1)
    return LossTest(Mean(estimate, error, pairs - 1, pairs), stored[f"{AT_EQUAL_TIME}_margin"], estimate).finding(0.0)


def compared(document: dict[str, Any]) -> tuple[Submission, list[Cell]]:
    """Compare the cells of a stored submission again."""
    criteria = Criteria.model_validate(document["criteria"])
    measures = [
        measured(run, document["study"], document["site"], stored)
        for stored in document["cells"]
        for run in stored["runs"]
    ]
    runs, compared = [run.run for run in measures], []
    cells = compare(measures, document["cells"][0]["baseline"], criteria)
    for stored, cell in zip(document["cells"], cells, strict=True):
        schemes = {row["scheme"]: row for row in stored["schemes"]}
        rows = tuple(replace(row, loss_in_time=at_equal_time(schemes[row.scheme])) for row in cell.rows)
        compared.append(replace(cell, rows=rows))
    repeats = len({run.repeat for run in runs})
    steps = max(run.log.planned_steps or 0 for run in runs if run.log)
    plan = RunPlan(study=document["study"], site=document["site"], criteria=criteria, steps=steps, repeats=repeats)
    return Submission(None, plan, runs), compared


def take_over_falling(cells: Sequence[dict[str, Any]]) -> None:
    """Keep the stored warning that the baseline's loss was still falling."""
    name = "still_falling"
    rows = [(cell["cell"], row) for cell in cells for row in cell["schemes"]]
    falling = {repr((values, row["scheme"])) for values, row in rows if name in row["weaknesses"]}

    def concerns(cell: Cell, row: SchemeRow, base: SchemeRow) -> bool:
        return repr((cell.values, row.scheme)) in falling

    weaknesses.WEAKNESSES = tuple(
        replace(weakness, concerns=concerns) if weakness.name == name else weakness
        for weakness in weaknesses.WEAKNESSES
    )


def overlaid(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Replace the speed-dependent values in a cell's document."""
    for mine, other in zip(old["runs"], new["runs"], strict=True):
        mine |= {key: other[key] for key in OF_RUN if key != "step_seconds_p95" or other[key] is not None}
    for mine, other in zip(old["schemes"], new["schemes"], strict=True):
        mine |= {key: value for key, value in other.items() if OF_SCHEME.fullmatch(key)}
    old |= {key: value for key, value in new.items() if key not in ("runs", "schemes", "cell", "title", "baseline")}


def spliced(text: str, chapters: Iterator[tuple[str, str]]) -> str:
    """Replace the comparison, answer and notes of each chapter in a stored report."""
    lines = text.splitlines()
    for title, chapter in chapters:
        begin = next(k for k, line in enumerate(lines) if line.startswith(title))
        end = begin + 1
        study = title.partition(":")[0]
        while end < len(lines):
            after = lines[end + 1 : end + 3]
            if not lines[end] and (after[0].startswith(study) or (after[1:] and after[1].startswith("scheme "))):
                break
            end += 1
        lines[begin:end] = chapter.splitlines()
    return "\n".join(lines) + "\n"


def recompute(path: Path) -> None:
    """Rewrite a stored report."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    beside = path.with_name("table.txt" if path.name == "report.json" else f"{path.stem}.txt")
    for document in stored["submissions"]:
        take_over_falling(document["cells"])
        section = compared(document)
        submission, cells = section
        # Format each cell alone, as in a report with one cell: without an overview, and with all footnotes.
        chapters_of_cells = [build([(submission, [cell])], ()).chapters[0] for cell in cells]
        titles = (cell["title"] for cell in document["cells"])
        chapters = (
            (title, write(Document("", (replace(chapter, title=title),)), WIDTH))
            for title, chapter in zip(titles, chapters_of_cells, strict=True)
        )
        beside.write_text(spliced(beside.read_text(encoding="utf-8"), chapters), encoding="utf-8")
        plain_content = round_figures(json.loads(json.dumps(content([section]))))
        stored["schema"], (new,) = plain_content["schema"], plain_content["submissions"]
        for mine, other in zip(document["cells"], new["cells"], strict=True):
            overlaid(mine, other)
    path.write_text(encode(stored), encoding="utf-8")


def draw_demo(path: Path) -> None:
    """Draw the speed and loss of the stored demo, for the first page of the documentation."""
    (document,) = json.loads(path.read_text(encoding="utf-8"))["submissions"]
    submission, (cell,) = compared(document)
    figure = plot_trade_off(submission, cell)
    assert figure is not None
    path.with_name("speed-against-loss.svg").write_text(svg(figure), encoding="utf-8")


def round_figures(value: Any) -> Any:
    """Round all numbers, because the last digits differ between machines."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: round_figures(item) for key, item in value.items()}
    return [round_figures(item) for item in value] if isinstance(value, list) else value


def main() -> int:
    """Recompute the reports given on the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT.json")
    reports = parser.parse_args().reports
    for path in reports or [ROOT / "results/reference" / name for name in STORED]:
        recompute(path)
    if not reports:
        draw_demo(ROOT / "results/reference" / STORED[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
