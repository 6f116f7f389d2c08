"""The site of `make docs` also shows what lies outside docs/: it has copies of stored results, and links lead there."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Add every stored result."""
    for path in sorted((ROOT / "results" / "reference").rglob("*")):
        if path.is_file():
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at results to where the site has them: one directory nearer than in the checkout."""
    here = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"]({here}../results/", f"]({here}results/")
