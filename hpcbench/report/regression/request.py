"""A report that says what changed since an earlier submission."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.errors import UserError
from hpcbench.report.build import Section
from hpcbench.report.document import Document
from hpcbench.report.formats import Request
from hpcbench.report.formats.json_document import as_object
from hpcbench.report.regression.changes import Change, changes
from hpcbench.report.regression.document import document
from hpcbench.report.regression.settings import differing_settings


@dataclass(frozen=True, kw_only=True)
class ChangeRequest(Request):
    """What changed, in place of what was measured."""

    earlier: Section
    found: Sequence[Change]

    def document(self, *, figures: bool = False) -> Document:
        """What changed, without figures."""
        (new, cells), (old, before) = self.sections[0], self.earlier
        return document(new, old, self.found, differing_settings(cells, before), new.plan.criteria)

    def content(self) -> dict[str, Any]:
        """What changed, to programs."""
        (new, cells), (old, before) = self.sections[0], self.earlier
        return {
            "schema": 1,
            "new": str(new.root) if new.root else None,
            "old": str(old.root) if old.root else None,
            "criteria": new.plan.criteria.model_dump(),
            "settings": differing_settings(cells, before),
            "changes": [_change(change) for change in self.found],
        }


def compared(request: Request, earlier: Sequence[Section]) -> tuple[Request, bool]:
    """The same request, for what changed; and whether anything changed for the worse.

    Raises
    ------
    UserError
        There is not one submission on each side, or they have no scheme and cell in common.
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
