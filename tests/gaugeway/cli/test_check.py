"""`gaugeway check` names every mistake at once."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gaugeway.extensions import EXTRAS
from gaugeway.settings import child_environment
from gaugeway.signals import SIGNALS
from tests.support.commands import check, problems_of

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
UPSTREAM = '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n'
SLO = '[[alerts.rules]]\nmetric = "lexical_groundedness"\nslo = 0.5\n'
MANY = """
typo = 1
[gateway]
port = "8080"
workers = 0
admin_port = 9465
[gatway]
port = 1
[[upstreams]]
base_url = "http://127.0.0.1:9/v1/chat/completions"
api_key = "${NOT_SET}"
[[upstreams]]
name = "second"
base_url = "http://localhost:9465/v1"
api_key = "${EMPTY}"
[judge]
base_url = "api.openai.com/v1"
model = "gpt-4o "
budget_usd_per_day = 3
anchors = "/not/there"
[judge.small]
base_url = "https://api.openai.com/v1"
model = "gpt-4o-mini"
[embeddings]
base_url = " http://127.0.0.1:9/v1"
model = "m"
[metrics.faithfulness]
rate = 20
[metrics.faithfullness]
[queue]
lease_s = "long"
url = "mysql://host/db"
[store]
url = "mysql://host/db"
[limits]
url = "mysql://host/db"
[keys]
url = "mysql://host/db"
[[alerts.rules]]
metric = "faithfulness"
[[notifiers]]
kind = "nothing"
[[sinks]]
kind = "nothing"
url = "http://127.0.0.1:9"
[[sinks]]
kind = "nothing either"
url = "http://127.0.0.1:9"
[telemetry]
otlp_endpoint = "127.0.0.1:4318"
"""
NAMED = (
    "typo: unknown key",
    "gateway.port: Expected `int`, got `str`",
    "gateway.workers: Expected `int` >= 1",
    "gatway: unknown key; did you mean 'gateway'?",
    "upstreams[0].base_url: ends in /chat/completions",
    "upstreams[0].api_key: the environment variable NOT_SET is not set",
    "upstreams[1].base_url: this is Gaugeway itself (gateway.admin_port)",
    "upstreams[1].api_key: the environment variable EMPTY is empty",
    "judge.base_url: expected an http(s) URL",
    "judge.model: begins or ends with a space",
    "judge.budget_usd_per_day: needs judge.price_in",
    "judge.anchors: ",
    "judge.small.api_key: missing",
    "embeddings.base_url: begins or ends with a space",
    "metrics.faithfulness.rate: Expected `float` <= 1.0",
    "metrics.faithfullness: unknown metric",
    "queue.lease_s: Expected `float`, got `str`",
    "queue.url: unsupported URL scheme",
    "store.url: unsupported URL scheme",
    "limits.url: unsupported URL scheme",
    "keys.url: unsupported URL scheme",
    "alerts.rules[0]: give either slo or baseline",
    "notifiers[0].kind: ",
    "sinks[0].kind: ",
    "sinks[1].kind: ",
    "telemetry.otlp_endpoint: expected an http(s) URL",
    "monitors.port: port 9465 is already used by gateway.admin_port",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.chdir(tmp_path)


def test_every_mistake_is_named_in_one_run():
    problems = problems_of(MANY)
    assert [one for one in NAMED if not any(line.startswith(one) for line in problems)] == []
    assert [line for line in problems if not line.startswith(NAMED)] == [], "nothing that only follows from another"


def test_each_mistake_is_named_by_itself_as_well():
    assert problems_of(f"{UPSTREAM}[metrics.faithfulness]\nrate = 20\n") == [
        "metrics.faithfulness.rate: Expected `float` <= 1.0, got 20; 20 % is 0.2"
    ]
    assert problems_of(f"{UPSTREAM}[judge]\nbase_url = 'https://api.openai.com/v1'\nmodel = 'm'\n")[0].startswith(
        "judge.api_key: missing"
    )
    assert problems_of(f"{UPSTREAM}[gateway]\nadmin_port = 8080\n") == [
        "gateway.admin_port: port 8080 is already used by gateway.port"
    ]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[gateway]\nmax_pending_body_bytes = 5", ["gateway.max_pending_body_bytes: 5 is less than one body may have"]),
        ('[gateway]\nhost = "999.1.1.1"', ["gateway.host: looks like an IP address and is none"]),
        ('[gateway]\nadmin_host = "a b"', ["gateway.admin_host: is neither an IP address nor a host name"]),
        ('[monitors]\nhost = "localhost:9"', ["monitors.host: expected an IP address or a host name alone"]),
        (
            '[monitors]\ngateways = ["http://[:::"]',
            ["monitors.gateways[0]: expected an http(s) URL such as http://127"],
        ),
        ('[monitors]\npublic_url = "http://[:::"', ["monitors.public_url: expected an http(s) URL"]),
        (
            '[monitors]\ngrafana_url = "https://g.example/?orgId=2"',
            ["monitors.grafana_url: expected an address without"],
        ),
        ('[monitors]\ngrafana_url = "https://u:p@g.example"', ["monitors.grafana_url: expected an address without"]),
        ('[monitors]\ngrafana_url = "javascript:alert(1)"', ["monitors.grafana_url: expected a URL that starts with"]),
        ('[alerts]\nrunbook_url = "http://300.1.1.1"', ["alerts.runbook_url: its host looks like an IP address"]),
        (
            '[capture]\nredact = ["emial", "ip", "x"]\nredact_patterns = {a = "(", b = "x", C = "y"}\nsalt = ""',
            [
                f"capture.{key}: "
                for key in ("redact[0]", "redact[2]", "redact_patterns.a", "redact_patterns.C", "salt")
            ],
        ),
        (
            '[capture]\nsample_by = "conversation"\nnested_with_otel = true',
            ['capture.nested_with_otel: removed; use sample_by = "trace"'],
        ),
        (
            '[[capture.templates]]\nname = " "\nseparator = ""\npattern = "("',
            [f"capture.templates[0].{key}: " for key in ("name", "separator", "pattern")],
        ),
        (
            '[[upstreams]]\nname = "b"\nbase_url = " http://127.0.0.1:9/v1/models"',
            ["upstreams[1].base_url: begins or ends with a space", "upstreams[1].base_url: ends in /models"],
        ),
        (
            '[[upstreams]]\nname = "b"\nbase_url = "http://127.0.0.1:9/v1/models?a=b"',
            ["upstreams[1].base_url: a base URL has no query", "upstreams[1].base_url: ends in /models"],
        ),
        (
            '[[upstreams]]\nname = "b"\nbase_url = "http://127.0.0.1:9/v1"\napi_key = " \\u00fck\\n"',
            [
                "upstreams[1].api_key: has a line break",
                "upstreams[1].api_key: has a character beyond ASCII",
                "upstreams[1].api_key: begins or ends with a space",
            ],
        ),
        (
            '[judge]\nmodel = "m"\nbase_url = "https://api.openai.com/v1/responses"',
            ["judge.base_url: ends in /responses", "judge.api_key: missing: this provider"],
        ),
        (
            '[metrics.zzz]\nobjective = 2\n[[alerts.rules]]\nmetric = "yyy"\nslo = 2',
            [
                "metrics.zzz.objective: ",
                "alerts.rules[0].slo: ",
                "metrics.zzz: unknown metric",
                "alerts.rules[0].metric: metric 'yyy' is not enabled",
            ],
        ),
        (
            '[[alerts.rules]]\nmetric = "lexical_groundedness"\nslo = 2\n' * 2,
            [f"alerts.rules[{i}].slo: " for i in (0, 1)],
        ),
        (
            f"{SLO}options = {{n = 3}}",
            ["alerts.rules[0].options.n: unknown option; there are none"],
        ),
        (
            f'{SLO}detector = "threshold"\noptions = {{leats = 3, n = "a", window = 3}}',
            [
                "alerts.rules[0].options.leats: unknown option; did you mean 'least'?",
                "alerts.rules[0].options.n: Expected `int | null`, got `str`",
                "alerts.rules[0].options.window: unknown option; known: n, seconds, least",
            ],
        ),
        (
            '[[sinks]]\nkind = "phoenix"\nurl = "http://[:::"\nsecret_key = "s"',
            ["sinks[0].secret_key: unknown option; known: api_key,", "sinks[0].url: cannot be read"],
        ),
        (
            '[[sinks]]\nkind = "langfuse"\nurl = "ftp://h"',
            [f"sinks[0].{key}: " for key in ("public_key", "secret_key", "url")],
        ),
        (
            '[judge]\nmodel = "m"\nbudget_usd_per_day = 3\nanchors = "/not/there"',
            ["judge.base_url: needed for a judge", "judge.budget_usd_per_day: needs judge.price_in", "judge.anchors: "],
        ),
    ],
)
def test_all_that_is_wrong_with_a_table_or_a_value_is_named(text, problems):
    found = problems_of(f"{UPSTREAM}{text}\n")
    assert len(found) == len(problems), found
    assert [(one, start) for one, start in zip(found, problems, strict=True) if not one.startswith(start)] == []


JUDGE = "[judge]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\n"


@pytest.mark.parametrize(
    ("name", "option"), [("faithfulness", ""), ("context_recall", ""), ("geval:tone", "criteria = 'c'\n")]
)
def test_a_metric_without_the_judge_that_it_needs_is_named(name, option):
    table = f"[metrics.'{name}']\n{option}"
    rule = f"[[alerts.rules]]\nmetric = '{name}'\nslo = 0.5\n"
    assert problems_of(f"{UPSTREAM}{table}{rule}") == [
        f"metrics.{name}: needs a judge, and none is configured: it does not run"
    ]
    assert problems_of(f"{UPSTREAM}{table}[judge]\nmodel = '${{NOT_SET}}'\n") == [
        "judge.model: the environment variable NOT_SET is not set",
        "judge.base_url: needed for a judge (or leave out the whole table)",
    ]
    assert check(f"{UPSTREAM}{table}{JUDGE}").exit_code == 0
    assert check(f"{UPSTREAM}{table}enabled = false\n").exit_code == 0


def test_a_metric_without_the_embeddings_that_it_needs_is_named():
    table = "[metrics.answer_similarity]\n"
    assert problems_of(f"{UPSTREAM}{table}") == [
        "metrics.answer_similarity: needs embeddings, and none are configured: it does not run"
    ]
    (problem,) = problems_of(f"{UPSTREAM}{table}[embeddings]\nbase_url = 'http://127.0.0.1:9/v1'\n")
    assert problem.startswith("embeddings")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[capture]\nrate = 1.5", "capture.rate: Expected `float` <= 1.0, got 1.5; 1.5 % is 0.015"),
        ("[capture]\nrate = -0.1", "capture.rate: Expected `float` >= 0.0, got -0.1"),
        ("[gateway]\nport = 80800", "gateway.port: Expected `int` <= 65535, got 80800"),
        ("[capture]\nrate = true", "capture.rate: Expected `float`, got `bool`"),
        (
            "[[alerts.rules]]\nmetric = 'lexical_groundedness'\nthreshold = 0.8",
            "alerts.rules[0].threshold: unknown key; did you mean 'slo'?",
        ),
        (
            "[[alerts.rules]]\nmetric = 'faithfulness'\nslo = 0.8",
            "alerts.rules[0].metric: metric 'faithfulness' is not enabled; add [judge]",
        ),
        (
            "[[alerts.rules]]\nmetric = 'answer_similarity'\nslo = 0.8",
            (
                "alerts.rules[0].metric: metric 'answer_similarity' is not enabled; "
                "add [embeddings] and [metrics.answer_similarity]"
            ),
        ),
        (
            f"{JUDGE}[metrics.faithfulness]\nenabled = false\n[[alerts.rules]]\nmetric = 'faithfulness'\nslo = 0.8",
            (
                "alerts.rules[0].metric: metric 'faithfulness' is not enabled; "
                "remove enabled = false from [metrics.faithfulness]"
            ),
        ),
        (
            "[[alerts.rules]]\nmetric = 'faithful'\nslo = 0.8",
            (
                "alerts.rules[0].metric: metric 'faithful' is not enabled; enabled: abstained, addresses_judge, "
                "contexts_per_answer, expensive, language_mismatch, lexical_groundedness, no_contexts, "
                "retriever_score, slow, tool_empty, tool_invalid, tool_repeated, tool_unknown, truncated"
            ),
        ),
    ],
)
def test_a_message_names_the_fix(text, problem):
    assert problems_of(f"{UPSTREAM}{text}\n") == [problem]


def test_what_a_metric_needs_to_be_enabled_enables_it():
    rule = "[[alerts.rules]]\nmetric = '{}'\nslo = 0.5\n"
    tables = {
        "faithfulness": JUDGE,
        "context_recall": f"{JUDGE}[metrics.context_recall]\n",
        "precision@5": "[metrics.'precision@5']\n",
        "grounding": f"{JUDGE}[judge.grounding]\nkind = 'minicheck'\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\n",
    }
    for metric, table in tables.items():
        (problem,) = problems_of(UPSTREAM + rule.format(metric))
        named = problem.partition("; add ")[2].replace('"', "'").split(" and ")
        assert named, problem
        assert all(one in table for one in named), problem
        assert check(UPSTREAM + table + rule.format(metric)).exit_code == 0, problem


def test_a_body_may_grow_beyond_the_default_for_pending_ones():
    assert check(f"{UPSTREAM}[gateway]\nmax_body_bytes = {4 * 1024**3}\n").exit_code == 0


RULE = '[[alerts.rules]]\nmetric = "lexical_groundedness"\nbaseline = "{}"\n'
OWN = """
class Raising:
    def __init__(self, **options):
        raise KeyError("canary-4711")

    async def notify(self, alert):
        pass
"""


def test_rules_of_one_name_are_a_problem_among_the_others():
    name = "'lexical_groundedness-drop'"
    assert problems_of(f"typo = 1\n{UPSTREAM}{RULE.format('auto')}{RULE.format('window')}")[1:] == [
        f"alerts.rules[1].name: alerts.rules[0] is called {name}, too; give one of them another name"
    ]


def test_rules_of_ones_own_say_which_default_rules_they_remove():
    metrics = "".join(f"[metrics.{name}]\nenabled = false\n" for name in ("hallucination", "answer_relevancy"))
    off = f"[signals]\noff = {json.dumps([name for name in SIGNALS if name != 'slow'])}\n"
    text = f"{UPSTREAM}{JUDGE}{metrics}{off}"
    rule = "[[alerts.rules]]\nmetric = 'faithfulness'\nslo = 0.8\n"
    answer = check(text + rule)
    removed = "context_relevancy, lexical_groundedness, slow"
    of_one_app = check(f"{text}{rule}apps = ['shop']\n")
    assert "context_relevancy, faithfulness, lexical_groundedness" in of_one_app.stderr
    assert answer.stderr == (
        f"gaugeway: warning: alerts.rules: these rules remove the default rules on {removed}; to keep them set "
        "alerts.default_rules = true, to be without them false\n"
    )
    assert answer.exit_code == 0
    for line in ("default_rules = true", "default_rules = false"):
        assert check(f"{text}[alerts]\n{line}\n{rule}").stderr == ""
    for plain in ("", "[alerts]\nrules = []\n"):
        assert check(text + plain).stderr == ""


@pytest.mark.parametrize(
    ("table", "key", "error"),
    [
        ('[metrics."own:Raising"]\n', "metrics.own:Raising", "KeyError"),
        ('[metrics."broken:Any"]\n', "metrics.broken:Any", "SyntaxError"),
        ('[metrics.".own:Raising"]\n', "metrics..own:Raising", "form 'package.module:Name'"),
        ('[[notifiers]]\nkind = "own:Raising"\n', "notifiers[0]", "KeyError"),
        ('[[sinks]]\nkind = "own:Raising"\nurl = "http://127.0.0.1:9"\n', "sinks[0]", "KeyError"),
        (RULE.format("auto") + 'detector = "own:Raising"\n', "alerts.rules[0].detector", "KeyError"),
        ('[capture]\nextractors = ["broken:Any"]\n', "capture.extractors[0]", "SyntaxError"),
    ],
)
def test_what_a_class_of_ones_own_raises_is_a_problem_among_the_others(tmp_path, monkeypatch, table, key, error):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("def")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    problems = problems_of(f"{UPSTREAM}{table}[gatway]\n")
    (found,) = [line for line in problems if line.startswith(f"{key}: ")]
    assert error in found
    assert "canary" not in found
    assert any(line.startswith("gatway: ") for line in problems)


@pytest.mark.parametrize(
    ("key", "tables"),
    [
        ("rate = 20", "[capture] or [metrics.NAME]"),
        ("requests_per_min = 5", "[limits] or [limits.apps.NAME]"),
        (
            "base_url = 'http://h/v1'",
            "[embeddings] or [judge] or [judge.anchor] or [judge.grounding] or [judge.small] or [[upstreams]]",
        ),
        ("factor = 2", "[[judge.bias]]"),
        ("otlp_receiver = true", "[monitors]"),
    ],
)
def test_a_key_outside_of_its_table_names_the_tables_that_have_it(key, tables):
    name = key.partition(" ")[0]
    assert problems_of(f"{key}\n{UPSTREAM}") == [f"{name}: unknown key; it belongs in a table: {tables}"]


@pytest.mark.parametrize(
    ("table", "problems"),
    [
        ("base_url = 'http://127.0.0.1:9/v1'\nmodel = ''", ["judge.model: missing: it is empty"]),
        ("base_url = ''\nmodel = 'm'", ["judge.base_url: missing: it is empty"]),
        ("base_url = ''\nmodel = ''", ["judge.model: missing: it is empty", "judge.base_url: missing: it is empty"]),
        ("base_url = 'http://127.0.0.1:9/v1'", ["judge.model: needed for a judge (or leave out the whole table)"]),
    ],
)
def test_an_empty_judge_is_a_missing_one(table, problems):
    assert problems_of(f"{UPSTREAM}[judge]\n{table}\n") == problems


def test_it_says_whether_the_judge_sees_new_prompts():
    judge = "[judge]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\n"
    assert "ask_judge = false turns it off" in check(UPSTREAM + judge).output
    for off in ("", judge + "[capture]\nask_judge = false\n", judge + "[capture]\ncontent = false\n"):
        assert "ask_judge" not in check(UPSTREAM + off).output


def test_it_says_how_many_exchanges_the_judge_audits():
    judge = "[judge]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\n"
    assert "The judge sees 5 exchanges a day of each app" in check(UPSTREAM + judge).output
    for off in ("audits_per_day = 0", "ask_judge = false", "content = false"):
        assert "a day of each app" not in check(f"{UPSTREAM}{judge}[capture]\n{off}\n").output
    assert "a day of each app" not in check(UPSTREAM).output
    assert "capture.audits_per_day: " in check(f"{UPSTREAM}[capture]\naudits_per_day = 51\n").output


def test_a_word_that_is_not_known_lists_the_known_ones():
    groups = "'alertname', 'app', 'metric', 'rule', 'severity', 'slice'"
    assert problems_of(f"{UPSTREAM}[gateway]\nupstream_client = 'fast'\n[alerts]\ngroup_by = ['team']\n") == [
        "gateway.upstream_client: Invalid enum value 'fast'; expected one of 'native', 'httpx'",
        f"alerts.group_by[0]: Invalid enum value 'team'; expected one of {groups}",
    ]


def test_a_budget_without_prices_is_named():
    app = "[limits.apps.shop]\nusd_per_day = 2\n[limits.apps.free]\nusd_per_day = inf\n"
    problem = "usd_per_day: needs [prices]: without prices nothing is charged"
    assert problems_of(f"{UPSTREAM}[limits]\nusd_per_day = 5\n{app}") == [
        f"limits.{problem}",
        f"limits.apps.shop.{problem}",
    ]
    priced = check(f'{UPSTREAM}[limits]\nusd_per_day = 5\n{app}[prices."*"]\ninput = 1\n')
    assert priced.exit_code == 0, priced.output


@pytest.mark.parametrize(
    ("module", "table", "extra"),
    [
        ("asyncpg", '[store]\nurl = "postgresql://localhost/db"', "postgres"),
        ("asyncpg", '[keys]\nurl = "postgresql://localhost/db"', "postgres"),
        ("redis", '[queue]\nurl = "redis://localhost/0"', "redis"),
        ("redis", '[limits]\nurl = "redis://localhost/0"', "redis"),
        ("clickhouse_connect", '[store]\nurl = "clickhouse://localhost/db"', "clickhouse"),
        ("aiosmtplib", '[[notifiers]]\nkind = "email"\nhost = "h"\nsender = "a@b"\nrecipients = ["a@b"]', "email"),
        ("fastembed", '[embeddings]\nkind = "local"\nmodel = "m"', "local"),
        ("opentelemetry.exporter", '[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"', "otlp"),
        ("opentelemetry.proto", "[monitors]\notlp_receiver = true", "otlp"),
    ],
)
def test_a_missing_package_names_its_extra(module, table, extra):
    Path("given.toml").write_text(f"{UPSTREAM}{table}\n")
    code = (
        f"import sys\nsys.modules[{module!r}] = None\n"
        "from gaugeway.cli.main import main\nmain(['check', '--config', 'given.toml'])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=child_environment({"PYTHONPATH": str(ROOT)}),
        check=False,
    )
    assert answer.returncode == 2, answer.stderr
    assert f"pip install 'gaugeway[{extra}]'" in answer.stderr


def test_every_extra_of_the_distribution_is_known():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) == set(extras) - {"dev"}


def test_a_text_of_another_form_is_answered_with_the_form_in_words():
    text = f"{UPSTREAM}[alerts]\nslices = ['user']\n[monitors]\npublic_url = 'gaugeway.example.com'\n"
    assert sorted(problems_of(text)) == [
        "alerts.slices[0]: expected app, model, prompt or tag:NAME",
        "monitors.public_url: expected a URL that starts with http:// or https://",
    ]
