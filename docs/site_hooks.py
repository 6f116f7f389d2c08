"""MkDocs hooks that add the stored results, which are outside of docs/, to the site of `make docs`."""

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
    """Shorten links to stored results by one directory level, because the site has fewer levels than the checkout."""
    here = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"]({here}../results/", f"]({here}results/")
