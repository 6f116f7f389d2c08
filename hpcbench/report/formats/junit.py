"""The report as JUnit's XML, for servers that run studies at night, with a case for each run.

A run that broke a threshold is a ``failure``. A run that is no measurement, or that lacks the value for a threshold, is
an ``error``. A run that has not ended is ``skipped``.
"""

from collections.abc import Sequence
from xml.etree import ElementTree

from hpcbench.contract.state import BAD, OPEN
from hpcbench.contract.text import make_printable
from hpcbench.report.build import Section
from hpcbench.report.compare import Cell
from hpcbench.report.measures import Measures
from hpcbench.report.thresholds import Judged, judge


def write(sections: Sequence[Section]) -> str:
    """Return a document with a suite for each submission."""
    suites = ElementTree.Element("testsuites", name="hpcbench")
    for submission, cells in sections:
        plan = submission.plan
        suite = ElementTree.SubElement(suites, "testsuite", name=_clean(f"{plan.study} on {plan.site}"))
        if submission.root:
            properties = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(properties, "property", name="directory", value=_clean(str(submission.root)))
        judged: dict[str, list[Judged]] = {}
        for one in judge(cells, plan.thresholds):
            judged.setdefault(one.run.run.id, []).append(one)
        for cell in cells:
            for measures in cell.runs:
                _case(suite, cell, measures, judged.get(measures.run.id, []))
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        for kind in ("failure", "error", "skipped"):
            number = sum(case.find(kind) is not None for case in cases)
            suite.set({"failure": "failures", "error": "errors"}.get(kind, kind), str(number))
        suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
        if plan.time:
            suite.set("timestamp", _clean(plan.time.removesuffix("Z")))
    ElementTree.indent(suites, " ")
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, cell: Cell, measures: Measures, judged: list[Judged]) -> None:
    run = measures.run
    where = ".".join([run.study, run.site, *(f"{key}={value}" for key, value in cell.values.items())])
    # The format has no word for a time that nobody knows.
    time = f"{run.seconds or 0.0:.3f}"
    case = ElementTree.SubElement(suite, "testcase", classname=_clean(where), name=_clean(run.id), time=time)
    log = str(run.log.path) if run.log else ""
    if run.state in OPEN:
        ElementTree.SubElement(case, "skipped", message=_clean(run.state))
    elif run.state in BAD:
        error = ElementTree.SubElement(case, "error", type=run.state, message=_clean(run.verdict.reason or run.state))
        error.text = _clean(run.verdict.where or log)
    else:
        wrong = [one for one in judged if not one.kept]
        # JUnit knows one result a case: what is known to be broken goes before what is not known.
        wrong.sort(key=lambda one: one.value is None)
        if wrong:
            kind = "error" if wrong[0].value is None else "failure"
            found = ElementTree.SubElement(case, kind, type="threshold", message=_clean(str(wrong[0])))
            found.text = "\n".join(_clean(line) for line in (*map(str, wrong), log) if line)


def _clean(words: str) -> str:
    """Text that XML 1.0 can hold."""
    return make_printable(words, 2000)
