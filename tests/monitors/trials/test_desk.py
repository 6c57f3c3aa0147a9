"""What a person writes becomes a trial, or a line that names the field; and what became of it is reported."""

import pytest

from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Config, Judge, Price, Sampled
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.trials import Trials
from monitors.trials import desk, judging
from monitors.trials.desk import begin, changes_of, checked, definition, key_of, report
from tests.gaugeway.storage.test_trials import answer, trial
from tests.monitors.trials.test_judging import catalogue
from tests.support.trials import Spoken, arm

HERE = "http://127.0.0.1:9/v1"
UPSTREAMS = (
    {"name": "live", "base_url": HERE, "api_key": "sk-live"},
    {"name": "other", "base_url": "http://127.0.0.1:8/v1"},
)
CONFIG = Config(upstreams=UPSTREAMS, prices={"candidate-*": {"input": 1.0, "output": 2.0}})
GIVEN = {"name": "t", "app": "shop", "primary": "spoken", "usd": 5, "send": "redacted"}
MODEL = {"model": "candidate-1"}
EVERY = catalogue(Spoken())


def test_a_short_text_is_filled_in():
    made = definition(GIVEN | {"arms": [MODEL]}, CONFIG, 1000.0)
    (one,) = made.arms
    assert (one.base_url, one.api_key, one.price) == (HERE, "upstream:live", Price(input=1.0, output=2.0))
    assert (made.judge_usd, made.started_at, made.until) == (5, 1000.0, 1000.0 + 14 * 86_400)
    assert definition(GIVEN | {"arms": [MODEL], "days": 0.5}, CONFIG, 1000.0).until == 1000.0 + 43_200
    assert key_of(one.api_key, CONFIG) == "sk-live"


def test_an_arm_may_name_an_upstream_or_an_address():
    named = definition(GIVEN | {"arms": [MODEL | {"upstream": "other"}]}, CONFIG, 0.0).arms[0]
    assert (named.base_url, key_of(named.api_key, CONFIG)) == ("http://127.0.0.1:8/v1", None)
    written = MODEL | {"base_url": "http://a/v1", "api_key": "${KEY}"}
    assert definition(GIVEN | {"arms": [written]}, CONFIG, 0.0).arms[0].api_key == "${KEY}"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"send": None}, "send"),
        ({"usd": -1}, "usd"),
        ({"usd": "much"}, "usd"),
        ({"margin": 2}, "margin"),
        ({"days": "soon"}, "days"),
        ({"days": [1]}, "days"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"arms": "x"}, "arms"),
        ({"arms": [1]}, "arms"),
        ({"arms": {"model": "m"}}, "arms"),
        ({"arms": [{"upstream": "gone"}]}, "arms.upstream"),
        ({"arms": [{"model": "unpriced"}]}, "arms.price"),
        ({"arms": [MODEL | {"max_contexts": -1}]}, "max_contexts"),
        ({"arms": [MODEL | {"price": 7}]}, "price"),
        ({"arms": [MODEL | {"params": 7}]}, "params"),
        ({"arms": [MODEL] * 5}, "arms"),
        ({"app": None}, "app"),
        ({"name": 7}, "name"),
    ],
)
def test_what_is_wrong_names_its_field(more, field):
    with pytest.raises(ValueError, match=field):
        definition({"arms": [MODEL]} | GIVEN | more, CONFIG, 0.0)


@pytest.mark.parametrize("name", ["base_url", "api_key"])
def test_over_the_network_no_address_and_no_key_may_be_named(name):
    with pytest.raises(ValueError, match=rf"^arms.{name}: only the command"):
        definition(GIVEN | {"arms": [MODEL | {name: "http://evil/v1"}]}, CONFIG, 0.0, remote=True)
    assert definition(GIVEN | {"arms": [MODEL]}, CONFIG, 0.0, remote=True).arms[0].base_url == HERE


def problems(made, config=CONFIG):
    with pytest.raises(ConfigError) as wrong:
        checked(made, config, EVERY)
    return wrong.value.problems


def test_every_problem_is_said_at_once(monkeypatch):
    monkeypatch.delenv("GAUGEWAY_TRIALS_KEY", raising=False)
    made = trial("Bad", send="original", primary="unheard_of", arms=(arm("ftp://a", api_key="sk-plain"),))
    fields = [problem.partition(":")[0] for problem in problems(made, Config(capture=Sampled(content=False)))]
    assert fields == ["name", "primary", "send", "send", "arms.candidate.api_key", "arms.candidate.base_url"]


def test_a_key_is_a_placeholder_with_a_value(monkeypatch):
    made = trial(primary="spoken", arms=(arm(HERE, api_key="${CANDIDATE_KEY}"),))
    monkeypatch.delenv("CANDIDATE_KEY", raising=False)
    assert "has no value" in problems(made)[0]
    monkeypatch.setenv("CANDIDATE_KEY", "sk")
    assert checked(made, CONFIG, EVERY).metrics == ("spoken",)
    assert "must not be stored" in problems(trial(primary="spoken", arms=(arm(HERE, api_key="a${CANDIDATE_KEY}"),)))[0]


def test_a_checked_trial_says_which_metrics_it_has(monkeypatch):
    monkeypatch.setenv("CANDIDATE", "sk")
    every = catalogue(Spoken(), Spoken("second"), Spoken("free", judge=None))
    config = Config(judge=Judge(base_url=HERE, model="j"))
    made = trial(primary="spoken", arms=(arm(HERE),))
    assert checked(made, CONFIG, every).metrics == ("spoken", "second")
    named = trial(primary="spoken", metrics=("preference", "free"), arms=(arm(HERE),))
    assert checked(named, config, every).metrics == ("spoken", "free", "preference")
    alone = checked(trial(primary="spoken", metrics=("spoken",), arms=(arm(HERE),)), CONFIG, every)
    assert [*judging.metrics_of(alone, every)] == ["spoken"], "who names one is not judged, and billed, by all"


def test_changes_are_said_without_the_prompts_words():
    made = arm(HERE, model="b", max_contexts=2, drop_source="a.md", params={"temperature": 0}, system_prompt="Secret.")
    said = ["model = b", "max_contexts = 2", "drop_source = a.md", "temperature = 0", "another system prompt"]
    assert changes_of(made) == said
    assert changes_of(arm(HERE)) == ["another address"]


async def test_a_report_counts_everything(tmp_path):
    trials = Trials(SQLiteDocuments(tmp_path))
    await trials.start(trial(primary="spoken", arms=(arm(HERE),)))
    states = ["answered", "answered", "failed:timeout", "no_answer:refusal", "lost"]
    for number, state in enumerate(states):
        name = f"x{number}"
        await trials.claim(trial(), "candidate", name, 0.0, 0.0)
        unscored = {"unscored": {"spoken": "unreadable"}} if number == 1 else {}
        scores = {"scores": {"spoken": [0.5, 0.5]}} if number == 0 else {}
        await trials.settle("t", answer(name, state, usd=0.1, judge_usd=0.01, facts=scores | unscored))
    made = await report(trials, await trials.get("t"), EVERY)
    (one,) = made.arms
    assert (one.tried, one.answered, one.host) == (5, 2, "127.0.0.1:9")
    assert one.not_answered == {"failed:timeout": 1, "no_answer:refusal": 1, "lost": 1}
    assert one.unscored == {"spoken: unreadable": 1}
    assert (one.usd, one.judge_usd) == (pytest.approx(0.5), pytest.approx(0.05))
    assert (made.verdict, made.state, made.waiting) == ("not yet", "running", 0)
    await trials.aclose()


async def test_trials_of_the_configuration_start_once(tmp_path):
    trials = Trials(SQLiteDocuments(tmp_path))
    config = Config(upstreams=UPSTREAMS, prices=CONFIG.prices)
    wanted = [GIVEN | {"arms": [MODEL]}]
    assert await begin(trials, wanted, config, EVERY) == ["t"]
    assert await begin(trials, wanted, config, EVERY) == []
    assert await begin(trials, [], config, EVERY) == []
    assert [stored.trial.app for stored in await trials.all()] == ["shop"]
    with pytest.raises(ValueError, match="send"):
        await begin(trials, [{"name": "u", "arms": [MODEL]}], config, EVERY)
    assert desk.upstreams_of(config).keys() == {"live", "other"}
    await trials.aclose()


@pytest.mark.parametrize("name", ["model", "n", "stream", "messages", "api_key", "base_url", "fallbacks", "metadata"])
def test_an_arm_changes_only_members_that_neither_redirect_nor_multiply_what_is_sent(monkeypatch, name):
    monkeypatch.setenv("CANDIDATE", "sk")
    with pytest.raises(ConfigError, match=rf"arms.candidate.params.{name}: a trial cannot change it"):
        checked(trial(primary="spoken", arms=(arm(HERE, params={name: 1}),)), CONFIG, EVERY)


def test_an_address_holds_no_password(monkeypatch):
    monkeypatch.setenv("CANDIDATE", "sk")
    with pytest.raises(ConfigError, match="must not contain a user or a password"):
        checked(trial(primary="spoken", arms=(arm("http://user:secret@127.0.0.1:9/v1"),)), CONFIG, EVERY)
