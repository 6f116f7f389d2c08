"""JUnit XML reports for CI servers, with one test case per run.

A run that violates a threshold is a ``failure``. A run that failed or has no value for a threshold is an ``error``. A
run that has not ended is ``skipped``. A threshold with a confidence level is a separate case.
"""

from collections.abc import Sequence
from xml.etree import ElementTree

from hpcbench.contract.state import BAD, OPEN
from hpcbench.contract.text import make_printable
from hpcbench.report.build import Section
from hpcbench.report.compare import Cell
from hpcbench.report.measures import Measures
from hpcbench.report.thresholds import ThresholdTest, check_thresholds


def write(sections: Sequence[Section]) -> str:
    """Return an XML document with one test suite per submission."""
    suites = ElementTree.Element("testsuites", name="hpcbench")
    for submission, cells in sections:
        plan = submission.plan
        suite = ElementTree.SubElement(suites, "testsuite", name=_clean(f"{plan.study} on {plan.site}"))
        if submission.root:
            properties = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(properties, "property", name="directory", value=_clean(str(submission.root)))
        for cell in cells:
            tests = check_thresholds([cell], plan.thresholds)
            for measures in cell.runs:
                of_run = [test for test in tests if test.threshold.confidence is None and test.runs == (measures,)]
                _write_case(suite, cell, measures, of_run)
            for test in tests:
                if test.threshold.confidence is not None:
                    _write_threshold(suite, cell, test)
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


def _write_case(suite: ElementTree.Element, cell: Cell, measures: Measures, tests: list[ThresholdTest]) -> None:
    run = measures.run
    # The format cannot represent an unknown time.
    case = _start_case(suite, cell, measures, run.id, run.seconds or 0.0)
    log = str(run.log.path) if run.log else ""
    if run.state in OPEN:
        ElementTree.SubElement(case, "skipped", message=_clean(run.state))
    elif run.state in BAD:
        error = ElementTree.SubElement(case, "error", type=run.state, message=_clean(run.verdict.reason or run.state))
        error.text = _clean(run.verdict.where or log)
    else:
        _mark_broken(case, [test for test in tests if not test.kept], log)


def _write_threshold(suite: ElementTree.Element, cell: Cell, test: ThresholdTest) -> None:
    """Write a separate case for a threshold on the mean of several runs."""
    name = f"{test.runs[0].run.scheme}: {test.threshold.quantity}"
    case = _start_case(suite, cell, test.runs[0], name, 0.0)
    _mark_broken(case, [] if test.kept else [test], "")


def _start_case(
    suite: ElementTree.Element, cell: Cell, measures: Measures, name: str, seconds: float
) -> ElementTree.Element:
    run = measures.run
    where = ".".join([run.study, run.site, *(f"{key}={value}" for key, value in cell.values.items())])
    return ElementTree.SubElement(suite, "testcase", classname=_clean(where), name=_clean(name), time=f"{seconds:.3f}")


def _mark_broken(case: ElementTree.Element, broken: list[ThresholdTest], log: str) -> None:
    """Add a failure or error for unmet thresholds. Violated thresholds take precedence over unknown values."""
    broken = sorted(broken, key=lambda test: test.state != "violated")
    if broken:
        kind = "failure" if broken[0].state == "violated" else "error"
        result = ElementTree.SubElement(case, kind, type="threshold", message=_clean(str(broken[0])))
        result.text = "\n".join(_clean(line) for line in (*map(str, broken), log) if line)


def _clean(text: str) -> str:
    """Replace characters that XML 1.0 does not allow."""
    return make_printable(text, 2000)
