"""What every place for learned templates promises, sentence by sentence of the port."""

import asyncio

import pytest

from gaugeway.storage import templates as bounds
from gaugeway.storage.templates import StoredTemplate, open_templates
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres


@pytest.fixture(params=["sqlite", "postgresql", "clickhouse"])
def url(request, tmp_path):
    engines = {"postgresql": postgres, "clickhouse": clickhouse}
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else engines[request.param]().database()


@pytest.fixture
def run(url):
    def run(scenario, count=1):
        async def main():
            opened = [open_templates(url) for _ in range(count)]
            try:
                await scenario(*opened)
            finally:
                for one in opened:
                    await one.aclose()

        asyncio.run(main())

    return run


def template(version="v1", app="shop", **fields):
    return StoredTemplate(
        **(
            {
                "app": app,
                "version": version,
                "kind": "chat_completions:u",
                "literals": ("\x02Nachschlagewerk:\n", "\n\nFrage: ", "\x04"),
                "slots": ("passages", "question"),
                "split": {"kind": "paragraphs", "words": "", "counted": False, "header": [], "trailer": []},
                "seen": 10,
                "learned_at": 100.0,
            }
            | fields
        )
    )


def test_a_template_comes_out_as_it_went_in_whoever_asks(run):
    odd = template("v2", app="schöp\u2028\x01", literals=("\x02naïve \U0001f600 \x00'\"\\ ", "\x04"), learned_at=1.25)

    async def scenario(one, other):
        assert await one.templates() == []
        await one.put_template(template())
        await one.put_template(odd)
        assert await other.templates() == [odd, template()]
        assert await other.templates("shop") == [template()]
        assert await other.templates("nobody") == []

    run(scenario, 2)


def test_they_come_by_app_and_the_oldest_first(run):
    many = [template(f"v{n}", app="ba"[n % 2], learned_at=50.0 - n) for n in range(6)]

    async def scenario(one):
        for each in many:
            await one.put_template(each)
        assert [each.version for each in await one.templates()] == ["v5", "v3", "v1", "v4", "v2", "v0"]

    run(scenario)


def test_putting_again_keeps_what_a_person_said(run):
    async def scenario(one, other):
        for state in ("confirmed", "rejected"):
            await one.put_template(template())
            assert await other.set_template_state("shop", "v1", state)
            await one.put_template(template(seen=40, stale=True))
            assert await other.templates() == [template(seen=40, stale=True, state=state)]

    run(scenario, 2)


@pytest.mark.parametrize("state", ["asked", "marked"])
def test_a_request_for_the_judge_is_no_template_to_decide_on(run, state):
    async def scenario(one):
        await one.put_template(template(state=state))
        for decision in ("confirmed", "rejected"):
            assert not await one.set_template_state("shop", "v1", decision)
        assert await one.templates() == [template(state=state)]

    run(scenario)


def test_without_a_change_nothing_is_read_again(run):
    async def scenario(one, other):
        revision, found = await one.changed(None)
        assert found == []
        for change, expected in (
            (other.put_template(template()), [template()]),
            (other.put_template(template(stale=True)), [template(stale=True)]),
            (other.set_template_state("shop", "v1", "confirmed"), [template(stale=True, state="confirmed")]),
            (other.drop_templates([("shop", "v1")], learned_only=False), []),
        ):
            assert await one.changed(revision) == (revision, None)
            await change
            revision, found = await one.changed(revision)
            assert found == expected
        assert await one.changed(revision) == (revision, None)

    run(scenario, 2)


def test_a_state_can_be_changed_back_and_an_unknown_template_is_told(run):
    async def scenario(one):
        await one.put_template(template())
        for state in ("rejected", "confirmed", "learned"):
            assert await one.set_template_state("shop", "v1", state)
            assert [each.state for each in await one.templates()] == [state]
        assert not await one.set_template_state("shop", "v2", "confirmed")
        assert not await one.set_template_state("help", "v1", "confirmed")
        assert len(await one.templates()) == 1

    run(scenario)


def test_what_a_person_decided_is_dropped_only_when_that_is_asked_for(run):
    names = [("shop", f"v{n}") for n in range(4)]

    async def scenario(one):
        for _, version in names[:3]:
            await one.put_template(template(version))
        await one.put_template(template("v1", app="help"))
        await one.set_template_state("shop", "v1", "confirmed")
        await one.set_template_state("shop", "v2", "rejected")
        assert await one.drop_templates([]) == 0
        assert await one.drop_templates(names) == 1
        assert [each.version for each in await one.templates("shop")] == ["v1", "v2"]
        assert await one.drop_templates(names, learned_only=False) == 2
        assert await one.templates() == [template("v1", app="help")]

    run(scenario)


def test_beyond_a_bound_the_oldest_go_that_nobody_confirmed(run, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_TEMPLATES_OF_APP", 3)
    monkeypatch.setattr(bounds, "MAX_TEMPLATES", 5)

    async def scenario(one):
        for n in range(3):
            await one.put_template(template(f"v{n}", learned_at=float(n)))
        await one.set_template_state("shop", "v0", "confirmed")
        await one.set_template_state("shop", "v1", "rejected")
        await one.put_template(template("v3", learned_at=3.0))
        assert [each.version for each in await one.templates()] == ["v0", "v1", "v3"]
        await one.put_template(template("v4", learned_at=4.0))
        assert [each.version for each in await one.templates()] == ["v0", "v1", "v4"]
        for n in range(3):
            await one.put_template(template(f"w{n}", app="help", learned_at=10.0 + n))
        assert [each.version for each in await one.templates()] == ["w0", "w1", "w2", "v0", "v1"]

    run(scenario)


def test_one_that_is_too_large_is_refused(run):
    async def scenario(one):
        with pytest.raises(ValueError, match="too large"):
            await one.put_template(template(literals=("\x02" + "x" * bounds.MAX_TEMPLATE_BYTES, "\x04")))
        assert await one.templates() == []

    run(scenario)


def test_what_something_else_wrote_is_left_out(run, monkeypatch):
    async def scenario(one):
        await one.put_template(template())
        with monkeypatch.context() as patched:
            patched.setattr("gaugeway.storage.templates.body_of", lambda _: '{"app": "shop"}')
            await one.put_template(template("v2"))
        assert await one.templates() == [template()]

    run(scenario)
