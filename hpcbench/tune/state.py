"""State of a search, in a file that each step replaces atomically, so that an interrupted search can resume."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from hpcbench.batch.files import write_json
from hpcbench.errors import UserError
from hpcbench.files import read_json, shown_path
from hpcbench.tune.race import Phase, RaceRound
from hpcbench.tune.standings import RunOutcome

NAME = "tune.json"
SCHEMA = 1


@dataclass
class RoundRecord:
    """A round that was started."""

    phase: Phase
    schemes: list[str]
    outcomes: dict[str, RunOutcome] | None = None
    """Outcomes keyed by scheme, or None until the jobs have ended."""
    node_hours: float = 0.0


@dataclass
class SearchState:
    """Rounds of a search, in start order.

    Attributes
    ----------
    digest
        Digest of everything that the decisions depend on.
    """

    digest: str
    rounds: list[RoundRecord] = field(default_factory=list)

    @property
    def completed(self) -> list[RaceRound]:
        """Rounds whose jobs have ended."""
        return [RaceRound(each.phase, each.outcomes) for each in self.rounds if each.outcomes is not None]

    @property
    def runs(self) -> int:
        """Number of runs that were started."""
        return sum(len(each.schemes) for each in self.rounds)

    @property
    def node_hours(self) -> float:
        """Node-hours of the completed rounds."""
        return sum(each.node_hours for each in self.rounds)

    def save(self, directory: Path) -> None:
        """Write the state and sync it to disk."""
        write_json(directory / NAME, {"schema": SCHEMA, **asdict(self)}, durable=True)


def load_state(directory: Path, digest: str) -> SearchState:
    """Read the state of a search, or create a new state if the directory does not contain one.

    Raises
    ------
    UserError
        The file is damaged, or belongs to a search with other settings.
    """
    path = directory / NAME
    if not path.exists():
        return SearchState(digest)
    content = read_json(path)
    try:
        if content is None or content["schema"] != SCHEMA:
            raise ValueError
        rounds = [_read_round(each) for each in content["rounds"]]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{shown_path(path)}: is damaged: give another --out") from None
    if content["digest"] != digest:
        raise UserError(
            f"{shown_path(path)}: belongs to a search with another study, site, budget or version: give another --out"
        )
    return SearchState(digest, rounds)


def _read_round(content: Mapping[str, Any]) -> RoundRecord:
    outcomes = content["outcomes"]
    read = None if outcomes is None else {name: RunOutcome(**each) for name, each in outcomes.items()}
    return RoundRecord(cast(Phase, content["phase"]), list(content["schemes"]), read, float(content["node_hours"]))
