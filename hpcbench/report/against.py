"""Reports of ``--against``: the changes since an earlier submission."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.present.document import Chapter, Column, Document, Entry, Sentences, Table, Tone
from hpcbench.present.notation import estimate, loss, loss_interval, name, phrase, quantity, speed_interval
from hpcbench.report import sentences as say
from hpcbench.report.build import Section
from hpcbench.report.changes import Change, list_changes, list_differing_settings
from hpcbench.report.environment_changes import list_environment_changes
from hpcbench.report.formats import ReportRequest
from hpcbench.report.formats.json_document import read_values
from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.titles import describe_cell

_COLUMNS = (
    Column("cell", "cell", text=True),
    Column("scheme", "scheme", text=True),
    Column("speed_old", "{unit} then", help="Mean of the completed runs of the earlier submission."),
    Column("speed_now", "now"),
    Column("speed_change", "now / then (95 % CI)", help="Independent samples: Welch's interval on logarithms."),
    Column("loss_old", "loss (valid) then", group=1),
    Column("loss_now", "now", group=1),
    Column("loss_change", "now - then (95 % CI)", group=1, help="Compared seed by seed if the seeds are the same."),
    Column("verdict", "verdict", text=True, group=1),
)


@dataclass(frozen=True, kw_only=True)
class ChangeRequest(ReportRequest):
    """A report request that shows the changes since an earlier submission instead of the measurements."""

    earlier: Section
    changes: Sequence[Change]

    def document(self, *, figures: bool = False) -> Document:
        """Return the changes as a document without figures."""
        (new, cells), (old, cells_before) = self.sections[0], self.earlier
        environment = list_environment_changes(new.runs, old.runs)
        title = make_printable(f"{new.plan.study} on {new.plan.site} against {old.plan.study} on {old.plan.site}")
        warnings = [
            say.SETTINGS_DIFFER.format(change=change) for change in list_differing_settings(cells, cells_before)
        ]
        warnings += [say.ENVIRONMENT_DIFFERS.format(change=change) for change in environment]
        criteria = new.plan.criteria
        method = say.METHOD_OF_CHANGES.format(
            level=100 * LEVEL, speed=100 * criteria.speed_margin, loss=100 * criteria.loss_margin
        )
        blocks = (
            _tabulate(self.changes),
            Sentences(tuple(_answer(self.changes, environment))),
            Sentences(tuple(warnings), "warning"),
            Sentences((method, say.MACHINE_CHANGED if environment else say.MACHINE_MAY_DIFFER)),
        )
        chapter = Chapter(title, make_printable(f"now: {_describe_origin(new)}; then: {_describe_origin(old)}"), blocks)
        return Document(title, (chapter,))

    def content(self) -> dict[str, Any]:
        """Return the changes as machine-readable data."""
        (new, cells), (old, cells_before) = self.sections[0], self.earlier
        return {
            "schema": 2,
            "new": str(new.root) if new.root else None,
            "old": str(old.root) if old.root else None,
            "criteria": new.plan.criteria.model_dump(),
            "settings": list_differing_settings(cells, cells_before),
            "environment": list_environment_changes(new.runs, old.runs),
            "changes": [read_values(change, _VALUES) for change in self.changes],
        }


_VALUES = {
    "cell": "cell",
    "scheme": "scheme",
    "fate": "fate",
    "unit": "unit",
    "speed_now": "new_speed",
    "speed_old": "old_speed",
    "samples_per_s": "new.samples_per_s",
    "samples_per_s_old": "old.samples_per_s",
    "speed_change": "speed_ratio",
    "speed": "speed_word",
    "loss_valid": "new.loss_valid",
    "loss_valid_old": "old.loss_valid",
    "loss_change": "loss_difference",
    "loss": "loss_word",
    "loss_paired": "loss_paired",
    "verdict": "verdict",
    "bad": "bad",
}
"""JSON and CSV names of a change's values, mapped to attributes of `Change`."""


def compare_submissions(request: ReportRequest, earlier: Sequence[Section]) -> tuple[ReportRequest, bool]:
    """Convert a report request into a request for the changes. Also return whether anything got worse."""
    if len(request.sections) != 1 or len(earlier) != 1:
        raise UserError("--against: compares exactly two submissions: give one directory, or the logs of one study")
    (new, cells), (_, cells_before) = request.sections[0], earlier[0]
    changes = list_changes(cells, cells_before, new.plan.criteria)
    if all(change.fate in ("new", "missing") for change in changes):
        raise UserError(
            "--against: the submissions have no combination of scheme and cell in common: give two submissions "
            "of the same study"
        )
    of_changes = ChangeRequest(request.sections, request.tables, request.output, earlier=earlier[0], changes=changes)
    return of_changes, any(change.bad for change in changes)


def _tabulate(changes: Sequence[Change]) -> Table:
    has_cells = any(change.cell for change in changes)
    rows = [_make_entries(change)[0 if has_cells else 1 :] for change in changes]
    columns = [replace(column, head=column.head.format(unit=changes[0].unit)) for column in _COLUMNS]
    return Table("changes", "", tuple(columns[0 if has_cells else 1 :]), tuple(rows))


def _make_entries(change: Change) -> tuple[Entry, ...]:
    old, new = change.old, change.new
    tone: Tone = "bad" if change.bad else "good" if change.good else ""
    return (
        name(describe_cell(change.cell)),
        name(change.scheme),
        quantity(change.old_speed),
        quantity(change.new_speed),
        estimate(change.speed_ratio, speed_interval),
        quantity(old.loss_valid if old else None, loss),
        quantity(new.loss_valid if new else None, loss),
        estimate(change.loss_difference, loss_interval),
        phrase(change.verdict, tone),
    )


def _answer(changes: Sequence[Change], environment: Sequence[str]) -> list[str]:
    """Return the verdict. If a change is significant, the verdict lists software and hardware changes."""
    bad = [change for change in changes if change.bad]
    good = [change for change in changes if change.good]
    inconclusive = [change for change in changes if change.is_open and not change.bad and not change.good]
    lines = []
    if bad:
        lines.append(say.WORSE_THAN_BEFORE.format(changes=_list(bad)))
    elif len(inconclusive) < sum(change.fate == "compared" for change in changes):
        lines.append(say.NOT_WORSE_THAN_BEFORE)
    else:
        lines.append(say.NO_CHANGE_DECIDED)
    if good:
        lines.append(say.BETTER_THAN_BEFORE.format(changes=_list(good)))
    if inconclusive and len(inconclusive) < len(changes):
        lines.append(say.CHANGES_OPEN.format(changes=_list(inconclusive)))
    if environment and (bad or good):
        more = f" and {len(environment) - _MOST_NAMED} more" if len(environment) > _MOST_NAMED else ""
        lines.insert(1, say.STACK_DIFFERS.format(changes="; ".join(environment[:_MOST_NAMED]) + more))
    return lines


_MOST_NAMED = 4
"""Maximum number of software and hardware changes in the verdict."""


def _list(changes: Sequence[Change]) -> str:
    names = (": ".join(filter(None, (describe_cell(change.cell), change.scheme))) for change in changes)
    texts = [f"{name} ({change.verdict})" for name, change in zip(names, changes, strict=True)]
    return make_printable(", ".join(texts), 2000)


def _describe_origin(submission: Submission) -> str:
    plan = submission.plan
    parts = [str(submission.root or "logs"), plan.time[:10], f"hpcbench {plan.version}" if plan.version else ""]
    return ", ".join(filter(None, parts))
