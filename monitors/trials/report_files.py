"""A trial's report as a file: JSON, Markdown, HTML, or JUnit XML for CI."""

from __future__ import annotations

from functools import cache
from xml.etree import ElementTree as ET

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from monitors.offline.reports.documents import text_in_markdown
from monitors.offline.reports.junit import fit
from monitors.trials.desk import TrialReport

SUFFIXES = (".html", ".json", ".md", ".xml")


def sentence_of(report: TrialReport) -> str:
    """Return the verdict in one sentence."""
    app = report.app
    if report.watch and report.verdict != "not yet":
        by = next((arm.result.decided_by for arm in report.arms if arm.result.verdict == report.verdict), None)
        is_worse = report.verdict == "do not ship"
        return f"The switch made the answers of {app} worse ({by})" if is_worse else f"The switch of {app} did no harm"
    if report.verdict == "ship":
        arm = next(arm for arm in report.arms if arm.result.verdict == "ship")
        more = f"not worse by more than {report.margin:g}"
        if arm.result.superior or arm.result.equal:
            more = "better" if arm.result.superior else f"within {report.margin:g} of the live ones"
        return f"Ship {arm.name}: its answers to the questions of {app} are {more}"
    if report.verdict == "do not ship":
        by = next(arm.result.decided_by for arm in report.arms)
        return f"Do not ship: the answers to the questions of {app} get worse ({by})"
    needed = max((arm.result.more for arm in report.arms if arm.result.more is not None), default=None)
    more = "exchange" if needed == 1 else "exchanges"
    if report.state == "ended":
        return f"Not decided: the trial ended ({report.why})"
    return "Not decided yet" if needed is None else f"Not decided yet: about {needed:,} more {more} needed"


def written(report: TrialReport, suffix: str, *, plain: bool = False) -> str:
    """Return the text of a report file; `plain` for a terminal. Raises ValueError for another suffix than SUFFIXES."""
    if suffix == ".json":
        return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"
    if suffix == ".xml":
        return _junit(report)
    if suffix not in SUFFIXES:
        raise ValueError(f"{suffix!r}: a report ends in {', '.join(SUFFIXES)}")
    template = _environment(plain=plain).get_template(f"report{suffix}.j2")
    return template.render(r=report, sentence=sentence_of(report))


@cache
def _environment(*, plain: bool) -> Environment:
    made = Environment(
        loader=PackageLoader("monitors.trials", "templates"),
        autoescape=select_autoescape(("html.j2",)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= {"num": _number, "md": str if plain else text_in_markdown}
    return made


def _number(value: float | None, sign: bool = False) -> str:  # noqa: FBT001, FBT002 - a template's filter
    value = None if value is None else value + 0.0  # no -0
    return "-" if value is None else f"{value:+.3g}" if sign else f"{value:.3g}"


def _junit(report: TrialReport) -> str:
    """A test for each candidate: it fails where the candidate must not ship, and is an error while that is open."""
    said = [arm.result.verdict for arm in report.arms]
    about = {
        "name": fit(f"gaugeway trial {report.name}"),
        "tests": str(len(said)),
        "errors": str(said.count("not yet")),
    }
    about |= {"failures": str(said.count("do not ship")), "skipped": "0"}
    suite = ET.Element("testsuite", about)
    for arm in report.arms:
        case = ET.SubElement(suite, "testcase", classname=fit(report.name), name=fit(arm.name))
        if arm.result.verdict == "do not ship":
            ET.SubElement(case, "failure", message=fit(f"worse by {arm.result.decided_by}"))
        elif arm.result.verdict == "not yet":
            ET.SubElement(case, "error", message=fit(str(arm.result)))
    root = ET.Element("testsuites", about)
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
