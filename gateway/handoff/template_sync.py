"""Template sync: shares the prompt templates that sampler processes learn among all gateways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from gateway.capture.stored_templates import Form, plain
from gaugeway.prompts.learning.learner import TemplateEvent
from gaugeway.prompts.learning.model import LearnedTemplate
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.storage.engines.failures import FAILURES, refused
from gaugeway.storage.templates import StoredTemplate, Templates

MAX_PENDING_TEMPLATES = 200
"""Maximum of events waiting for the store, and of templates that stay in this process."""
EVERY_S = 3.0
_WITHIN_S = 10.0
_log = logging.getLogger("gaugeway")

Name: TypeAlias = tuple[str, str]


class Observer(Protocol):
    """Counts template events; the gateway's instruments."""

    def template(self, event: str) -> None:
        """Count a template that was learned, dropped or became stale here."""

    def template_failed(self, reason: str) -> None:
        """Count a failure."""


class TemplateSync:
    """Writes the learner's template events to the store and loads the stored templates, every `every_s` seconds.

    While the store is unavailable, the learner keeps its templates and its events wait here. A template that must not
    be stored stays in this process. Without a `form` nothing is learned, stored or read.
    """

    def __init__(
        self, templates: Templates, observer: Observer, form: Form | None, *, every_s: float = EVERY_S
    ) -> None:
        self.form = form
        self.revision = 0
        """Increases when another gateway changed the templates."""
        self._templates = templates
        self._observer = observer
        self._every_s = every_s
        self._current: bytes | None = None
        self._stored: dict[Name, StoredTemplate] = {}
        self._local: dict[Name, StoredTemplate] = {}
        self._pending: dict[Name, TemplateEvent] = {}
        self._wake, self._closing = asyncio.Event(), False
        self._outage = Outage(_log)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start in the background."""
        self._task = spawn(self._run(), name="templates")

    def heard(self, events: Iterable[TemplateEvent]) -> None:
        """Record the events of this process's learner. Never blocks, never raises."""
        for event in events:
            self._observer.template(event.kind)
            name = event.template.app, event.template.version
            if name not in self._pending and len(self._pending) >= MAX_PENDING_TEMPLATES:
                self._observer.template_failed("overflow")
                continue
            self._pending[name] = event
            self._wake.set()

    def known(self) -> list[StoredTemplate]:
        """Return the templates for this process's learner: the stored ones and those about to be stored."""
        if self.form is None:
            return []
        found = self._stored | self._local
        for name, event in self._pending.items():
            there = found.get(name)
            if event.kind != "dropped":
                found[name] = plain(event.template) if there is None else there
            elif there is not None and there.state == "learned":
                del found[name]
        return list(found.values())

    async def sync(self) -> bool:
        """Write and read the store once; False, and a warning the first time, when that fails."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._sync()
        except (*FAILURES, TimeoutError) as error:
            self._observer.template_failed("store")
            reason = str(error) or "no answer in time"
            self._outage.begin(
                "template store unavailable, learned templates are not shared: %s: %s", type(error).__name__, reason
            )
            return False
        self._outage.end("learned templates are shared again")
        return True

    async def aclose(self) -> None:
        """Write the pending events and close the store."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        if self._pending:
            await self.sync()
        await self._templates.aclose()

    async def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            await self.sync()
            await happens_within(self._wake, self._every_s)

    async def _sync(self) -> None:
        if self.form is None:
            self._pending.clear()
            return
        written = dict(self._pending)
        for event in written.values():
            await self._write(event)
        current, templates = await self._templates.changed(self._current)
        # No await from here on, so that `known` never misses an event that was just reported.
        if templates is not None:
            self._current = current
            self._stored = {(template.app, template.version): template for template in templates}
            self.revision += 1
        for name, event in written.items():
            if self._pending.get(name) is event:
                del self._pending[name]
        self._local = {name: template for name, template in self._local.items() if name not in self._stored}

    async def _write(self, event: TemplateEvent) -> None:
        name = event.template.app, event.template.version
        if event.kind == "dropped":
            self._local.pop(name, None)
            await self._templates.drop_templates([name])
            return
        try:
            stored = self.form(event.template) if self.form is not None else None
            if stored is None:
                self._keep_here(event.template, "private")
            else:
                await self._templates.put_template(stored)
        except Exception as error:
            if not refused(error):
                raise
            self._keep_here(event.template, "refused")

    def _keep_here(self, template: LearnedTemplate, reason: str) -> None:
        self._observer.template_failed(reason)
        if len(self._local) < MAX_PENDING_TEMPLATES:
            self._local[template.app, template.version] = plain(template)
