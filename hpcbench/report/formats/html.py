"""A report as one page for a browser."""

from typing import TYPE_CHECKING

from hpcbench.report.page.write import write as write_page

if TYPE_CHECKING:
    from hpcbench.report.formats import Request


def write(request: "Request") -> str:
    """One file that needs no other: tables, plots, provenance and the lines that they were read from."""
    directory = request.output.parent if request.output else None
    return write_page(request.document(figures=True), [submission for submission, _ in request.sections], directory)
