"""`/api/versions` and the re-learning of baselines on the admin port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from litestar import Request, get, post
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery

from gaugeway.runtime import audit
from monitors.alerting.changes import Version
from monitors.api.alerts import address_of, same_origin


class Versions(Protocol):
    """Versions of models, prompts and tags seen in the traffic."""

    def all(self) -> Sequence[Version]:
        """Every version, oldest first."""


class Rules(Protocol):
    """The alert rules, as far as these handlers use them."""

    @property
    def versions(self) -> Versions:
        """The versions seen in the traffic."""

    def rebaseline(self, rule: str, app: str | None = None) -> int:
        """Re-learn a rule's baselines; returns the number of streams. Raises KeyError for an unknown rule."""


def rule_handlers(rules: Rules) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/versions", sync_to_thread=False)
    def versions() -> list[dict[str, Any]]:
        return [asdict(version) for version in rules.versions.all()]

    @post("/api/rules/{rule:str}/rebaseline", guards=[same_origin], status_code=200, sync_to_thread=False)
    def rebaseline(
        rule: FromPath[str], request: Request[Any, Any, Any], app: FromQuery[str | None] = None
    ) -> dict[str, int]:
        try:
            streams = rules.rebaseline(rule, app)
        except KeyError as error:
            raise NotFoundException(f"no rule is called {rule!r}") from error
        audit.tell("rebaseline", address=address_of(request), rule=rule, app=app, streams=streams)
        return {"streams": streams}

    return [versions, rebaseline]
