"""What a reload does with each key of the configuration, and which changes need a restart.

A reload is all or nothing: if one changed key needs a restart, nothing of the new configuration is applied.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec

from gateway.access.gate import needs_gate
from gateway.config import Config
from gaugeway.runtime import audit
from gaugeway.settings import ConfigError, is_struct, item_of, plain

_log = logging.getLogger("gaugeway")
REFUSED = "refused"
"""The line that the supervisor writes to a gateway's standard input, followed by the keys that need a restart."""
Effect: TypeAlias = Literal["live", "restart", "restart_in_use", "monitors"]


def _keys(effect: Effect, table: str, names: str) -> dict[str, Effect]:
    return {f"{table}.{name}": effect for name in names.split()}


EFFECTS: dict[str, Effect] = {
    **_keys("live", "gateway", "max_body_bytes max_upload_bytes first_byte_timeout_s total_timeout_s"),
    **_keys("live", "gateway", "allowed_origins allowed_hosts"),
    **_keys("restart", "gateway", "host port workers admin_host admin_port admin_token upstream_client"),
    **_keys("restart", "gateway", "connect_timeout_s read_timeout_s body_timeout_s drain_delay_s drain_s"),
    **_keys("restart", "gateway", "body_total_timeout_s max_pending_body_bytes write_timeout_s"),
    **_keys("live", "upstreams", "base_url name provider api_key ca_file proxy models aliases weight priority"),
    **_keys("live", "upstreams", "max_retries"),
    **_keys("live", "routing", "retry_on backoff_base_s backoff_max_s max_retry_after_s eject_after eject_s header"),
    **_keys("live", "keys", "enabled refresh_s"),
    **_keys("restart_in_use", "keys", "url"),
    **_keys("live", "limits", "requests_per_min tokens_per_min usd_per_day max_concurrency queue_s unmetered_usd"),
    **_keys("live", "limits.apps", "requests_per_min tokens_per_min usd_per_day max_concurrency queue_s"),
    **_keys("restart_in_use", "limits", "url sync_s"),
    **_keys("live", "prices", "input output cached per"),
    **_keys("live", "cache", "apps ttl_s max_bytes"),
    **_keys("live", "capture", "rate nested_with_otel sample_by errors redact redact_patterns unredacted_apps"),
    **_keys("live", "capture", "max_content_bytes extractors learn ask_judge include_usage content"),
    **_keys("live", "capture", "session_headers history_turns resubmission_s"),
    **_keys("live", "capture.templates", "name pattern separator separator_pattern read_as clean"),
    **_keys("restart", "capture", "salt buffer_exchanges buffer_bytes"),
    **_keys("monitors", "capture", "ask_judge_per_day audits_per_day retention_days"),
    **_keys("restart", "queue", "url lease_s max_attempts max_bytes spill_bytes drain_per_s"),
    **_keys("monitors", "queue", "target_age_s max_age_s"),
    **_keys("live", "telemetry", "propagate openinference baggage"),
    **_keys("restart", "telemetry", "otlp_endpoint otlp_headers service_name"),
    **_keys("monitors", "telemetry", "content events"),
    **_keys("monitors", "monitors", "host port token concurrency window_s join_window_s otlp_receiver public_url"),
    **_keys("monitors", "monitors", "workers replica gateways trusted_proxies conversation_silence_s"),
    **_keys("monitors", "judge", "base_url api_key model temperature timeout_s concurrency max_retries price_in"),
    **_keys("monitors", "judge", "price_out mode api_version deadline_s blind_after blind_s budget_usd_per_day"),
    **_keys("monitors", "judge", "budget_reserve cache cache_ttl_s cache_mb small anchors anchors_every_s"),
    **_keys("monitors", "judge", "grounding next_model"),
    **_keys("monitors", "judge.grounding", "kind api base_url api_key model timeout_s concurrency max_retries label"),
    **_keys("monitors", "judge.grounding", "batch_size batch_wait_s max_document_chars template path threads"),
    **_keys("monitors", "judge.grounding", "price_in price_out cascade least"),
    **_keys("monitors", "judge.prices", "input output cached per"),
    **_keys("monitors", "judge.small", "base_url model api_key api_version least audit_rate verbatim"),
    **_keys("monitors", "judge.bias", "factor app model tags signal"),
    **_keys("monitors", "embeddings", "kind base_url api_key api_version model timeout_s concurrency max_retries"),
    **_keys("monitors", "embeddings", "price batch_size batch_wait_s cache_mb path cache_dir download threads"),
    **_keys("monitors", "store", "url"),
    **_keys("monitors", "metrics", "enabled rate threshold objective options"),
    **_keys("monitors", "signals", "off"),
    **_keys("monitors", "alerts", "false_alerts_per_30d bucket_s watermark_s slices min_slice_scores min_coverage"),
    **_keys("monitors", "alerts", "content group_by group_wait_s group_interval_s repeat_interval_s give_up_s"),
    **_keys("monitors", "alerts", "heartbeat_s cause_samples runbook_url default_rules rules"),
    **_keys("monitors", "alerts.rules", "metric slo baseline tolerance direction apps severity name detector options"),
    **_keys("monitors", "notifiers", "kind name severities apps send_resolved heartbeat options timeout_s url urls"),
    **_keys("monitors", "notifiers", "resend_s secret token channel routing_key username password host port tls"),
    **_keys("monitors", "notifiers", "sender recipients"),
    **_keys("monitors", "sinks", "kind url api_key public_key secret_key environment metrics content timeout_s"),
    **_keys("monitors", "sinks", "give_up_s"),
}
"""Key -> what a reload does with it.

"live": the gateway applies it. "restart": the reload is refused. "restart_in_use": refused while keys or limits are in
force before and after; with their first use, or their last, it is applied. "monitors": the gateway does not use it;
`gaugeway serve` restarts the monitors with every reload. Keys in lists and named tables have neither index nor name.
"""


class RestartNeeded(ConfigError):
    """The configuration is valid, and `keys` of it cannot be changed in a running gateway."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__([f"{key}: needs a restart" for key in keys])
        self.keys = keys


def report_refusal(error: RestartNeeded) -> None:
    """Write to the log and to the audit log which keys need a restart."""
    audit.tell("reload", outcome="refused", process=os.getpid(), keys=" ".join(error.keys))
    what = "; ".join(f"{key} needs a restart" for key in error.keys)
    _log.error("reload refused, configuration unchanged: %s", what)


@cache
def keys_of(kind: Any, prefix: str = "") -> Sequence[str]:
    """Return every key of a table as `EFFECTS` names them; an optional table or list is a key itself."""
    found: list[str] = []
    hints = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        below = plain(hints[name])
        item = plain(item_of(below))
        table = below if is_struct(below) else item if is_struct(item) else None
        if table is None or _may_be_none(kind, name):
            found.append(f"{prefix}{name}")
        if table is not None:
            found += keys_of(table, f"{prefix}{name}.")
    return found


def changed(old: Config, new: Config) -> list[str]:
    """Return the keys whose values differ, as `EFFECTS` names them."""
    before, after = _values(old), _values(new)
    return [key for key in keys_of(type(new)) if before.get(key) != after.get(key)]


def check_live(old: Config, new: Config) -> None:
    """Raise RestartNeeded if a gateway that runs with `old` cannot apply `new`."""
    in_use = needs_gate(old.keys, old.limits) and needs_gate(new.keys, new.limits)
    blocking = {"restart", "restart_in_use"} if in_use else {"restart"}
    # A key without an entry is one that no code applies.
    if keys := tuple(key for key in changed(old, new) if EFFECTS.get(key, "restart") in blocking):
        raise RestartNeeded(keys)


def _values(config: Config) -> dict[str, list[tuple[str, Any]]]:
    """Return all values by key; where a key occurs several times, with the index or the name of each."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for key, place, value in _walk(config, "", ""):
        found.setdefault(key, []).append((place, value))
    return found


def _walk(table: msgspec.Struct, key: str, place: str) -> Iterator[tuple[str, str, Any]]:
    for name in table.__struct_fields__:
        value = getattr(table, name)
        here = f"{key}{name}"
        if isinstance(value, msgspec.Struct):
            yield here, place, True
            yield from _walk(value, f"{here}.", place)
            continue
        below = list(_tables(value))
        if below:
            yield here, place, True
            for index, item in below:
                yield from _walk(item, f"{here}.", f"{place}/{index}")
        else:
            yield here, place, value


def _tables(value: Any) -> Iterable[tuple[object, msgspec.Struct]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, tuple) else ()
    return [(index, item) for index, item in items if isinstance(item, msgspec.Struct)]


def _may_be_none(kind: Any, name: str) -> bool:
    return any(field.name == name and field.default is None for field in msgspec.structs.fields(kind))
