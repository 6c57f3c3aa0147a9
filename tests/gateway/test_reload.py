"""Every key of the configuration, changed in a running gateway: applied as a restart would, or refused by name."""

import asyncio
import types
from collections import deque
from collections.abc import Mapping
from pathlib import PurePath
from typing import Literal, get_args, get_origin, get_type_hints

import certifi
import msgspec
import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway import config as tables
from gateway.app import Gateway
from gateway.config import Config
from gateway.handoff.sampler_client import SamplerProcesses
from gateway.reload import EFFECTS, RestartNeeded, Snapshot, changed, check_live, keys_of
from gateway.telemetry.inference_metrics import InferenceMetrics
from gateway.telemetry.metrics import Instruments
from gaugeway.prompts import UserTemplate
from gaugeway.settings import ConfigError, item_of, plain, read, shared
from gaugeway.settings.shared import GroundingVerifier

OPEN = Config(
    upstreams=(tables.Upstream(base_url="http://127.0.0.1:9/v1", api_key="sk-owner"),),
    capture=tables.Capture(templates=(UserTemplate(name="own", pattern="Context: (?P<contexts>.*)"),)),
    prices={"gpt-*": tables.Price(input=1.0)},
    cache=tables.Cache(apps=("shop",)),
    limits=tables.Limits(apps={"shop": tables.AppLimits()}),
    telemetry=shared.Telemetry(otlp_endpoint="http://127.0.0.1:9"),
    judge=shared.Judge(
        base_url="http://127.0.0.1:9/v1",
        model="judge",
        prices={"gpt-*": shared.Price(input=1.0)},
        small=shared.SmallJudge(base_url="http://127.0.0.1:9/v1", model="small"),
        anchor=shared.Endpoint(base_url="http://127.0.0.1:9/v1", model="large"),
        bias=(shared.Bias(factor=2.0),),
        grounding=GroundingVerifier(kind="minicheck", base_url="http://127.0.0.1:9/v1", model="verifier"),
    ),
    metrics={"faithfulness": shared.Metric()},
    alerts=shared.Alerts(rules=(shared.Rule(metric="faithfulness", slo=0.5),)),
    notifiers=(shared.Notifier(kind="log"),),
    sinks=(shared.Sink(kind="phoenix", url="http://127.0.0.1:9"),),
)
"""A table of every kind, and neither keys nor limits in force."""
GUARDED = msgspec.structs.replace(
    OPEN,
    keys=tables.Keys(enabled=True),
    limits=tables.Limits(requests_per_min=60, apps={"shop": tables.AppLimits(tokens_per_min=60)}),
)
BASES = {"open": OPEN, "guarded": GUARDED}
OTHER = {
    "upstreams.base_url": "http://127.0.0.1:10/v1",
    "upstreams.ca_file": certifi.where(),
    "upstreams.proxy": "http://127.0.0.1:11",
    "trials": ({"name": "other"},),
    "capture.extractors": ("explicit",),
    "capture.redact": ("email",),
    "capture.templates.pattern": "Passages: (?P<contexts>.*)",
    "capture.templates.read_as": "lines",
    "limits.url": "redis://127.0.0.1:1/0",
    "keys.url": "postgresql://127.0.0.1:1/keys",
    "judge.small": None,
    "judge.anchor": None,
    "judge.grounding": None,
    "alerts.rules": (),
}
"""Values for keys that cannot have just any."""
TEXT = 'a = "${NAME}"\nb = ["x-${file:PATH}"]\nday = 1979-05-27\nall = inf\n'


def value_at(config, key):
    for name in key.split("."):
        config = next(iter(config.values())) if isinstance(config, dict) else config
        config = config[0] if isinstance(config, tuple) else config
        config = getattr(config, name)
    return config


def with_value(table, key, value):
    """The table with another value at a key; in lists and named tables in the first one."""
    name, _, rest = key.partition(".")
    below = getattr(table, name)
    if not rest:
        below = value
    elif isinstance(below, dict):
        below = {place: with_value(one, rest, value) for place, one in below.items()}
    elif isinstance(below, tuple):
        below = (with_value(below[0], rest, value), *below[1:])
    else:
        below = with_value(below, rest, value)
    return msgspec.structs.replace(table, **{name: below})


def kind_of(key):
    kind = Config
    for name in key.split("."):
        kind = get_type_hints(plain(item_of(plain(kind))) or plain(kind), include_extras=True)[name]
    return kind


def other_value(key, value):
    """Any other value that the key may have."""
    if key in OTHER:
        return OTHER[key]
    kind = plain(kind_of(key))
    if get_origin(kind) is Literal:
        return next(one for one in get_args(kind) if one != value)
    if kind is bool:
        return not value
    if kind in (int, float):
        for candidate in (kind(1 + (value or 0)), kind((value or 0) / 2), kind(450)):
            try:
                return msgspec.convert(candidate, kind_of(key))
            except msgspec.ValidationError:
                continue
    if get_origin(kind) is tuple:
        item = plain(get_args(kind)[0])
        of_literal = get_origin(item) is Literal
        return (*(value or ()), next(one for one in get_args(item) if one not in value) if of_literal else item("7"))
    return {"x": "y"} if kind is dict or get_origin(kind) is dict else f"{value or ''}x"


def changed_at(base, key):
    return with_value(base, key, other_value(key, value_at(base, key)))


SKIPPED = {"_config", "_clients", "registry", "readiness", "_task", "_retired", "_queue", "queue", "admin", "_other"}
SKIPPED |= {
    "_early",
    "_failures",
    "_not_before",
    "_outage",
    "_process",
    "_retry_at",
    "_revision",
    "_stopped",
    "_tidied_at",
}
"""Of our objects: what no request uses, or what differs between two gateways of the same configuration."""


def shape(value, seen):
    """A value as plain data: ours with their attributes, functions with what they close over, others by type."""
    if value is None or isinstance(value, bool | int | float | str | bytes | PurePath):
        return value
    if isinstance(value, Mapping):
        return {"mapping": [(shape(key, seen), shape(one, seen)) for key, one in value.items()]}
    if isinstance(value, list | tuple | deque):
        return [shape(one, seen) for one in value]
    return shape_of_object(value, seen)


def shape_of_object(value, seen):
    if type(value).__name__ == "Pattern" or isinstance(value, set | frozenset):
        return sorted(map(str, value)) if isinstance(value, set | frozenset) else value.pattern
    if isinstance(value, types.MethodType):
        return value.__func__.__qualname__, shape(value.__self__, seen)
    if isinstance(value, types.FunctionType):
        return value.__qualname__, [shape(cell.cell_contents, seen) for cell in value.__closure__ or ()]
    if isinstance(value, Instruments | InferenceMetrics) or type(value).__module__.split(".")[0] not in (
        "gaugeway",
        "gateway",
        "monitors",
    ):
        return type(value).__name__
    if not isinstance(value, msgspec.Struct):  # which is a value; the others may refer to each other in circles
        if id(value) in seen:
            return f"the {type(value).__name__} above"
        seen[id(value)] = value
    slots = [name for one in type(value).__mro__ for name in getattr(one, "__slots__", ())]
    named = {**getattr(value, "__dict__", {}), **{name: getattr(value, name, None) for name in slots}}
    return type(value).__name__, {name: shape(one, seen) for name, one in named.items() if name not in SKIPPED}


async def gateway_of(config, tmp_path):
    gateway = Gateway(config, queue=MemoryQueue(), keys_file=tmp_path / "keys.db", sampler=SamplerProcesses())
    await gateway.start()
    return gateway


async def shape_of(config, tmp_path):
    gateway = await gateway_of(config, tmp_path)
    try:
        return shape(gateway, {})
    finally:
        await gateway.aclose()


async def shape_after(old, new, tmp_path, expected):
    """What a running gateway is like after a reload, as soon as it is as expected; else how it is in the end."""
    gateway = await gateway_of(old, tmp_path)
    try:
        gateway.apply(new)
        for _ in range(200):
            if (found := shape(gateway, {})) == expected:
                break
            await asyncio.sleep(0.05)
        return found
    finally:
        await gateway.aclose()


def test_every_key_is_classified():
    assert set(keys_of(Config)) == set(EFFECTS), "say in gateway/reload.toml what a reload does with it"


@pytest.mark.parametrize("key", sorted(EFFECTS))
def test_a_change_of_any_key_is_noticed(key):
    assert key in changed(OPEN, changed_at(OPEN, key))
    assert not changed(OPEN, with_value(OPEN, key, value_at(OPEN, key)))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("gateways")


@pytest.fixture(scope="module")
def shapes(place):
    """What gateways of the two base configurations are like."""
    return {name: asyncio.run(shape_of(base, place)) for name, base in BASES.items()}


@pytest.mark.full
@pytest.mark.parametrize("key", [key for key, effect in EFFECTS.items() if effect == "live"])
def test_a_live_key_is_applied_as_a_restart_would(key, place, shapes):
    async def is_visible(name):
        new = changed_at(BASES[name], key)
        expected = await shape_of(new, place)
        assert await shape_after(BASES[name], new, place, expected) == expected
        return expected != shapes[name]

    visible = [asyncio.run(is_visible(name)) for name in BASES]
    assert any(visible), "nothing in the gateway uses it"


def without_setup(found):
    """A shape without what the process that makes samples is given: the whole table, used or not."""
    if isinstance(found, dict):
        return {name: without_setup(one) for name, one in found.items() if name != "_setup"}
    return [without_setup(one) for one in found] if isinstance(found, list | tuple) else found


@pytest.mark.full
@pytest.mark.parametrize("key", [key for key, effect in EFFECTS.items() if effect == "monitors"])
def test_a_key_of_the_monitors_is_none_of_the_gateways(key, place, shapes):
    new = changed_at(OPEN, key)
    check_live(OPEN, new)
    assert without_setup(asyncio.run(shape_of(new, place))) == without_setup(shapes["open"])


@pytest.mark.full
@pytest.mark.parametrize("key", [key for key, effect in EFFECTS.items() if effect.startswith("restart")])
def test_a_reload_that_needs_a_restart_is_refused_as_a_whole(key, tmp_path, caplog):
    caplog.set_level("INFO", logger="gaugeway.audit")
    new = with_value(changed_at(GUARDED, key), "limits.requests_per_min", 1)

    async def scenario():
        gateway = await gateway_of(GUARDED, tmp_path)
        before = shape(gateway, {})
        gateway.reload(lambda: new)
        assert shape(gateway, {}) == before
        await gateway.aclose()
        return gateway.registry

    registry = asyncio.run(scenario())
    assert f"unchanged: {key} needs a restart" in caplog.text
    audited = [record.audit for record in caplog.records if record.name == "gaugeway.audit"]
    assert [(one["outcome"], one["keys"]) for one in audited] == [("refused", key)]
    assert registry.get_sample_value("gaugeway_config_reloads_total", {"result": "refused"}) == 1
    assert registry.get_sample_value("gaugeway_config_restart_keys_total", {"key": key}) == 1


@pytest.mark.parametrize("key", [key for key, effect in EFFECTS.items() if effect == "restart_in_use"])
def test_where_keys_and_limits_are_may_be_said_with_the_first_use_of_them(key, tmp_path):
    new = msgspec.structs.replace(changed_at(OPEN, key), keys=GUARDED.keys)
    new = with_value(new, key, other_value(key, None))

    async def scenario():
        expected = await shape_of(new, tmp_path)
        assert await shape_after(OPEN, new, tmp_path, expected) == expected

    asyncio.run(scenario())
    check_live(GUARDED, OPEN)
    with pytest.raises(RestartNeeded):
        check_live(GUARDED, changed_at(GUARDED, key))


def test_a_configuration_that_fails_half_way_changes_nothing(tmp_path, caplog):
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    new = with_value(with_value(GUARDED, "upstreams.ca_file", str(broken)), "limits.requests_per_min", 1)
    new = with_value(new, "upstreams.proxy", "http://127.0.0.1:11")

    async def scenario():
        gateway = await gateway_of(GUARDED, tmp_path)
        before = shape(gateway, {})
        gateway.reload(lambda: new)
        assert shape(gateway, {}) == before
        await gateway.aclose()

    asyncio.run(scenario())
    assert "configuration unchanged" in caplog.text


def test_a_key_that_nobody_classified_needs_a_restart(monkeypatch):
    monkeypatch.delitem(EFFECTS, "routing.eject_s")
    with pytest.raises(RestartNeeded, match=r"routing\.eject_s: needs a restart"):
        check_live(OPEN, changed_at(OPEN, "routing.eject_s"))


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("NAME", "${HOME}")
    secret = tmp_path / "secret"
    secret.write_text("one\n")
    file = tmp_path / "gaugeway.toml"
    file.write_text(TEXT.replace("PATH", str(secret)))
    return file


@pytest.fixture
def snapshot(file):
    made = Snapshot(file)
    yield made
    made.close()


def test_values_stay_as_they_were_when_it_was_taken(file, snapshot, monkeypatch):
    snapshot.take()
    accepted = read(file)
    assert accepted["a"] == "${HOME}", "what is filled in is not expanded again"
    file.with_name("secret").write_text("another\n")
    monkeypatch.delenv("NAME")
    file.write_text("")
    assert read(snapshot.path) == accepted


def test_a_value_that_is_missing_stays_missing_and_is_named(file, snapshot):
    file.with_name("secret").write_text("")
    snapshot.take()
    file.with_name("secret").write_text("late\n")
    with pytest.raises(ConfigError) as caught:
        read(snapshot.path)
    assert caught.value.problems == [f"b[0]: {file.with_name('secret')}: empty"]


@pytest.mark.parametrize("broken", [b"a = ", b"\xff", None])
def test_one_that_cannot_be_taken_leaves_the_old_one(file, snapshot, broken):
    snapshot.take()
    accepted = read(snapshot.path)
    if broken is None:
        file.unlink()
    else:
        file.write_bytes(broken)
    with pytest.raises((ConfigError, OSError)):
        snapshot.take()
    assert read(snapshot.path) == accepted


def test_a_shorter_one_replaces_a_longer_one_whole(file, snapshot):
    snapshot.take()
    file.write_text("a = 1\n")
    other = Snapshot(file)
    other.take()
    snapshot.replace(other)
    other.close()
    assert read(snapshot.path) == {"a": 1}
