"""Results of a search: dropped candidates with reasons, rounds, Pareto front, and chosen scheme."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.contract.scheme import Scheme
from hpcbench.present.document import Document, Field, Sentences, Table, make_chapter, tabulate
from hpcbench.present.notation import Interval, figure_column, percent, text_column
from hpcbench.present.results import RowResults
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.show_schemes import summarize
from hpcbench.tune.choose import Combination
from hpcbench.tune.prune import PrunedOption, SearchPlan
from hpcbench.tune.race import SchemeChoice
from hpcbench.tune.search import SearchLimits
from hpcbench.tune.standings import RaceRules, Standing, Standings
from hpcbench.tune.state import RoundRecord, SearchState

MOST_SHOWN = 12
"""Maximum number of predicted combinations in the table."""
WIDEST = 3.0
"""Log ratio beyond which an interval bound is uninformative."""


def write_scheme(directory: Path, name: str, scheme: Scheme) -> Path:
    """Write the chosen scheme to ``NAME.yaml`` for ``hpcbench run --scheme``, and return the path."""
    fields: dict[str, Any] = json.loads(scheme.model_dump_json(exclude_defaults=True))
    path = directory / f"{name}.yaml"
    path.write_text(json.dumps({"algorithm": scheme.algorithm, **fields}, indent=1) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class Tuned(RowResults):
    """A completed or incomplete search."""

    study: str
    site: str
    plan: SearchPlan
    rules: RaceRules
    state: SearchState
    limits: SearchLimits
    choice: SchemeChoice | None
    schemes: Mapping[str, SchemeEntry]
    """Schemes that neither the study nor a preset defines."""
    definitions: Mapping[str, Scheme] = field(default_factory=dict)
    """All schemes of the plan."""
    upcoming: RoundRecord | None = None
    """Round that the next command runs or continues, in a dry run."""

    def document(self, *, figures: bool = False) -> Document:
        """Return the tables and the answer."""
        title = f"Tuning of {self.study} on {self.site}: loss budget {100 * self.rules.loss_budget:g} %"
        blocks = (
            Sentences(tuple(self.list_answers())),
            _tabulate_standings(self.standings),
            _tabulate_rounds(self.state.rounds),
            _tabulate_plan(self.plan, self.definitions),
            _tabulate_pruned(self.plan.pruned),
            Sentences(tuple(self.plan.notes), "warning"),
        )
        return Document(title, (make_chapter(title, "", blocks),))

    @property
    def standings(self) -> Standings | None:
        """Standings after the completed rounds, or None if no round is complete."""
        rounds = [each.outcomes for each in self.state.completed]
        return Standings(list(self.plan.combinations), rounds, self.rules) if rounds else None

    def list_answers(self) -> list[str]:
        """List the answer and the cost, one sentence each."""
        spent = f"{self.state.runs} runs"
        if self.state.node_hours:
            spent += f" and {self.state.node_hours:.2f} node-hours"
        lines = []
        if self.choice is not None:
            word = "confirmed" if self.choice.confirmed else "not confirmed"
            lines.append(f"Choice: {self.choice.scheme} ({word}): {self.choice.reason}.")
        elif not self.plan.can_pay:
            lines.append(
                f"Nothing can pay here: the predicted gain is at most {100 * (self.plan.best_gain or 0):.1f} %."
            )
        else:
            lines.append(f"Plan: at most {self.limits.runs} runs.")
        if self.upcoming is not None:
            number = 1 + len(self.state.completed)
            lines.append(
                f"Next: round {number} ({self.upcoming.phase}) runs {', '.join(self.upcoming.schemes)} with one seed, "
                f"and compares their speeds and losses with those of {self.rules.baseline}."
            )
        lines.append(f"Spent: {spent}; {len(self.plan.combinations)} schemes were candidates.")
        if self.choice is not None and (definition := self.schemes.get(self.choice.scheme)) is not None:
            content = definition.model_dump_json(exclude_defaults=True)
            lines.append(f"To submit the chosen scheme: --set 'schemes.{self.choice.scheme}={content}'")
        return lines

    def content(self) -> dict[str, Any]:
        """Return all results as plain data."""
        standings = self.standings
        return {
            "schema": 1,
            "study": self.study,
            "site": self.site,
            "loss_budget": self.rules.loss_budget,
            "choice": None if self.choice is None else asdict(self.choice),
            "runs": self.state.runs,
            "node_hours": self.state.node_hours,
            "best_predicted_gain": self.plan.best_gain,
            "candidates": [
                {"scheme": name, "seconds": each.seconds, "loss": each.loss, "codecs": dict(each.codecs)}
                for name, each in self.plan.combinations.items()
            ],
            "pruned": [asdict(each) for each in self.plan.pruned],
            "standings": [] if standings is None else [_describe(each, standings) for each in _rank(standings)],
            "rounds": [asdict(each) for each in self.state.rounds],
            "next_round": [] if self.upcoming is None else self.upcoming.schemes,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the standings."""
        rows: list[dict[str, Any]] = self.content()["standings"]
        return rows


def _rank(standings: Standings) -> list[Standing]:
    return sorted(standings.standings.values(), key=lambda each: -each.gain.estimate if each.gain else math.inf)


def list_front(standings: Standings) -> list[str]:
    """Return the schemes on the estimated Pareto front."""
    points = {
        name: (each.gain.estimate, 0.0 if each.lossless or each.loss is None else each.loss.estimate)
        for name, each in standings.standings.items()
        if each.gain is not None and not each.failed
    }
    points[next(iter(standings.standings.values())).rules.baseline] = (0.0, 0.0)
    return [
        name
        for name, (gain, loss) in points.items()
        if not any(
            (other_gain >= gain and other_loss <= loss) and (other_gain, other_loss) != (gain, loss)
            for other_gain, other_loss in points.values()
        )
    ]


def _describe(standing: Standing, standings: Standings) -> dict[str, Any]:
    gain, loss = _get_gain(standing), _get_loss(standing)
    return {
        "scheme": standing.scheme,
        "gain": _finite(gain),
        "loss": _finite(loss),
        "out": standings.out.get(standing.scheme),
        "on_front": standing.scheme in list_front(standings),
    }


def _finite(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    ends = (interval.low, interval.high)
    low, high = (end if end is not None and math.isfinite(end) else None for end in ends)
    return {"estimate": interval.estimate, "low": low, "high": high}


def _get_gain(standing: Standing) -> Interval | None:
    """Return the speed gain as a fraction with a confidence interval. Uninformative bounds are None."""
    if standing.gain is None:
        return None
    interval = standing.gain.sequence(standing.rules.level)
    ends = (interval.low, interval.high)
    low, high = (math.expm1(end) if end is not None and abs(end) < WIDEST else None for end in ends)
    return Interval(math.expm1(interval.estimate), low, high, interval.pairs)


def _get_loss(standing: Standing) -> Interval | None:
    if standing.lossless or standing.loss is None:
        return None
    return standing.loss.sequence(2 * standing.rules.level)


def _show(interval: Interval | None) -> str:
    ends = None if interval is None else _finite(interval)
    if interval is None or ends is None:
        return "-"
    if ends["low"] is None or ends["high"] is None:
        return f"{100 * interval.estimate:+.2f} % (no interval yet)"
    return f"{100 * interval.estimate:+.2f} % ({100 * ends['low']:+.2f} to {100 * ends['high']:+.2f})"


def _tabulate_standings(standings: Standings | None) -> Table | None:
    if standings is None or not standings.standings:
        return None
    front = list_front(standings)
    fields: list[Field[Standing]] = [
        text_column("scheme", lambda item: item.scheme),
        text_column("rounds", lambda item: str(item.gain.rounds) if item.gain else "0"),
        text_column("gain", lambda item: _show(_get_gain(item))),
        text_column("loss", lambda item: "exact" if item.lossless else _show(_get_loss(item))),
        text_column("Pareto front", lambda item: "yes" if item.scheme in front else "no"),
        text_column("status", lambda item: standings.out.get(item.scheme, "in the race")),
    ]
    note = "Intervals are confidence sequences: they hold for all rounds together."
    return tabulate("standings", "Measured", _rank(standings), fields, notes=[note])


def _tabulate_rounds(rounds: Sequence[RoundRecord]) -> Table | None:
    numbered = list(enumerate(rounds, 1))
    fields: list[Field[tuple[int, RoundRecord]]] = [
        text_column("round", lambda item: str(item[0])),
        text_column("phase", lambda item: item[1].phase),
        text_column("schemes", lambda item: ", ".join(item[1].schemes)),
        figure_column("node-hours", lambda item: item[1].node_hours or None, "{:.3f}".format),
    ]
    return tabulate("rounds", "Rounds", numbered, fields)


def _tabulate_plan(plan: SearchPlan, definitions: Mapping[str, Scheme]) -> Table | None:
    ranked = sorted(plan.combinations.items(), key=lambda item: item[1].seconds)
    fields: list[Field[tuple[str, Combination]]] = [
        text_column("scheme", lambda item: item[0]),
        text_column("messages", lambda item: _summarize(definitions[item[0]]) if item[0] in definitions else ""),
    ]
    if plan.best_gain is None:
        return tabulate("candidates", "Candidates", ranked, fields)
    fields += [
        figure_column("predicted gain", lambda item: 1 / (1 + item[1].seconds) - 1, percent),
        figure_column("estimated loss", lambda item: item[1].loss, lambda value: f"{100 * value:+.3f} %"),
    ]
    slower = len(ranked) - MOST_SHOWN
    notes = [f"{slower} slower candidates are left out."] if slower > 0 else []
    return tabulate("candidates", "Candidates", ranked[:MOST_SHOWN], fields, notes=notes)


def _summarize(scheme: Scheme) -> str:
    rules = [rule.model_dump(exclude_defaults=True) for rule in scheme.rules]
    codecs = summarize({"algorithm": scheme.algorithm, "default": scheme.default, "rules": rules})
    return "; ".join(filter(None, (codecs, scheme.process_changes)))


def _tabulate_pruned(pruned: Sequence[PrunedOption]) -> Table | None:
    fields: list[Field[PrunedOption]] = [
        text_column("dimension", lambda item: item.dimension),
        text_column("codec", lambda item: item.codec),
        text_column("reason", lambda item: item.reason),
    ]
    return tabulate("pruned", "Dropped before any run", pruned, fields)
