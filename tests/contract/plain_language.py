"""Plain-language rules that a program can check, for code, messages and documentation.

Run ``python tests/contract/plain_language.py [--figures | --verbs] [PATH ...]``. Without an option, the program lists
the offenses in the given paths. ``--figures`` prints the fraction of meaningless local names, the fraction of functions
that begin with a verb, and the public types that share a name. ``--verbs`` lists the functions that do not begin with a
verb.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = {Path(__file__).resolve().with_name(name) for name in ("plain_language.py", "test_plain_language.py")}
"""Files that contain the phrases to avoid, because they define and test the rules."""
CHECKED = ("hpcbench", "benchmarks", "docs", "studies", "tests", "README.md", "CHANGELOG.md")
"""Directories and pages that must follow every rule."""

EMPTY_NAMES = {
    *("found", "one", "words", "own", "said", "known", "kept", "whole", "rest", "made", "told"),
    *("thing", "things", "stuff"),
}
"""Names of locals, parameters and functions that do not describe the value."""

PHRASES = {
    r"anew": "again",
    r"hand(s|ed|ing)? in": "submit",
    r"hand(s|ed|ing)? (it|them|jobs?) in": "submit",
    r"so many(?! (?:that|as))": "n, the number of",
    r"by (which|whom)": "two sentences",
    r"of (which|whom)": "two sentences, or `whose`",
    r"is no (?!(longer|more|less|worse|better|slower|faster|larger|smaller|such|reason|need)\b)[a-z]+": "is not a",
    r"mend(s|ed|ing)?": "fix",
    r"parcels?": "submission, dispatch plan",
    r"surroundings": "environment",
    r"(samples|tokens|steps|bytes|bits|GB|MB|images|messages|times) a second": "per second",
    r"alike": "identical, both",
    r"go(es|ing)? on|went on": "continue, resume",
    r"not shown": "inconclusive, not significant",
    r"shown to be (faster|slower|better|worse)": "significantly faster",
    r"plain casts?": "cast to bf16",
    r"beside": "next to, compared with, in addition to",
    r"what it (holds|knows|says|has|is) ": "subject, verb, object",
    r"nothing twice|nobody": "name the subject",
    r"thus|hence|whence|thereof|therein|wherein|whereby|hereby|hither|thither": "modern English",
    r"in so far|insofar|save for|as good as|or else": "modern English",
    r"(is|are|was|were) told|tells?|knows?": "reports, contains, detects",
    r"(ranks?|programs?|process(es)?|jobs?|node|workers?|runs?|threads?) who": "that",
    r"keepers?": "message sampler",
}
"""Regular expressions of phrases to avoid, and the replacement for each."""
_PHRASE = {re.compile(rf"(?<![\w-]){pattern}(?![\w=-])", re.IGNORECASE): advice for pattern, advice in PHRASES.items()}
_ANY_PHRASE = re.compile(rf"(?<![\w-])(?:{'|'.join(PHRASES)})(?![\w=-])", re.IGNORECASE)
"""One pattern for all phrases, which quickly skips lines without any phrase."""

STORED_PHRASES = ("a plain cast of all traffic to 16 bits",)
"""Phrases in stored results that are allowed because the documentation extracts figures from these results."""

VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text("utf-8").split())
"""First words of function names that are verbs, or that begin a predicate."""


NOT_FUNCTIONS = {"property", "cached_property", "setter", "computed_field", "override"} | {
    *("field_validator", "model_validator", "field_serializer", "model_serializer"),
}
"""Decorators of methods whose names are nouns or are prescribed by an interface."""


@dataclass(frozen=True, slots=True)
class Offense:
    """A violation of a rule."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def list_python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """List the Python files in some paths, sorted."""
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or a public class, or an argument of a function."""

    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Contents:
    """Text and names of a Python file."""

    strings: list[tuple[int, str]]
    """String literals that contain a space, with their lines."""
    locals: list[Definition]
    """Names that assignments, loops, comprehensions and ``with`` bind."""
    functions: list[Definition]
    """Functions and methods, without properties, overrides and magic methods."""
    arguments: list[Definition]
    types: list[Definition]
    """Public classes of the module."""


@cache
def read_contents(path: Path) -> Contents:
    """Read a Python file. The syntax tree is walked only once, because walking it takes most of the time."""
    tree = ast.parse(path.read_text("utf-8"))
    contents = Contents([], [], [], [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and " " in node.value:
                contents.strings.append((node.lineno, node.value))
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                contents.locals.append(Definition(node.lineno, node.id))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            decorators = {ast.unparse(item).partition("(")[0].rpartition(".")[2] for item in node.decorator_list}
            if not decorators & NOT_FUNCTIONS:
                contents.functions.append(Definition(node.lineno, node.name))
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                contents.arguments.extend(Definition(argument.lineno, argument.arg) for argument in arguments)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            contents.types.append(Definition(node.lineno, node.name))
    return contents


def list_pages(paths: Iterable[Path]) -> Iterator[Path]:
    """List the Markdown pages in some paths, sorted."""
    for path in paths:
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def check_phrases(path: Path, text: str, first_line: int = 1) -> Iterator[Offense]:
    """Find phrases of `PHRASES` in a text that begins at a given line of a file."""
    for offset, line in enumerate(text.splitlines()):
        if not _ANY_PHRASE.search(line):
            continue
        prose = re.sub(r"`[^`]*`|<!--.*?-->|https?://\S+", "", line)
        for phrase in STORED_PHRASES:
            prose = prose.replace(phrase, "")
        for pattern, advice in _PHRASE.items():
            for match in pattern.finditer(prose):
                yield Offense(path, first_line + offset, f'"{match[0]}": write {advice}')


def check_page(path: Path) -> Iterator[Offense]:
    """Find phrases in the prose of a Markdown page, outside its code blocks."""
    prose = re.sub(
        r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), path.read_text("utf-8"), flags=re.S | re.M
    )
    yield from check_phrases(path, prose)


def check_strings(path: Path) -> Iterator[Offense]:
    """Find phrases in the docstrings, messages and other sentences of a module."""
    for line, text in read_contents(path).strings:
        yield from check_phrases(path, text, line)


def check_comments(path: Path) -> Iterator[Offense]:
    """Find phrases in the comments of a module."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if match := re.search(r"(?:^|\s)# (.*)", line):
            yield from check_phrases(path, match[1], number)


def is_verb_first(name: str) -> bool:
    """Return whether the name of a function begins with a verb."""
    return name.lstrip("_").split("_")[0].lower() in VERBS


def check_names(path: Path) -> Iterator[Offense]:
    """Find meaningless names of locals, parameters and functions."""
    contents = read_contents(path)
    for kind, definitions in (
        ("name", contents.locals),
        ("function", contents.functions),
        ("parameter", contents.arguments),
    ):
        for definition in definitions:
            if definition.name.lstrip("_") in EMPTY_NAMES:
                yield Offense(path, definition.line, f"{kind} `{definition.name}` says nothing about the value")


def check_code(path: Path) -> Iterator[Offense]:
    """Find every offense in a Python file."""
    yield from check_strings(path)
    yield from check_comments(path)
    yield from check_names(path)


def list_types(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Map the name of each public class in some paths to the files that define it."""
    files = defaultdict(list)
    for path in list_python_files(paths):
        for definition in read_contents(path).types:
            files[definition.name].append(f"{path.relative_to(ROOT)}:{definition.line}")
    return dict(files)


def list_duplicate_types(paths: Iterable[Path]) -> dict[str, list[str]]:
    """List the names shared by several public classes in some paths."""
    return {name: files for name, files in list_types(paths).items() if len(files) > 1}


def measure_names(paths: Iterable[Path]) -> dict[str, float]:
    """Measure the fractions of meaningless local names and of functions that begin with a verb."""
    names: Counter[bool] = Counter()
    functions: Counter[bool] = Counter()
    for path in list_python_files(paths):
        contents = read_contents(path)
        names.update(definition.name.lstrip("_") in EMPTY_NAMES for definition in contents.locals)
        functions.update(is_verb_first(definition.name) for definition in contents.functions)
    return {
        "empty local names": names[True] / max(1, names.total()),
        "functions that begin with a verb": functions[True] / max(1, functions.total()),
    }


def check(paths: Iterable[Path]) -> Iterator[Offense]:
    """Find every offense in the Python files and pages of some paths."""
    paths = list(paths)
    for path in paths:
        if path.is_dir() or path.suffix == ".py":
            for file in list_python_files([path]):
                if file not in RULES:
                    yield from check_code(file)
        if path.is_dir() or path.suffix == ".md":
            for file in list_pages([path]):
                yield from check_page(file)


def main() -> int:
    """Print the offenses, or the figures, of the paths on the command line."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    paths = [Path(argument).resolve() for argument in arguments] or [ROOT / name for name in CHECKED]
    if "--figures" in sys.argv:
        for name, share in measure_names(paths).items():
            print(f"{share:7.2%}  {name}")
        for name, files in sorted(list_duplicate_types([ROOT / "hpcbench"]).items()):
            print(f"{len(files)} types are called {name}: {', '.join(files)}")
        return 0
    if "--verbs" in sys.argv:
        for path in list_python_files(paths):
            for function in read_contents(path).functions:
                if not is_verb_first(function.name):
                    print(Offense(path, function.line, function.name))
        return 0
    offenses = list(check(paths))
    print(*offenses, f"{len(offenses)} offenses", sep="\n")
    return bool(offenses)


if __name__ == "__main__":
    sys.exit(main())
