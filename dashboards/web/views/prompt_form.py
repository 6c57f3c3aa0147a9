"""The form that describes a prompt: its defaults, parsing, and a trial run on a stored exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from gateway.capture.stored_templates import learned_of
from gaugeway.exchange import Request, Response
from gaugeway.prompts import Extraction, UserTemplate
from gaugeway.prompts.user_patterns import Described, PatternExtractor, describe, guess
from gaugeway.records import Sample
from gaugeway.storage.templates import StoredTemplate
from monitors.analysis.prompt_text import HASHED, pieces

MAX_ENTRY = 20_000
"""Characters of a field."""
BETWEEN = ("separator", "separator_pattern", "read_as")
_COMPARED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Result of applying an entry to an exchange: a configuration error (`problem`), or what it found."""

    problem: str = ""
    found: Extraction | None = None


def entry_of(given: Mapping[str, str]) -> UserTemplate:
    """Parse the form. Browsers send line breaks as CR LF."""
    fields = {name: value.replace("\r\n", "\n")[:MAX_ENTRY] for name, value in given.items()}
    between = fields.get("kind", "")
    said = fields.get("between", "")
    if between == "separator":
        said = said.replace("\\n", "\n").replace("\\t", "\t")
    entry = UserTemplate(fields.get("name", "").strip(), fields.get("pattern", ""), clean=bool(fields.get("clean")))
    return msgspec.structs.replace(entry, **{between: said}) if between in BETWEEN and said else entry


def prefilled(app: str, learned: Sequence[StoredTemplate], latest: Sequence[Sample]) -> Described:
    """Form defaults: the latest learned template, or else the common text of recent prompts without passages."""
    for stored in reversed(learned):
        if (template := learned_of(stored)) is None:
            continue
        try:
            return describe(template)
        except ValueError:
            continue
    texts = [text for sample in latest if sample.context_source == "none" and (text := _user_text(sample))][:_COMPARED]
    return Described(guess(app, texts) if texts else UserTemplate(app, ""))


def applied(entry: UserTemplate, sample: Sample | None) -> Applied:
    """Apply an entry to an exchange with the gateway's own extractor."""
    try:
        extractor = PatternExtractor([entry])
    except ValueError as error:
        return Applied(problem=str(error))
    if sample is None:
        return Applied()
    messages = [{"role": role, "content": text} for role, text in prompt_texts(sample)]
    request = Request(route="chat_completions", headers={}, body={"messages": messages})
    return Applied(found=extractor.extract(request, Response(status=200, body={})))


def prompt_texts(sample: Sample) -> list[tuple[str, str]]:
    """(role, text) of a stored prompt's messages, assembled from its parts; gaps become line breaks."""
    capture = sample.capture
    if capture is None:
        return [("user", sample.question)] if sample.question and not sample.question.startswith(HASHED) else []
    words = pieces(capture, sample.question, sample.contexts, sample.context_source)
    shown = list(zip(capture.parts, words, strict=True))
    found = []
    for _, some in groupby(shown, key=lambda pair: pair[0].message):
        text, end, role = "", 0, "user"
        for part, piece in some:
            text += "\n" * (part.start - end) + (piece.text or "")
            end, role = part.end, part.role
        found.append((role, text))
    return found


def _user_text(sample: Sample) -> str:
    return next((text for role, text in reversed(prompt_texts(sample)) if role == "user" and text.strip()), "")
