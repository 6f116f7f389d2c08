"""Helpers that run a function with intercepted calls and return the counts."""

from collections.abc import Callable
from typing import Any

from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.programs.intercept import Interception

SMALL = Groups(min_bytes=1024)
ASKED = Groups(min_bytes=1024, lossy=["parameters", "functional-gathers", "sums-outside-backward"])
RANKS = 4


def settings(default: str = "none", dp: str | None = None, groups: Groups = SMALL, **rule: Any) -> Interposition:
    rules = [Rule(dimension="DP", codec=dp, **rule)] if dp else []
    scheme = NamedScheme(name="test", algorithm="encoded", default=default, rules=rules)
    return Interposition(scheme=scheme, groups=groups, out="nowhere")


def interposed(asked: Interposition | None, work: Callable[[], Any]) -> tuple[Any, list[dict[str, Any]]]:
    if asked is None:
        return work(), []
    interception = Interception(asked)
    interception.install()
    try:
        return work(), interception.account.document()
    finally:
        interception.remove()
