"""JUnit's XML, which CI systems show: one test suite per area.

"failed" is a failure; "inconclusive" is an error, because the case could not be run; "not applicable" is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from ..outcome import Result, Verdict
from . import summary

# Characters that XML 1.0 does not have, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(results: Sequence[Result]) -> str:
    """The document."""
    root = ElementTree.Element("testsuites", name="moldau conformance")
    for area, counts in summary.by_area(results).items():
        of_area = [result for result in results if result.case.area == area]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=area,
            tests=str(len(of_area)),
            failures=str(counts[Verdict.FAILED]),
            errors=str(counts[Verdict.INCONCLUSIVE]),
            skipped=str(counts[Verdict.NOT_APPLICABLE]),
            time=f"{sum(result.seconds for result in of_area):.3f}",
        )
        for result in of_area:
            _add(suite, result)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add(suite: ElementTree.Element, result: Result) -> None:
    case = result.case
    element = ElementTree.SubElement(suite, "testcase", classname=case.area, name=case.id, time=f"{result.seconds:.3f}")
    reason = _NOT_XML.sub("�", result.reason)
    if result.verdict is Verdict.FAILED:
        failure = ElementTree.SubElement(element, "failure", message=reason)
        failure.text = _NOT_XML.sub("�", f"{case.title}\n{case.why}\nSource: {case.source}")
    elif result.verdict is Verdict.INCONCLUSIVE:
        ElementTree.SubElement(element, "error", message=reason)
    elif result.verdict is Verdict.NOT_APPLICABLE:
        ElementTree.SubElement(element, "skipped", message=reason)
