"""Builds capture from the configuration, in the gateway process and in the sampler process."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from inspect import signature

from gateway.capture.conversation import ConversationReader, EarlierQuestions
from gateway.capture.exchange_reader import Capture
from gateway.capture.fingerprints import Resubmissions
from gateway.capture.stored_templates import Form, asked_of, stored_of
from gateway.config import Capture as Settings
from gaugeway.extensions import load, registered
from gaugeway.prompts import Extractor, default_order
from gaugeway.prompts.learning.learner import LearnedCapture, Learner, TemplateEvent
from gaugeway.prompts.learning.model import LearnedTemplate
from gaugeway.redaction import Redactor
from gaugeway.storage.templates import StoredTemplate

_REMEMBERED = 10_000


def capture_of(settings: Settings, key: str, report: Callable[[TemplateEvent], None] | None = None) -> Capture:
    """Return the capture of the settings; `key` is the key of the redaction placeholders and of the hashes that
    name clusters and conversations.

    With `report`, prompts are learned and `report` gets the events. Learning takes milliseconds per prompt, so
    it must not run in a process that serves traffic.
    """
    learned = None
    if report and learns(settings):
        learned = LearnedCapture(Learner(time.time, secrets.randbits(60), asks=settings.ask_judge), report)
    redactor = redactor_of(settings, key)
    plain = frozenset(settings.unredacted_apps)
    extractors = extractors_of(settings)
    capture = Capture(
        extractors,
        rate=settings.rate,
        salt=settings.salt,
        nested_with_otel=settings.sample_by == "trace",
        errors=settings.errors,
        limit=settings.max_content_bytes,
        content=settings.content,
        protect=lambda sample: sample if sample.app in plain else redactor.redact_sample(sample),
        resubmissions=Resubmissions(settings.resubmission_s, _REMEMBERED) if settings.resubmission_s else None,
        learned=learned,
    )
    # The sampling salt has a known default: with it, names could be guessed from their hashes.
    capture.cluster_key = key
    capture.by_conversation = settings.sample_by == "conversation"
    capture.conversations = ConversationReader(
        key,
        session_headers=settings.session_headers,
        history_turns=settings.history_turns,
        content=settings.content,
        questions=EarlierQuestions(extractors),
    )
    return capture


def extractors_of(settings: Settings) -> list[Extractor]:
    """Return the configured extractors in order."""
    wanted = default_order() if settings.extractors is None else settings.extractors
    kinds = [load(name, registered("readers"), "extractor") for name in wanted]
    return [kind(settings.templates) if "templates" in signature(kind).parameters else kind() for kind in kinds]


def learns(settings: Settings) -> bool:
    """Whether prompts are learned; templates contain content, so not without it."""
    return settings.learn and settings.content


def template_form(settings: Settings, key: str) -> Form | None:
    """Return the function that redacts learned templates for storage; None when nothing is learned."""
    if not learns(settings):
        return None
    redactor = redactor_of(settings, key)

    def form(template: LearnedTemplate) -> StoredTemplate | None:
        plain = template.app in settings.unredacted_apps
        if not template.slots:
            return asked_of(template, str if plain else redactor.redact)
        return stored_of(
            template, lambda text: [] if plain else [(span.start, span.end) for span in redactor.spans(text)]
        )

    return form


def redactor_of(settings: Settings, key: str) -> Redactor:
    """Return the redactor of samples and supplements."""
    return Redactor(settings.redact, tuple(settings.redact_patterns.items()), key)
