"""Check of a site's templates for lines that Jinja would silently ignore."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.contract.problems import show
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.resources import data_dir

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import Template


def check_overrides(directory: Path, environment: "Environment") -> None:
    """Refuse templates with lines that would not appear in any job script.

    Jinja silently ignores blocks that no parent template defines, text outside blocks in a child template, and unused
    files. Syntax errors are reported later, when a template is rendered.

    Parameters
    ----------
    directory
        Template directory of the site.
    environment
        Environment that loads templates from `directory` first, then from hpcbench.

    Raises
    ------
    UserError
        A line would be ignored. The message contains the file and line number.
    """
    from jinja2 import TemplateError

    base_names = [path.name for path in data_dir("templates").iterdir()]
    trees: dict[Path, Template] = {}
    for path in sorted(directory.rglob("*.j2")):
        try:
            trees[path] = _parse(path.relative_to(directory).as_posix(), environment)
        except (TemplateError, UnicodeDecodeError):
            continue
    used = {name for tree in trees.values() for name in _references(tree)}
    for path, tree in trees.items():
        name = path.relative_to(directory).as_posix()
        if name not in base_names and name not in used:
            raise UserError(f"{shown_path(path)}: no script uses this template{_suggest(name, base_names)}")
        if parent := _parent(tree):
            try:
                blocks = _block_names(parent, environment)
            except TemplateError:
                continue
            _check_child(path, tree, blocks)


def _check_child(path: Path, tree: "Template", blocks: set[str]) -> None:
    """Refuse unknown blocks and text outside blocks in a child template."""
    from jinja2 import nodes

    for node in _outer_nodes(tree.body):
        if isinstance(node, nodes.Block) and node.name not in blocks:
            raise UserError(
                f"{shown_path(path)}:{node.lineno}: the extended template has no block {show(node.name)}"
                f"{_suggest(node.name, sorted(blocks))}"
            )
        if isinstance(node, nodes.Output):
            for part in node.nodes:
                text, line = "{{ ... }}", part.lineno
                if isinstance(part, nodes.TemplateData):
                    text = part.data.strip()
                    line += part.data[: part.data.index(text)].count("\n")
                if text:
                    raise UserError(
                        f"{shown_path(path)}:{line}: {show(text.splitlines()[0])} is outside of all blocks, so Jinja "
                        "ignores it: put it into a block of the extended template"
                    )


def _outer_nodes(body: list[Any]) -> Iterator[Any]:
    """Yield all syntax tree nodes outside blocks, including nodes in branches and loops."""
    for node in body:
        yield node
        for name in ("body", "elif_", "else_"):
            if type(node).__name__ in ("If", "For", "With", "Scope", "ScopedEvalContextModifier"):
                yield from _outer_nodes(getattr(node, name, None) or [])


def _block_names(name: str, environment: "Environment") -> set[str]:
    """Return the block names of a template and its ancestors."""
    from jinja2 import nodes

    tree = _parse(name, environment)
    names = {block.name for block in tree.find_all(nodes.Block)}
    parent = _parent(tree)
    return names | _block_names(parent, environment) if parent else names


def _parse(name: str, environment: "Environment") -> "Template":
    assert environment.loader
    source, filename, _ = environment.loader.get_source(environment, name)
    return environment.parse(source, name, filename)


def _parent(tree: "Template") -> str | None:
    """Return the name of the parent template if it is a constant."""
    from jinja2 import nodes

    node = tree.find(nodes.Extends)
    return str(node.template.value) if node and isinstance(node.template, nodes.Const) else None


def _references(tree: "Template") -> set[str]:
    from jinja2.meta import find_referenced_templates

    return {name for name in find_referenced_templates(tree) if name}


def _suggest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f" (did you mean {near[0]!r}?)" if near else f": use one of {', '.join(sorted(names))}"
