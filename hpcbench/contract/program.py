"""A program of others in a study: its command, how it is started, how it prints its steps; and the file of its run."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from hpcbench.contract.interpose import Groups, compile_expression
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.run import RankShape
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.section import Count, File, Line, Name, Precision, Scalar, Section, Variable
from hpcbench.errors import UserError

Framework = Literal[
    "megatron-lm",
    "gpt-neox",
    "deepspeed",
    "torchtitan",
    "nanotron",
    "picotron",
    "nanogpt",
    "llm.c",
    "maxtext",
    "nemo",
    "automodel",
    "litgpt",
    "verl",
    "mlperf",
    "transformers",
]
"""Frameworks whose logs `hpcbench report` reads, in small letters."""
PRINTED = ("step", "steps", "loss", "seconds", "samples_per_s", "tokens_per_s", "lr", "gradient_norm")
"""Groups that the expression of a log's line may have: the names of a step's quantities."""
OWN = ("seed", "ranks", "nodes", "ranks_per_node", "node_rank", "host", "port", "run")
"""Names that a command may have in braces, in addition to those of `values`."""
_BRACES = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class LogLines(Section):
    """The lines of a program's log, for a program that none of the known frameworks has printed."""

    line: str = Field(
        min_length=1,
        max_length=4096,
        description=f"Regular expression of a step's line, with named groups among {', '.join(PRINTED)}. Without a "
        "group step its lines are counted. Without a time or a rate, the time between two lines is taken.",
    )
    every: Count = Field(1, description="Number of steps from one line to the next, where the line has no step.")
    evaluation: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Regular expression of a line with a validation loss, with the group loss, and step or none.",
    )

    @field_validator("line", "evaluation")
    @classmethod
    def _compiles(cls, text: str | None) -> str | None:
        groups = compile_expression(text).groupindex if text is not None else {}
        odd = [name for name in groups if name not in PRINTED]
        if odd:
            raise ValueError(f"has a group {odd[0]}: groups are {', '.join(PRINTED)}")
        return text

    @model_validator(mode="after")
    def _say_something(self) -> "LogLines":
        if self.every != 1 and "step" in re.compile(self.line).groupindex:
            raise ValueError("every is for a line without the group step, which gives each step: leave it out")
        if not re.compile(self.line).groups:
            raise ValueError("line has no group: name at least one, such as (?P<loss>[0-9.]+)")
        if self.evaluation is not None and "loss" not in re.compile(self.evaluation).groupindex:
            raise ValueError("evaluation has no group loss: add (?P<loss>...)")
        return self


LogForm = Annotated[
    Annotated[Framework, Tag("[framework]")] | Annotated[LogLines, Tag("[lines]")],
    Discriminator(lambda said: "[framework]" if isinstance(said, str) else "[lines]"),
]
"""How a program prints its steps: the name of a framework, or expressions."""


class Program(Section):
    """A user's program that trains with PyTorch, unchanged."""

    command: Line = Field(
        min_length=1,
        description="The command of a rank, or of a node, in the words of a shell, without a launcher. {seed} is the "
        f"repeat's seed; there are also {', '.join('{' + name + '}' for name in OWN[1:])} and the names of values. "
        "The words python and torchrun stand for the interpreter of the site.",
    )
    log: LogForm = Field(description=f"The framework that prints the log: {', '.join(Framework.__args__)}; or lines.")  # type: ignore[attr-defined]
    start: Literal["rank", "node"] = Field(
        "rank",
        description="rank: the site's launcher starts the command once for each rank, with the variables that torchrun "
        "would set; node: it starts the command once on each node, such as a torchrun.",
    )
    steps: Count = Field(description="Number of steps that the program takes; only `hpcbench status` uses it.")
    warmup_steps: int | None = Field(
        None,
        ge=0,
        le=10**9,
        description="First steps that do not count for the speed; by default the first step line of the log.",
    )
    seed: int = Field(1234, ge=0, le=2**31 - 1, description="Seed of the first repeat; the next ones count up from it.")
    env: dict[Variable, Line] = Field(default_factory=dict, description="Variables of the program; braces as above.")
    values: dict[Variable, Scalar] = Field(
        default_factory=dict, description="Values for braces, which a matrix may vary as program.values.NAME."
    )
    directory: File | None = Field(None, description="Where it runs; by default the directory of the study file.")
    groups: Groups = Field(default_factory=Groups, description="What the program's groups are, and what may be lossy.")
    global_batch: Count | None = Field(None, description="Sequences of a step, for samples/s.")
    seq_len: Count | None = Field(None, description="Tokens of a sequence, for tokens/s.")
    precision: Precision | None = Field(None, description="Number format of weights and activations; only shown.")

    @field_validator("command")
    @classmethod
    def _has_words(cls, command: str) -> str:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"not the words of a shell ({error}): close the quote") from None
        if not words:
            raise ValueError("is empty: name a program")
        return command

    @model_validator(mode="after")
    def _braces_are_known(self) -> "Program":
        known = (*OWN, *self.values)
        for where, text in (("command", self.command), *((f"env.{name}", text) for name, text in self.env.items())):
            odd = next((name for name in _BRACES.findall(text) if name not in known), None)
            if odd:
                raise ValueError(f"{where} has {{{odd}}}: known are {', '.join(known)}; add others to program.values")
        cut = next((name for name, value in self.values.items() if isinstance(value, str) and "\0" in value), None)
        if cut:
            raise ValueError(f"values.{cut} has a NUL, which no command can have: remove it")
        taken = next((name for name in self.values if name in OWN), None)
        if taken:
            raise ValueError(f"values.{taken} is a name of hpcbench's own: choose another")
        return self

    def uses(self, name: str) -> bool:
        """Return whether the command or a variable of the environment has a name in braces."""
        return any(name in _BRACES.findall(text) for text in (self.command, *self.env.values()))

    @model_validator(mode="after")
    def _braces_use_every_value(self) -> "Program":
        for name in self.values:
            if not self.uses(name):
                raise ValueError(f"values.{name} is not used: write {{{name}}} in command or env, or remove it")
        return self

    def words(self, known: Mapping[str, object]) -> list[str]:
        """Return the words of the command, with its braces filled in."""
        return [fill_braces(word, {**self.values, **known}) for word in shlex.split(self.command)]

    def variables(self, known: Mapping[str, object]) -> dict[str, str]:
        """Return the program's own variables, with their braces filled in."""
        return {name: fill_braces(text, {**self.values, **known}) for name, text in self.env.items()}


def fill_braces(text: str, known: Mapping[str, object]) -> str:
    """Return a text with its braces filled in. Braces around anything else stay, as JSON in a command has them."""
    return _BRACES.sub(lambda found: str(known[found[1]]) if found[1] in known else found[0], text)


class ProgramRun(Section):
    """One run of a program of others: the content of its run.json."""

    model_config = ConfigDict(populate_by_name=True)

    version: Literal[1] = Field(1, alias="schema", description="Version of the file's form.")
    study: Name
    site: Line
    run: Line
    repeat: Count
    pairing: Line
    cell: dict[str, Scalar]
    program: Program
    directory: File
    """Directory in which the program runs, absolute."""
    scheme: NamedScheme
    ranks: Count
    threads: Count
    oversubscribe: bool
    device: Literal["cpu", "cuda"]
    shape: RankShape
    peak_tflops: Annotated[dict[Precision, float], Field(default_factory=dict)]

    @property
    def interposed(self) -> bool:
        """Whether PyTorch's calls are looked at. The baseline is what people really run: nothing stands between."""
        return self.scheme.algorithm != "native"

    def content(self) -> dict[str, Any]:
        """Return the run as JSON data with every key: the content of run.json."""
        return self.model_dump(mode="json", by_alias=True)


def load(path: Path) -> ProgramRun:
    """Read the run file of a program.

    Raises
    ------
    UserError
        The file is missing, not JSON, or not a run of a program.
    """
    remedy = "run files are written by `hpcbench submit`"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: {remedy}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}: {remedy}") from None
    try:
        return ProgramRun.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{make_user_error(error, ProgramRun, lambda _: str(path))}; {remedy}") from None
