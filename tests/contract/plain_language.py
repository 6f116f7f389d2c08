"""Rules of plain language that a program can check, for code, messages and documentation.

Run ``python tests/contract/plain_language.py [--figures | --verbs] [PATH ...]``. Without an option it lists the
offenses below some paths. ``--figures`` prints the shares of empty local names and of functions that begin with a verb,
and the public types that share a name. ``--verbs`` lists the functions whose names begin with no verb.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("hpcbench", "benchmarks", "docs", "tests/fakes", "tests/slurm_on_one_machine")
"""Directories whose Python files follow every rule. Tests follow the rules on phrases only in their documentation."""

EMPTY_NAMES = {
    *("found", "one", "words", "own", "said", "known", "kept", "whole", "rest", "made", "told"),
    *("thing", "things", "stuff"),
}
"""Names of locals, parameters and functions that say nothing about the value."""

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
"""Regular expressions of phrases that are not written, and what to write for each."""
_PHRASE = {re.compile(rf"(?<![\w-]){pattern}(?![\w-])", re.IGNORECASE): advice for pattern, advice in PHRASES.items()}

STORED_VALUES = {
    "not shown",
    "not shown (too few repeats)",
    "worse loss, speed not shown",
    "faster, loss not shown (too few repeats)",
}
"""Values of stored reports, which keep their words."""

VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text("utf-8").split())
"""First words of function names that are verbs, or that begin a predicate."""


NOT_FUNCTIONS = {"property", "cached_property", "setter", "computed_field", "override"} | {
    *("field_validator", "model_validator", "field_serializer", "model_serializer"),
}
"""Decorators of methods whose names are nouns, or not ours to choose."""


@dataclass(frozen=True, slots=True)
class Offense:
    """A place that breaks a rule."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def list_python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """List the Python files below some paths, sorted."""
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def list_pages(paths: Iterable[Path]) -> Iterator[Path]:
    """List the Markdown pages below some paths, sorted."""
    for path in paths:
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def check_phrases(path: Path, text: str, first_line: int = 1) -> Iterator[Offense]:
    """Find phrases of `PHRASES` in a text that begins at a line of a file."""
    for offset, line in enumerate(text.splitlines()):
        prose = re.sub(r"`[^`]*`|<!--.*?-->|https?://\S+", "", line)
        for pattern, advice in _PHRASE.items():
            for match in pattern.finditer(prose):
                yield Offense(path, first_line + offset, f'"{match[0]}": write {advice}')


def check_page(path: Path) -> Iterator[Offense]:
    """Find phrases in the prose of a Markdown page, outside of its code blocks."""
    prose = re.sub(
        r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), path.read_text("utf-8"), flags=re.S | re.M
    )
    yield from check_phrases(path, prose)


def check_strings(path: Path, tree: ast.AST) -> Iterator[Offense]:
    """Find phrases in the docstrings, messages and other sentences of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            if node.value in STORED_VALUES:
                continue
            yield from check_phrases(path, node.value, node.lineno)


def check_comments(path: Path, text: str) -> Iterator[Offense]:
    """Find phrases in the comments of a module."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.search(r"(?:^|\s)# (.*)", line):
            yield from check_phrases(path, match[1], number)


def list_local_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """List the names that assignments, loops, comprehensions and ``with`` bind, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def list_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """List the functions and methods of a module, without properties, overrides and magic methods."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            decorators = {ast.unparse(item).partition("(")[0].rpartition(".")[2] for item in node.decorator_list}
            if not decorators & NOT_FUNCTIONS:
                yield node


def is_verb_first(name: str) -> bool:
    """Whether the name of a function begins with a verb."""
    return name.lstrip("_").split("_")[0].lower() in VERBS


def check_names(path: Path, tree: ast.AST) -> Iterator[Offense]:
    """Find empty names of locals, parameters and functions."""
    for line, name in list_local_names(tree):
        if name.lstrip("_") in EMPTY_NAMES:
            yield Offense(path, line, f"name `{name}` says nothing about the value")
    for function in list_functions(tree):
        if function.name.lstrip("_") in EMPTY_NAMES:
            yield Offense(path, function.lineno, f"function `{function.name}` says nothing about its value")
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            if argument.arg in EMPTY_NAMES:
                yield Offense(path, argument.lineno, f"parameter `{argument.arg}` says nothing about the value")


def check_code(path: Path) -> Iterator[Offense]:
    """Find every offense of a Python file."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    yield from check_strings(path, tree)
    yield from check_comments(path, text)
    yield from check_names(path, tree)


def list_types(paths: Iterable[Path]) -> dict[str, list[str]]:
    """List the public classes of some paths: name -> files."""
    files = defaultdict(list)
    for path in list_python_files(paths):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return dict(files)


def list_duplicate_types(paths: Iterable[Path]) -> dict[str, list[str]]:
    """List the names that several public classes of some paths share."""
    return {name: files for name, files in list_types(paths).items() if len(files) > 1}


def measure(paths: Iterable[Path]) -> dict[str, float]:
    """Measure the share of empty local names and of functions that begin with a verb."""
    names: Counter[bool] = Counter()
    functions: Counter[bool] = Counter()
    for path in list_python_files(paths):
        tree = ast.parse(path.read_text("utf-8"))
        names.update(name.lstrip("_") in EMPTY_NAMES for _, name in list_local_names(tree))
        functions.update(is_verb_first(function.name) for function in list_functions(tree))
    return {
        "empty local names": names[True] / max(1, names.total()),
        "functions that begin with a verb": functions[True] / max(1, functions.total()),
    }


def check(paths: Iterable[Path]) -> Iterator[Offense]:
    """Find every offense in the Python files and pages below some paths."""
    paths = list(paths)
    for path in paths:
        if path.is_dir() or path.suffix == ".py":
            for file in list_python_files([path]):
                yield from check_code(file)
        if path.is_dir() or path.suffix == ".md":
            for file in list_pages([path]):
                yield from check_page(file)


def main() -> int:
    """Print the offenses, or the figures, of the paths on the command line."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    paths = [Path(argument).resolve() for argument in arguments] or [ROOT / directory for directory in CODE]
    if "--figures" in sys.argv:
        for name, share in measure(paths).items():
            print(f"{share:7.2%}  {name}")
        for name, files in sorted(list_duplicate_types([ROOT / "hpcbench"]).items()):
            print(f"{len(files)} types are called {name}: {', '.join(files)}")
        return 0
    if "--verbs" in sys.argv:
        for path in list_python_files(paths):
            for function in list_functions(ast.parse(path.read_text("utf-8"))):
                if not is_verb_first(function.name):
                    print(Offense(path, function.lineno, function.name))
        return 0
    offenses = list(check(paths))
    print(*offenses, f"{len(offenses)} offenses", sep="\n")
    return bool(offenses)


if __name__ == "__main__":
    sys.exit(main())
