"""A user's program in a study: command, launch, log, and run file."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from hpcbench.contract.interpose import Groups, compile_expression
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.process_changes import split_arguments
from hpcbench.contract.run import WRITTEN_BY, RankShape, read_run_data
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
"""Frameworks whose logs `hpcbench report` reads, in lower case."""
PRINTED = ("step", "steps", "loss", "seconds", "samples_per_s", "tokens_per_s", "lr", "gradient_norm")
"""Allowed group names in regular expressions for step lines: the names of step quantities."""
OWN = ("seed", "ranks", "nodes", "ranks_per_node", "node_rank", "host", "port", "run")
"""Names that commands may contain in braces, in addition to those in `values`."""
ARGUMENTS = "{arguments}"
"""Placeholder in commands for the scheme's arguments."""
_BRACES = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class LogLines(Section):
    """Format of the log lines of a program that uses another framework."""

    line: str = Field(
        min_length=1,
        max_length=4096,
        description=f"Regular expression of a step's line, with named groups from {', '.join(PRINTED)}. Without the "
        "group step, lines are counted. Without a time or a rate, the time between two lines is used.",
    )
    every: Count = Field(1, description="Number of steps from one line to the next, if the line has no group step.")
    evaluation: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Regular expression of a line with a validation loss, with the group loss and, if possible, step.",
    )

    @field_validator("line", "evaluation")
    @classmethod
    def _compiles(cls, text: str | None) -> str | None:
        groups = compile_expression(text).groupindex if text is not None else {}
        odd = [name for name in groups if name not in PRINTED]
        if odd:
            raise ValueError(f"has an unknown group {odd[0]}: use groups from {', '.join(PRINTED)}")
        return text

    @model_validator(mode="after")
    def _check_groups(self) -> "LogLines":
        if self.every != 1 and "step" in re.compile(self.line).groupindex:
            raise ValueError("every is only for a line without the group step: leave every out")
        if not re.compile(self.line).groups:
            raise ValueError("line has no group: name at least one, such as (?P<loss>[0-9.]+)")
        if self.evaluation is not None and "loss" not in re.compile(self.evaluation).groupindex:
            raise ValueError("evaluation has no group loss: add (?P<loss>...)")
        return self


LogForm = Annotated[
    Annotated[Framework, Tag("[framework]")] | Annotated[LogLines, Tag("[lines]")],
    Discriminator(lambda value: "[framework]" if isinstance(value, str) else "[lines]"),
]
"""Format of a program's log: the name of a framework, or regular expressions."""


class Program(Section):
    """An unmodified PyTorch training program of a user."""

    command: Line = Field(
        min_length=1,
        description="Command of a rank or a node, in shell syntax, without a launcher. {seed} is replaced by the seed "
        f"of the repeat, and so are {', '.join('{' + name + '}' for name in OWN[1:])} and the names of values. "
        "The word {arguments} is replaced by the arguments of the scheme, which otherwise follow the command. "
        "The words python and torchrun mean those of the site's interpreter.",
    )
    log: LogForm = Field(description=f"Framework that prints the log: {', '.join(Framework.__args__)}; or LogLines.")  # type: ignore[attr-defined]
    start: Literal["rank", "node"] = Field(
        "rank",
        description="rank: the site's launcher starts the command once for each rank, with the variables that torchrun "
        "would set; node: the launcher starts the command, such as torchrun, once on each node.",
    )
    steps: Count = Field(description="Number of steps of the program, which only `hpcbench status` uses.")
    warmup_steps: int | None = Field(
        None,
        ge=0,
        le=10**9,
        description="Initial steps excluded from the speed; by default the steps of the log's first step line.",
    )
    seed: int = Field(1234, ge=0, le=2**31 - 1, description="Seed of the first repeat; repeat k uses seed + k - 1.")
    env: dict[Variable, Line] = Field(
        default_factory=dict, description="Environment variables of the program, with braces like command."
    )
    values: dict[Variable, Scalar] = Field(
        default_factory=dict, description="Values for names in braces. A matrix may vary them as program.values.NAME."
    )
    directory: File | None = Field(None, description="Working directory; by default the directory of the study file.")
    groups: Groups = Field(
        default_factory=Groups,
        description="Parallel dimensions of the program's groups, and the calls that may be lossy.",
    )
    global_batch: Count | None = Field(None, description="Sequences per step, to compute samples/s.")
    seq_len: Count | None = Field(None, description="Tokens per sequence, to compute tokens/s.")
    precision: Precision | None = Field(
        None, description="Number format of weights and activations, only shown in reports."
    )

    @field_validator("command")
    @classmethod
    def _has_words(cls, command: str) -> str:
        if not split_arguments(command):
            raise ValueError("is empty: name a program")
        return command

    @model_validator(mode="after")
    def _braces_are_known(self) -> "Program":
        names = (*OWN, *self.values)
        command = " ".join(argument for argument in shlex.split(self.command) if argument != ARGUMENTS)
        for where, text in (("command", command), *((f"env.{name}", text) for name, text in self.env.items())):
            odd = next((name for name in _BRACES.findall(text) if name not in names), None)
            if odd == "arguments":
                raise ValueError(
                    f"{where} has {ARGUMENTS} inside another argument: make it a separate argument of `command`"
                )
            if odd:
                raise ValueError(
                    f"{where} has the unknown name {{{odd}}}: use {', '.join(names)}, or add it to program.values"
                )
        cut = next((name for name, value in self.values.items() if isinstance(value, str) and "\0" in value), None)
        if cut:
            raise ValueError(f"values.{cut} has a NUL character, which a command cannot contain: remove it")
        taken = next((name for name in self.values if name in (*OWN, "arguments")), None)
        if taken:
            raise ValueError(f"values.{taken} is a name that hpcbench sets: choose another name")
        return self

    def uses(self, name: str) -> bool:
        """Return whether the command or an environment variable contains the name in braces."""
        return any(name in _BRACES.findall(text) for text in (self.command, *self.env.values()))

    @model_validator(mode="after")
    def _braces_use_every_value(self) -> "Program":
        for name in self.values:
            if not self.uses(name):
                raise ValueError(f"values.{name} is not used: write {{{name}}} in command or env, or remove it")
        return self

    def fill_command(self, values: Mapping[str, object], arguments: Sequence[str] = ()) -> list[str]:
        """Return the command's argument list with substituted names.

        Parameters
        ----------
        values
            Values of the names in braces, in addition to the values in the study.
        arguments
            Arguments of the scheme. The arguments replace {arguments}, or are appended if the command does not contain
            {arguments}.
        """
        command = shlex.split(self.command)
        place = command.index(ARGUMENTS) if ARGUMENTS in command else len(command)
        command[place : place + 1] = arguments
        return [fill_braces(argument, {**self.values, **values}) for argument in command if argument != ARGUMENTS]

    def fill_environment(self, values: Mapping[str, object]) -> dict[str, str]:
        """Return the program's environment variables with substituted names."""
        return {name: fill_braces(text, {**self.values, **values}) for name, text in self.env.items()}


def fill_braces(text: str, values: Mapping[str, object]) -> str:
    """Substitute names in braces. Other braces are unchanged, because a command may contain JSON."""
    return _BRACES.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], text)


class ProgramRun(Section):
    """A run of a user's program: the content of its run.json."""

    model_config = ConfigDict(populate_by_name=True)

    version: Literal[1] = Field(1, alias="schema", description="Version of the file format.")
    study: Name
    site: Line
    run: Line
    repeat: Count
    pairing: Line
    cell: dict[str, Scalar]
    program: Program
    directory: File
    """Working directory of the program, an absolute path."""
    scheme: NamedScheme
    ranks: Count
    threads: Count
    oversubscribe: bool
    device: Literal["cpu", "cuda"]
    shape: RankShape
    peak_tflops: Annotated[dict[Precision, float], Field(default_factory=dict)]

    @property
    def interposed(self) -> bool:
        """Whether hpcbench intercepts PyTorch calls. The baseline runs the program unchanged."""
        return self.scheme.algorithm != "native"

    def content(self) -> dict[str, Any]:
        """Return the content of run.json, with all keys."""
        return self.model_dump(mode="json", by_alias=True)


def load(path: Path) -> ProgramRun:
    """Read the run file of a program.

    Raises
    ------
    UserError
        The file is missing, is not JSON, or is not the run file of a program.
    """
    try:
        return ProgramRun.model_validate(read_run_data(path))
    except ValidationError as error:
        raise UserError(f"{make_user_error(error, ProgramRun, lambda _: str(path))}; {WRITTEN_BY}") from None
