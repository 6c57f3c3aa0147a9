"""The JUnit report: one test per floor, which fails if it is missed, and one per sample, which never fails."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from gaugeway.records import Evaluation, Failed, Score, Skipped
from monitors.offline.comparison import Floor
from monitors.offline.reports import NONE, Extras
from monitors.offline.results import Measure, Run

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(run: Run, extras: Extras = NONE) -> str:
    """Return the report. Failed evaluations are errors, skipped ones are skipped."""
    root = ET.Element("testsuites", name=fit(f"gaugeway evaluate {run.source}"), time=f"{run.seconds:.3f}")
    if extras.floors:
        _close(root, "floors", [_floor(floor) for floor in extras.floors])
    for measure in run.measures:
        found = [(row.sample.id, row.evaluations.get(measure.name)) for row in run.rows]
        _close(root, measure.name, [_case(name, evaluation, measure) for name, evaluation in found if evaluation])
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _close(root: ET.Element, name: str, cases: list[ET.Element]) -> None:
    suite = ET.SubElement(root, "testsuite", name=fit(name), tests=str(len(cases)))
    for plural, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    suite.extend(cases)


def _floor(floor: Floor) -> ET.Element:
    case = ET.Element("testcase", classname="floors", name=fit(f"{floor.metric} {floor.limit:g}"))
    if not floor.met:
        ET.SubElement(case, "failure", message=fit(floor.reason))
    return case


def _case(name: str, evaluation: Evaluation, measure: Measure) -> ET.Element:
    case = ET.Element("testcase", classname=fit(measure.name), name=fit(name), time=f"{evaluation.seconds:.3f}")
    match evaluation.outcome:
        case Score(value, reason):
            ET.SubElement(case, "system-out").text = fit(f"{value:.4f} {reason}".rstrip())
        case Skipped(reason):
            ET.SubElement(case, "skipped", message=fit(reason))
        case Failed(error, detail):
            ET.SubElement(case, "error", type=fit(error), message=fit(detail or error))
    return case


def fit(text: str) -> str:
    """Replace characters that XML cannot represent."""
    return _FORBIDDEN.sub("?", text)
