"""Parser and evaluation of LSF dependency conditions, such as ``done(12) && ended(13[2])``.

Sources: IBM Spectrum LSF 10.1, Administering, dependency conditions.
"""

import re
from collections.abc import Callable

from fakes.programs import RefusedError
from fakes.state import ALIVE, DONE, ENDED, EXITED, Job, State

_TOKEN = re.compile(r"\s*(?:(&&|\|\||[()!,])|(==|!=|<=|>=|<|>)|\"([^\"]*)\"|([A-Za-z_][\w.-]*|\d+(?:\[[\d,-]+\])?))")
_SYNTAX = "Dependency condition syntax error. Job not submitted."
Answer = bool | None
"""Result of a condition. None means that the condition can no longer become true."""


def evaluate(condition: str, state: State) -> Answer:
    """Return whether the condition is met now.

    Raises
    ------
    RefusedError
        The condition is malformed, or names an unknown job.
    """
    reader = _Reader(condition, state)
    value = reader.read_disjunction()
    if reader.tokens:
        raise RefusedError(_SYNTAX)
    return value


class _Reader:
    def __init__(self, text: str, state: State) -> None:
        self.state = state
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if not match:
                raise RefusedError(_SYNTAX)
            self.tokens.append(next(group for group in match.groups() if group is not None))
            at = match.end()

    def take(self, expected: str | None = None) -> str:
        if not self.tokens or (expected and self.tokens[0] != expected):
            raise RefusedError(_SYNTAX)
        return self.tokens.pop(0)

    def read_disjunction(self) -> Answer:
        value = self.read_conjunction()
        while self.tokens[:1] == ["||"]:
            self.take()
            value = _disjoin(value, self.read_conjunction())
        return value

    def read_conjunction(self) -> Answer:
        value = self.read_operand()
        while self.tokens[:1] == ["&&"]:
            self.take()
            value = _conjoin(value, self.read_operand())
        return value

    def read_operand(self) -> Answer:
        word = self.take()
        if word == "!":
            value = self.read_operand()
            return None if value is None else not value
        if word == "(":
            value = self.read_disjunction()
            self.take(")")
            return value
        if self.tokens[:1] != ["("]:
            return self.ask_jobs(word, _is_done)  # an id alone means done(id)
        if word not in _ASKED:
            raise RefusedError(_SYNTAX)
        self.take("(")
        name = self.take()
        if word == "exit" and self.tokens[:1] == [","]:
            self.take()
            code = self.take()
            compare = code if code in ("==", "!=", "<", ">", "<=", ">=") else "=="
            number = int(self.take() if compare == code else code)
            self.take(")")
            return self.ask_jobs(name, lambda job: _exit_with(job, compare, number))
        self.take(")")
        return self.ask_jobs(name, _ASKED[word])

    def ask_jobs(self, name: str, ask: Callable[[Job], Answer]) -> Answer:
        match = re.fullmatch(r"(\d+)(?:\[(\d+)\])?", name)
        if match:
            jobs = self.state.find(int(match[1]), int(match[2] or 0))
        else:
            jobs = [job for job in self.state.jobs if job.name == name]
            jobs = [job for job in jobs if job.id == max(other.id for other in jobs)]
        if not jobs:
            raise RefusedError(f"{name}: No matching job found. Job not submitted.")
        value: Answer = True
        for job in jobs:
            value = _conjoin(value, ask(job))
        return value


def _disjoin(a: Answer, b: Answer) -> Answer:
    if a or b:
        return True
    return None if a is None and b is None else False


def _conjoin(a: Answer, b: Answer) -> Answer:
    if a is None or b is None:
        return None
    return a and b


def _is_done(job: Job) -> Answer:
    return True if job.state == DONE else None if job.state == EXITED else False


def _exit(job: Job) -> Answer:
    return True if job.state == EXITED else None if job.state == DONE else False


def _exit_with(job: Job, compare: str, number: int) -> Answer:
    if job.state != EXITED:
        return _exit(job)
    code = job.exit or 0
    fits = {
        "==": code == number,
        "!=": code != number,
        "<": code < number,
        ">": code > number,
        "<=": code <= number,
        ">=": code >= number,
    }
    return fits[compare] or None


_ASKED: dict[str, Callable[[Job], Answer]] = {
    "done": _is_done,
    "exit": _exit,
    "ended": lambda job: job.state in ENDED,
    "started": lambda job: job.state in (*ALIVE, *ENDED),
    "post_done": _is_done,
}
