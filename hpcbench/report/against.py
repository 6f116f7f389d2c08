"""Reports of ``--against``: the changes since an earlier submission, with the verdict first and then a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.contract.criteria import Criteria
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.present.document import Chapter, Column, Document, Entry, Sentences, Table, Tone
from hpcbench.present.notation import estimate, loss, loss_interval, name, phrase, quantity, speed_interval
from hpcbench.report.build import Section
from hpcbench.report.changes import Change, changes, differing_settings
from hpcbench.report.environment_changes import environment_changes
from hpcbench.report.formats import ReportRequest
from hpcbench.report.formats.json_document import as_object
from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.titles import cell_words

_COLUMNS = (
    Column("cell", "cell", words=True),
    Column("scheme", "scheme", words=True),
    Column("samples_per_s_old", "samples/s then", help="Mean of the completed runs of the earlier submission."),
    Column("samples_per_s", "now"),
    Column("speed_change", "now / then (95 % CI)", help="Independent samples: Welch's interval on logarithms."),
    Column("loss_old", "loss (valid) then", group=1),
    Column("loss_now", "now", group=1),
    Column("loss_change", "now - then (95 % CI)", group=1, help="Seed by seed where the seeds are the same."),
    Column("verdict", "verdict", words=True, group=1),
)


def document(
    new: Submission, old: Submission, found: Sequence[Change], settings: Sequence[str], criteria: Criteria
) -> Document:
    """Return the document of a comparison with an earlier submission."""
    environment = environment_changes(new.runs, old.runs)
    title = make_printable(f"{new.plan.study} on {new.plan.site} against {old.plan.study} on {old.plan.site}")
    asides = [f"Settings differ: {words}." for words in settings]
    asides += [f"Software or machine changed: {words}." for words in environment]
    chapter = Chapter(
        title,
        make_printable(f"now: {_origin(new)}; then: {_origin(old)}"),
        (
            table(found),
            Sentences(tuple(_answer(found))),
            Sentences(tuple(asides), "warning"),
            Sentences(tuple(_basis(found, criteria, changed=bool(environment)))),
        ),
    )
    return Document(title, (chapter,))


def table(found: Sequence[Change]) -> Table:
    """Return a table with a row for each scheme and cell."""
    cells = any(change.cell for change in found)
    rows = [_entries(change)[0 if cells else 1 :] for change in found]
    return Table("changes", "", _COLUMNS[0 if cells else 1 :], tuple(rows))


def _entries(change: Change) -> tuple[Entry, ...]:
    old, new = change.old, change.new
    tone: Tone = "bad" if change.bad else "good" if change.good else ""
    return (
        name(cell_words(change.cell)),
        name(change.scheme),
        quantity(old.samples_per_s if old else None),
        quantity(new.samples_per_s if new else None),
        estimate(change.speed_ratio, speed_interval),
        quantity(old.loss_valid if old else None, loss),
        quantity(new.loss_valid if new else None, loss),
        estimate(change.loss_difference, loss_interval),
        phrase(change.verdict, tone),
    )


def _answer(found: Sequence[Change]) -> list[str]:
    bad = [change for change in found if change.bad]
    good = [change for change in found if change.good]
    settled = {id(change) for change in (*bad, *good)}
    open_ = [
        change
        for change in found
        if change.fate == "compared" and "not shown" in change.verdict and id(change) not in settled
    ]
    sentences = []
    if bad:
        sentences.append(f"Worse than before: {_list(bad)}.")
    elif len(open_) < sum(change.fate == "compared" for change in found):
        sentences.append("Nothing is shown to be worse than before.")
    else:
        sentences.append(
            "No scheme is shown to be worse than before, and none as good: too few repeats, or no common ones."
        )
    if good:
        sentences.append(f"Better than before: {_list(good)}.")
    if open_ and len(open_) < len(found):
        sentences.append(f"Not decided: {_list(open_)}.")
    return sentences


def _basis(found: Sequence[Change], criteria: Criteria, *, changed: bool) -> list[str]:
    paired = {change.loss_paired for change in found if change.loss}
    how = {frozenset({True}): "seed by seed", frozenset({False}): "as independent samples"}.get(
        frozenset(paired), "seed by seed where the seeds are the same"
    )
    return [
        f"Speeds are compared as independent samples (Welch), losses {how}. A change counts where it is shown at"
        f" {100 * LEVEL:.0f} % after Holm's correction, unless it is shown to lie within"
        f" {100 * criteria.speed_margin:.3g} % of the speed or {100 * criteria.loss_margin:.3g} % of the loss.",
        "A change of the software or the machine looks like a change of the schemes."
        if changed
        else "The two may have run on different nodes: a change of the machine looks like a change of the program.",
    ]


def _list(found: Sequence[Change]) -> str:
    words = []
    for change in found:
        where = cell_words(change.cell)
        words.append(f"{change.scheme}{f' at {where}' if where else ''} ({change.verdict})")
    return make_printable(", ".join(words), 2000)


def _origin(submission: Submission) -> str:
    place = str(submission.root) if submission.root else "logs"
    when = f", {submission.plan.time[:10]}" if submission.plan.time else ""
    version = f", hpcbench {submission.plan.version}" if submission.plan.version else ""
    return f"{place}{when}{version}"


@dataclass(frozen=True, kw_only=True)
class ChangeRequest(ReportRequest):
    """A request for the changes, in place of the measurements."""

    earlier: Section
    found: Sequence[Change]

    def document(self, *, figures: bool = False) -> Document:
        """Return the document of the changes, without figures."""
        (new, cells), (old, before) = self.sections[0], self.earlier
        return document(new, old, self.found, differing_settings(cells, before), new.plan.criteria)

    def content(self) -> dict[str, Any]:
        """Return the changes as data for programs."""
        (new, cells), (old, before) = self.sections[0], self.earlier
        return {
            "schema": 1,
            "new": str(new.root) if new.root else None,
            "old": str(old.root) if old.root else None,
            "criteria": new.plan.criteria.model_dump(),
            "settings": differing_settings(cells, before),
            "environment": environment_changes(new.runs, old.runs),
            "changes": [_change(change) for change in self.found],
        }


def compared(request: ReportRequest, earlier: Sequence[Section]) -> tuple[ReportRequest, bool]:
    """Return the same request for the changes, and whether anything got worse.

    Raises
    ------
    UserError
        One of the sides is not a single submission, or the two have no scheme and cell in common.
    """
    if len(request.sections) != 1 or len(earlier) != 1:
        raise UserError("--against: compares one submission with one: give one directory, or logs of one study")
    (_, cells), (_, before) = request.sections[0], earlier[0]
    criteria = request.sections[0][0].plan.criteria
    found = changes(cells, before, criteria)
    if all(change.fate in ("new", "missing") for change in found):
        raise UserError("--against: no scheme and cell stands in both submissions: give two of the same study")
    asked = ChangeRequest(request.sections, request.tables, request.output, earlier=earlier[0], found=found)
    return asked, any(change.bad for change in found)


def _change(change: Change) -> dict[str, Any]:
    return {
        "cell": change.cell,
        "scheme": change.scheme,
        "fate": change.fate,
        "samples_per_s": change.new.samples_per_s if change.new else None,
        "samples_per_s_old": change.old.samples_per_s if change.old else None,
        "speed_change": as_object(change.speed_ratio),
        "speed": change.speed_word,
        "loss_valid": change.new.loss_valid if change.new else None,
        "loss_valid_old": change.old.loss_valid if change.old else None,
        "loss_change": as_object(change.loss_difference),
        "loss": change.loss_word,
        "loss_paired": change.loss_paired,
        "verdict": change.verdict,
        "bad": change.bad,
    }
