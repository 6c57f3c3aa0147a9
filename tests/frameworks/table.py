"""Prints framework x mode -> recovered / of as Markdown (`python -m tests.frameworks.table`)."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.frameworks import environment, harness
from tests.frameworks.harness import Comparison, Outcome, Outcomes
from tests.frameworks.modes import MODES

HEAD = "| framework | mode | question | passages | with blank lines inside | other calls |\n|---|---|---|---|---|---|"

_PINNED = re.compile(r"^([\w-]+)(?:\[.*\])?==(\S+)", re.MULTILINE)


LEGEND = """\
Recovered / of. *Question*: judged as the answer to the question that was asked. *Passages*: all that a call was given,
in order, to the letter, with id and source where the request says them; + k: for k more calls the whole text was
captured, but cut elsewhere, with words of the layout in it, or without the source. *With blank lines inside*: the same
where passages contain what prompts put between passages. *Other calls*: those that are no answers and were kept apart.
"""


def rows(outcomes: Outcomes) -> list[str]:
    """The lines of one framework."""
    modes = dict.fromkeys(mode for mode, _ in outcomes)
    return [row(outcomes[mode, "lines"], outcomes[mode, "paragraphs"]) for mode in modes]


def row(plain: Outcome, paragraphs: Outcome) -> str:
    """One line of the table."""
    cells = (
        plain.framework,
        plain.mode,
        _share([call.question for call in plain.answers]),
        _passages(plain.answers),
        _passages(paragraphs.answers),
        _share([call.apart for call in plain.auxiliaries]),
    )
    return f"| {' | '.join(cells)} |"


def _passages(calls: Sequence[Comparison]) -> str:
    otherwise = sum(call.whole and not call.exact for call in calls)
    return _share([call.exact for call in calls]) + (f" + {otherwise}" if otherwise else "")


def _share(kept: Sequence[bool]) -> str:
    return f"{sum(kept)}/{len(kept)}" if kept else "-"


def versions(framework: str) -> str:
    """The versions installed in a framework's environment: those its requirements pin."""
    text = (environment.REQUIREMENTS / f"{framework}.txt").read_text("utf-8")
    return ", ".join(f"{name} {version}" for name, version in _PINNED.findall(text))


def _keep_requests(directory: Path, outcome: Outcome) -> None:
    name = f"{outcome.framework}-{outcome.mode}{'' if outcome.corpus == 'lines' else '-' + outcome.corpus}.json"
    calls = [
        {
            "path": request.path,
            "body": request.body,
            "expected": call.expected,
            "seen": {
                "question": call.sample.question,
                "contexts": [{"text": one.text, "id": one.id, "source": one.source} for one in call.sample.contexts],
                "context_source": call.sample.context_source,
                "skip_reason": call.sample.skip_reason,
            },
        }
        for request, call in zip(outcome.requests, outcome.calls, strict=True)
    ]
    (directory / name).write_text(json.dumps(calls, indent=1, ensure_ascii=False), "utf-8")


def main() -> int:
    """Run what is installed; say on standard error what is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frameworks", nargs="*", default=list(MODES), help="all by default")
    parser.add_argument("--requests", type=Path, help="write the requests of each mode into this directory")
    chosen = parser.parse_args()
    lines, names = [HEAD], []
    for framework in chosen.frameworks:
        if (reason := environment.missing(framework)) is not None:
            print(reason, file=sys.stderr)  # noqa: T201
            continue
        found = harness.outcomes(framework, MODES[framework])
        names.append(versions(framework))
        lines += rows(found)
        if chosen.requests:
            for outcome in found.values():
                _keep_requests(chosen.requests, outcome)
    print("\n".join([*lines, "", LEGEND, "Versions: " + ";\n".join(names) + "."]))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
