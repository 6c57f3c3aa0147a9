"""The page of learned prompts: what it shows, who may decide, and the form that describes a prompt."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tomllib
from dataclasses import replace

import msgspec
import pytest

from dashboards.web.views.prompt_page import MAX_TEXT, applied, entry_of, prefilled, prompt_texts, version_rows
from gateway.capture.factory import capture_of, template_form
from gateway.config import Capture
from gaugeway.prompts import UserTemplate
from gaugeway.records import CaptureInfo, Context, Evaluation, PromptPart, Skipped
from gaugeway.storage.templates import StoredTemplate
from monitors.alerting.changes import Version
from tests.gateway.handoff.test_template_sync import LEARNS, recording
from tests.support import prompts
from tests.support.pages import EVIL, world

NOW = 1_900_000_000.0


@contextlib.asynccontextmanager
async def world_now(path, **options):
    async with world(path, clock=lambda: NOW, **options) as made:
        yield made


def learned():
    """What is learned of the shop's prompt, and the samples of the requests, those that were read with it last."""
    events, settings = [], Capture()
    capture = capture_of(settings, "key", events.append)
    samples = [capture.make(capture.read(recording(number))) for number in range(LEARNS)]
    return template_form(settings, "key")(events[0].template), [replace(one, started_at=NOW - 60) for one in samples]


def unread(count):
    """Samples of requests in which nothing was found."""
    capture = capture_of(Capture(learn=False), "key")
    samples = [capture.make(capture.read(recording(number))) for number in range(count)]
    assert {one.context_source for one in samples} == {"none"}
    return [replace(one, started_at=NOW - 60 + index) for index, one in enumerate(samples)]


async def keep(w, samples):
    for one in samples:
        skipped = Evaluation(sample_id=one.id, metric="faithfulness", version="1", outcome=Skipped("no_contexts"))
        await w.store.add(one, [skipped])


def version(value, first_seen, app="shop", kind="prompt"):
    return Version(app=app, kind=kind, value=value, first_seen=first_seen, exchanges=30)


async def prompted(w, name, at, lines, **more):
    """An exchange whose prompt has these instructions, a passage with its title, and a question."""
    parts = (
        PromptPart(role="system", kind="instructions", start=0, end=9, text=lines),
        PromptPart(role="user", kind="instructions", start=0, end=9, text="[1] fares.md", message=1, passage=0),
        PromptPart(role="user", kind="passage", start=9, end=19, message=1, passage=0),
        PromptPart(role="user", kind="question", start=20, end=30, message=1),
    )
    capture = CaptureInfo(source="structure", parts=parts)
    passage = Context(text="A secret passage.")
    await w.add(
        0.9,
        prompt=name,
        at=at,
        capture=capture,
        contexts=(passage,),
        context_source="structure",
        question="Why?",
        **more,
    )


def test_a_version_follows_the_one_before_of_its_app_and_scheme():
    known = [version("2-a", 1.0), version("2-x", 2.0, "bank"), version("m", 2.5, kind="model"), version("2-b", 3.0)]
    rows = [(row.version.value, row.before) for row in version_rows([*known, version("3-c", 4.0)], "shop")]
    assert rows == [("3-c", ""), ("2-b", "2-a"), ("2-a", "")]
    assert len(version_rows(known, "")) == 3


async def test_the_newest_prompt_is_shown_with_what_changed_since_the_version_before(tmp_path):
    async with world_now(tmp_path) as w:
        w.engine.versions.all = lambda: [version("2-a", NOW - 900.0), version("2-b", NOW - 600.0)]
        bare = await w.page("/prompts")
        await prompted(w, "2-a", NOW - 700.0, "Answer from the passages only.\nCite them.")
        await prompted(w, "2-b", NOW - 500.0, f"Answer as you like.\nCite them.\n{EVIL}")
        page, old = await w.page("/prompts"), await w.page("/prompts?app=shop&version=2-a")
        await prompted(w, "2-b", NOW - 400.0, "x" * (MAX_TEXT + 7))
        long = await w.page("/prompts?app=shop")
    assert "The text of this version is not stored: no exchange of the last 30 days has its prompt." in bare.words
    assert "\N{MINUS SIGN} Answer from the passages only.+ Answer as you like. Cite them." in page.words
    assert "User message [passages][question]" in page.words
    assert "A secret passage." not in page.text
    assert "/compare?app=shop&by=prompt&a=2-a&b=2-b" in [one["href"] for one in page.all("a")]
    assert EVIL in page.text
    assert not page.all("img")
    assert "Changes since" not in old.words
    assert "Answer from the passages only." in old.words
    assert "7 more characters are not shown." in long.words


async def test_without_any_the_page_says_how_long_it_takes(tmp_path):
    async with world_now(tmp_path) as w:
        page = await w.page("/prompts")
    assert "about ten requests" in page.words
    assert {"href": "/prompts", "aria-current": "page"} in page.all("a")


async def test_a_learned_prompt_is_shown_with_its_slots_and_an_example(tmp_path):
    template, samples = learned()

    async with world_now(tmp_path) as w:
        await w.templates.put_template(template)
        await keep(w, samples)
        listed, page = await w.page("/prompts"), await w.page("/prompts?app=shop")
    assert template.version in listed.words
    assert "+++" in listed.words
    assert f"{prompts.OPENING}[passages]{prompts.CLOSING}[question]{prompts.END}" in page.text
    example = samples[-1] if samples[-1].context_source == "learned" else None
    assert example is not None
    shown = next(one for one in page.all("a") if one.get("href", "").startswith("/exchanges/"))
    by_id = {f"/exchanges/{one.id}": one for one in samples}
    assert by_id[shown["href"]].context_source == "learned"
    assert by_id[shown["href"]].question in page.text


async def test_what_a_person_decides_is_kept_and_written_down(tmp_path, caplog):
    template, _ = learned()

    with caplog.at_level("INFO"):
        async with world_now(tmp_path) as w:
            await w.templates.put_template(template)
            said = []
            for action in ("reject", "confirm"):
                fields = {"app": "shop", "version": template.version}
                answer = await w.send("/prompts", f"/prompts/{action}", **fields)
                said.append(
                    ((await w.templates.templates())[0].state, (await w.page(answer.headers["location"])).words)
                )
            (rejected, first), (confirmed, second) = said
    assert (rejected, confirmed) == ("rejected", "confirmed")
    assert "Rejected: gateways stop using the template" in first
    assert "Confirmed: the template stays in use" in second
    told = [one.audit for one in caplog.records if hasattr(one, "audit")]
    assert [(one["action"], one["app"], one["version"]) for one in told] == [
        ("template_rejected", "shop", template.version),
        ("template_confirmed", "shop", template.version),
    ]


async def test_a_form_of_another_origin_or_without_its_key_changes_nothing(tmp_path):
    template, _ = learned()

    async with world_now(tmp_path) as w:
        await w.templates.put_template(template)
        fields = {"app": "shop", "version": template.version}
        await w.post("/prompts/reject", fields, status=403)
        whole = (await w.page("/prompts")).form("/prompts/reject")
        await w.post("/prompts/reject", whole, status=403, origin="http://evil.example")
        await w.post("/prompts/reject", whole | {"version": "none"}, status=404)
        assert [one.state for one in (await w.templates.templates())] == ["learned"]


async def test_with_a_token_only_who_is_let_in_sees_it(tmp_path):
    async with world_now(tmp_path, token="correct horse battery") as w:
        answers = [await w.client.get(path) for path in ("/prompts", "/api/templates")]
        assert [answer.status_code for answer in answers] == [401, 401]


async def test_what_it_is_given_is_escaped(tmp_path):
    evil = StoredTemplate(
        app=EVIL,
        version="v<b>",
        kind="u",
        literals=(f"\x02{EVIL}", EVIL, "\x04"),
        slots=("passages", "question"),
        split={"kind": "marker", "words": EVIL},
        seen=1,
        learned_at=NOW,
    )

    async with world_now(tmp_path) as w:
        await w.templates.put_template(evil)
        first = await w.page("/prompts", accept="text/html")
        page, other = first, await w.client.get("/prompts", params={"app": EVIL})
    assert other.status_code == 200
    assert "<script>alert" not in other.text
    assert EVIL in page.text
    assert not [one for one in page.all("img") if "onerror" in one]


async def test_an_app_without_passages_is_pointed_to_the_form(tmp_path):
    async with world_now(tmp_path) as w:
        w.answered(20, app="shop & co")
        await w.look()
        page, overview = await w.page("/prompts"), await w.page("/")
    assert "100 % of app shop & co's answers have no passages" in page.words
    assert {"href": "/prompts?app=shop%20%26%20co#describe"} in page.all("a")
    assert {"href": "/prompts?app=shop%20%26%20co"} in overview.all("a")


def snippet(text):
    """The entry to copy, out of the page's source."""
    import html

    (found,) = re.findall(r"gaugeway.toml</figcaption>\s*<pre[^>]*><code>(.*?)</code>", text, re.DOTALL)
    (entry,) = tomllib.loads(html.unescape(found))["capture"]["templates"]
    return msgspec.convert(entry, UserTemplate)


async def test_the_form_begins_with_what_the_latest_prompts_share_and_finds_what_it_says(tmp_path):
    samples = unread(4)

    async with world_now(tmp_path) as w:
        await keep(w, samples)
        page = await w.page("/prompts?app=shop")
        first = snippet((await w.client.get("/prompts?app=shop")).text)
        answer = await w.send(
            "/prompts?app=shop",
            "/prompts/test",
            status=200,
            pattern=first.pattern,
            kind="separator",
            between="\\n+++\\n",
        )
        _, tested_page = page, answer.text
    question, passages = prompts.asked(3)
    assert f"{len(passages)} passages" in tested_page
    assert samples[3].id in tested_page
    assert question in tested_page
    assert snippet(tested_page) == msgspec.structs.replace(first, separator=prompts.BETWEEN, read_as=None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pattern": "(", "kind": "separator"}, "no regular expression"),
        ({"pattern": "a", "kind": "separator"}, "no group"),
        ({"pattern": "x(?P<contexts>.*)", "kind": "read_as", "between": "prose"}, "none of data"),
        ({"pattern": "nowhere(?P<contexts>.*)", "kind": "separator"}, "does not match the prompt"),
    ],
)
async def test_a_mistake_is_named_and_the_fields_stay(tmp_path, fields, said):
    async with world_now(tmp_path) as w:
        await keep(w, unread(1))
        page = (await w.send("/prompts?app=shop", "/prompts/test", status=200, **fields)).text
    assert said in page
    assert fields["pattern"].replace("<", "&lt;").replace(">", "&gt;") in page


async def test_without_an_exchange_the_entry_is_checked_all_the_same(tmp_path):
    async with world_now(tmp_path) as w:
        fields = {"pattern": "Facts:(?P<contexts>.*)", "kind": "separator_pattern", "between": r"\n\d+\. "}
        page = (await w.send("/prompts?app=new", "/prompts/test", status=200, **fields)).text
    assert "no stored exchange" in page
    assert snippet(page).separator_pattern == r"\n\d+\. "


def test_what_was_learned_is_the_entry_to_begin_with():
    template, samples = learned()
    entry = prefilled("shop", [template], samples).entry
    sample = next(one for one in samples if one.context_source == "learned")
    found = applied(entry, sample).found
    assert (found.question, found.contexts) == (sample.question, sample.contexts)


def test_a_stored_prompt_is_put_together_again():
    for number, sample in enumerate(learned()[1]):
        assert prompt_texts(sample) == [("user", prompts.prompt(number))]
    assert prompt_texts(replace(learned()[1][0], capture=None, question="blake2b:00")) == []


def test_line_breaks_of_browsers_are_line_breaks():
    entry = entry_of({"name": " n ", "pattern": "a\r\nb", "kind": "separator", "between": "\\n--\\n"})
    assert entry == UserTemplate("n", "a\nb", separator="\n--\n")
    assert [entry_of({"name": "n", "pattern": "a", "clean": said}).clean for said in ("1", "")] == [True, False]


async def test_while_the_templates_are_away_the_form_is_there(tmp_path):
    async with world_now(tmp_path) as w:
        (tmp_path / "templates.db").mkdir()
        page, answer = await w.page("/prompts?app=shop"), await w.client.get("/api/templates")
    assert "cannot be reached" in page.words
    assert page.form("/prompts/test")["app"] == "shop"
    assert answer.status_code == 503


async def test_the_api_lists_confirms_and_rejects(tmp_path):
    template, _ = learned()

    async with world_now(tmp_path) as w:
        await w.templates.put_template(template)
        where = f"/api/templates/{template.version}"
        said = [(await w.client.get("/api/templates", params={"app": app})).json() for app in ("shop", "nobody")]
        states = []
        for action in ("confirm", "reject"):
            answer = await w.client.post(f"{where}/{action}", params={"app": "shop"})
            states.append((answer.json(), (await w.templates.templates())[0].state))
        statuses = [
            (await w.client.post(f"{where}/confirm", params={"app": "nobody"})).status_code,
            (await w.client.post(f"{where}/confirm")).status_code,
            (
                await w.client.post(f"{where}/confirm", params={"app": "shop"}, headers={"origin": "http://e"})
            ).status_code,
        ]
        (mine, nobodys), state = said, (await w.templates.templates())[0].state
    assert [msgspec.convert(one, StoredTemplate) for one in mine] == [template]
    assert nobodys == []
    assert states == [({"state": "confirmed"}, "confirmed"), ({"state": "rejected"}, "rejected")]
    assert statuses == [404, 400, 403]
    assert state == "rejected"


def test_the_page_loads_the_gateways_code_with_its_first_prompt_only():
    look = "import sys, monitors.app, dashboards.web.app; print([one for one in sys.modules if one[:7] == 'gateway'])"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
