"""Verdicts as JUnit XML, as Jenkins, GitLab and others read it: a test case for each verdict."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection

from measure.verdict_files.options import STANDS_FOR
from measure.verdict_files.verdict_table import Invalidation, Judgement, VerdictTable

# XML 1.0, production 2: characters that no document may have, escaped or not.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(table: VerdictTable, failing: Collection[str]) -> str:
    """The file's text. ``failing``: verdicts that are failures.

    Other open verdicts are skipped tests; invalidations that fail with these verdicts, and runs that failed, are
    errors, other invalidations skipped tests; invalidations and findings, the gravest first, are the output of the
    suite.
    """
    cases = [_invalidation_case(one, failing) for one in table.invalidations]
    cases += [_case(one, failing) for one in table.judgements]
    for number, failure in enumerate(table.failures, start=1):
        case = ET.Element("testcase", classname="runs", name=f"failed run {number}", time="0")
        ET.SubElement(case, "error", message=_clean(failure), type="run failed")
        cases.append(case)
    counts = {
        key: str(sum(case.find(tag) is not None for case in cases))
        for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    counts["tests"] = str(len(cases))
    suite = ET.Element("testsuite", {"name": _clean(table.title), "time": "0", **counts})
    suite.extend(cases)
    said = (*(one.text for one in table.invalidations), *table.findings)
    if said:
        ET.SubElement(suite, "system-out").text = _clean("\n".join(said))
    suites = ET.Element("testsuites", counts)
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _case(one: Judgement, failing: Collection[str]) -> ET.Element:
    case = ET.Element("testcase", classname=_clean(one.subject), name=_clean(one.what), time="0")
    message = _clean(f"{one.verdict}: {one.text}")
    if one.verdict in failing:
        ET.SubElement(case, "failure", message=message, type=one.verdict).text = message
    elif one.verdict in STANDS_FOR["inconclusive"]:
        ET.SubElement(case, "skipped", message=message)
    else:
        ET.SubElement(case, "system-out").text = message
    return case


def _invalidation_case(one: Invalidation, failing: Collection[str]) -> ET.Element:
    kind = "controls" if one.is_control else "figures and verdicts"
    case = ET.Element("testcase", classname=kind, name=_clean(one.name), time="0")
    if one.fails(failing):
        ET.SubElement(case, "error", message=_clean(one.text), type="invalid").text = _clean(one.text)
    else:
        ET.SubElement(case, "skipped", message=_clean(one.text))
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
