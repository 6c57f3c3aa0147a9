"""`gaugeway templates` on what was learned of real requests."""

import asyncio
import contextlib
import json
import tomllib

import msgspec
import pytest
from click.testing import CliRunner

from gateway import config as configuration
from gateway.capture.factory import capture_of, template_form
from gateway.capture.stored_templates import learned_of
from gaugeway.cli.main import main
from gaugeway.storage.templates import StoredTemplate, open_templates
from tests.gateway.handoff.test_template_sync import LEARNS, SETTINGS, recording
from tests.support import prompts
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres

UPSTREAM = '[[upstreams]]\nbase_url = "http://127.0.0.1:9"\n'


class Place:
    """Where a template that was learned of requests is kept, and one of another release beside it."""

    def __init__(self, directory, url):
        self.directory, self.url = directory, url or f"sqlite:///{directory}/store.db"
        self.config = directory / "gaugeway.toml"
        self.config.write_text(UPSTREAM + (f'[store]\nurl = "{url}"\n' if url else ""))
        events = []
        capture = capture_of(SETTINGS, "key", events.append)
        for number in range(LEARNS):
            capture.make(capture.read(recording(number)))
        (event,) = events
        self.template = template_form(SETTINGS, "key")(event.template)
        self.other = msgspec.structs.replace(self.template, app="other", version="w", split={"kind": "unheard-of"})
        self.run(lambda kept: kept.put_template(self.template))
        self.run(lambda kept: kept.put_template(self.other))

    def run(self, use):
        async def run():
            kept = open_templates(self.url)
            try:
                return await use(kept)
            finally:
                await kept.aclose()

        return asyncio.run(run())

    def __call__(self, *arguments):
        options = ["--config", self.config, "--data-dir", self.directory]
        return CliRunner().invoke(main, ["templates", *map(str, [*arguments, *options])])

    def state(self):
        return {one.version: one.state for one in self.run(lambda kept: kept.templates())}[self.template.version]


@pytest.fixture(params=["sqlite", "postgresql", "clickhouse"])
def place(request, tmp_path):
    engines = {"postgresql": postgres, "clickhouse": clickhouse}
    return Place(tmp_path, engines[request.param]().database() if request.param in engines else None)


@pytest.fixture
def embedded(tmp_path):
    return Place(tmp_path, None)


def test_they_are_listed_by_app(place):
    answer = place("list")
    assert answer.exit_code == 0, answer.output
    head, *rows = answer.output.splitlines()
    assert head.split()[:3] == ["APP", "VERSION", "STATE"]
    assert [row.split()[:3] for row in rows] == [["other", "w", "learned"], ["shop", place.template.version, "learned"]]
    assert "+++" in rows[1]
    listed = json.loads(place("list", "--app", "shop", "--json").output)
    assert [(one["app"], one["seen"], one["stale"]) for one in listed] == [("shop", place.template.seen, False)]
    assert "no templates" in place("list", "--app", "nobody").output


def test_one_is_shown_with_its_slots(embedded):
    answer = embedded("show", "shop", embedded.template.version)
    assert answer.exit_code == 0, answer.output
    whole = f"{prompts.OPENING}[[passages]]{prompts.CLOSING}[[question]]{prompts.END}"
    assert f"--- user\n{whole}\n" in answer.output
    said = json.loads(embedded("show", "shop", embedded.template.version, "--json").output)
    assert said["messages"] == [{"role": "user", "text": whole}]


def test_an_exported_one_passes_the_check_and_captures_the_same(embedded):
    answer = embedded("export", "shop", embedded.template.version)
    assert answer.exit_code == 0, answer.output
    tomllib.loads(answer.stdout)
    embedded.config.write_text(f"{UPSTREAM}[capture]\nlearn = false\n\n{answer.stdout}")
    checked = CliRunner().invoke(main, ["check", "--config", str(embedded.config)])
    assert checked.exit_code == 0, checked.output
    capture = capture_of(configuration.load(embedded.config).capture, "key")
    for number in range(500, 520):
        sample = capture.make(capture.read(recording(number)))
        question, passages = prompts.asked(number)
        assert (sample.context_source, sample.question) == ("patterns", question)
        assert [one.text for one in sample.contexts] == passages


def test_all_are_exported_but_what_was_rejected_and_what_cannot_be_is_named(embedded):
    answer = embedded("export")
    assert answer.exit_code == 1
    assert "template w of app other is not exported" in answer.stderr
    assert len(tomllib.loads(answer.stdout)["capture"]["templates"]) == 1
    assert embedded("reject", "shop", embedded.template.version).exit_code == 0
    assert "shop" not in embedded("export").stdout


def test_a_person_decides_and_that_is_in_the_audit_log(place):
    version = place.template.version
    for action, state in (("reject", "rejected"), ("confirm", "confirmed")):
        answer = place(action, "shop", version)
        assert answer.exit_code == 0, answer.output
        assert place.state() == state
    lines = [json.loads(line) for line in (place.directory / "audit.log").read_text().splitlines()]
    told = [(line["action"], line["app"], line["version"]) for line in lines]
    assert told == [("template_rejected", "shop", version), ("template_confirmed", "shop", version)]


@pytest.mark.parametrize(
    "arguments",
    [("show", "shop", "v9"), ("confirm", "nobody", "v"), ("reject", "shop", "v9"), ("export", "shop", "v9")],
)
def test_what_is_not_there_is_told(embedded, arguments):
    answer = embedded(*arguments)
    assert answer.exit_code == 2
    assert "gaugeway templates list" in answer.output


def test_one_of_another_release_is_listed_and_not_shown(embedded):
    answer = embedded("show", "other", "w")
    assert answer.exit_code == 2
    assert "another release" in answer.output
    assert learned_of(embedded.other) is None


def test_without_a_data_directory_nothing_is_made(tmp_path):
    answer = CliRunner().invoke(main, ["templates", "list", "--data-dir", str(tmp_path / "none")])
    assert answer.exit_code == 2
    assert "nothing was captured here" in answer.output
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("word", ["confirm", "reject"])
def test_a_request_that_the_judge_marked_is_no_template_to_decide_on(tmp_path, word):
    async def store():
        async with contextlib.aclosing(open_templates(f"sqlite:///{tmp_path}/store.db")) as kept:
            await kept.put_template(
                StoredTemplate(
                    app="shop",
                    version="m1",
                    kind="k",
                    literals=("text",),
                    slots=(),
                    split={},
                    seen=20,
                    learned_at=1.0,
                    state="marked",
                )
            )

    asyncio.run(store())
    done = CliRunner().invoke(main, ["templates", word, "shop", "m1", "--data-dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "has no template" in done.output
