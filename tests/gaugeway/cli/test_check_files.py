"""`gaugeway check` on files: the configuration's own, those it names, and the data directory."""

import asyncio
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.config import load
from gaugeway.cli import main as cli
from gaugeway.cli.keys import keys
from gaugeway.cli.shared import data_dir_problem
from gaugeway.settings import ConfigError, child_environment
from gaugeway.settings import loading as monitors_config
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from tests.support.commands import check, commands, problems_of

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
UPSTREAM = '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n'
JUDGE = "[judge]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\n"
RULE = '[[alerts.rules]]\nmetric = "lexical_groundedness"\nbaseline = "{}"\n'


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("begin", ["\ufeff", ""])
def test_a_byte_order_mark_is_no_part_of_the_file(begin):
    assert check(f"{begin}{UPSTREAM}").exit_code == 0
    assert load(Path("given.toml")).upstreams[0].base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_of_utf_16_is_named_as_such(encoding):
    Path("given.toml").write_bytes(f"\ufeff{UPSTREAM}".encode(encoding))
    answer = CliRunner().invoke(cli.main, ["check", "--config", "given.toml"])
    assert answer.stderr == "gaugeway: given.toml: looks like UTF-16; save it as UTF-8\n"


def sqlite_file(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("table", ["store", "queue"])
def test_a_file_that_cannot_be_the_database_is_named(tmp_path, table):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "directory").mkdir()
    sqlite_file(tmp_path / "other", "PRAGMA application_id = 7", "CREATE TABLE a (b)")
    for path, reason in (
        ("/proc/data/x.db", "/proc/data cannot be written: "),
        (f"{tmp_path}/text/x.db", f"{tmp_path}/text cannot be written: Not a directory"),
        (f"{tmp_path}/directory", f"{tmp_path}/directory is a directory"),
        (f"{tmp_path}/text", f"{tmp_path}/text is not a SQLite database"),
        (f"{tmp_path}/other", f"{tmp_path}/other is not a "),
    ):
        (problem,) = problems_of(f'{UPSTREAM}[{table}]\nurl = "sqlite:///{path}"\n')
        assert problem.startswith(f"{table}.url: {reason}")


def test_a_file_that_is_not_a_database_in_the_data_directory_is_named():
    Path("data").mkdir()
    for name in ("store.db", "queue.db", "keys.db"):
        Path("data", name).write_text("hello")
    problems = problems_of(f"{UPSTREAM}[keys]\nenabled = true\n", "--data-dir", "data")
    assert problems == [
        f"{name}.url: the default: {Path('data', name).absolute()}.db is not a SQLite database"
        for name in ("store", "queue", "keys")
    ]


def test_a_file_that_cannot_hold_learned_templates_is_named(tmp_path):
    (tmp_path / "templates.db").write_text("hello")
    (problem,) = problems_of(f'{UPSTREAM}[store]\nurl = "sqlite:///{tmp_path}/s.db"\n')
    assert problem == f"store.url: learned templates: {tmp_path}/templates.db is not a SQLite database"


def test_the_databases_that_gaugeway_made_are_fine_and_nothing_is_made(tmp_path):
    databases = [
        (SQLiteStore(tmp_path / "s.db"), "store", "s.db"),
        (SQLiteQueue(tmp_path / "q.db", 1.0, 1), "queue", "q.db"),
    ]

    async def make():
        for database, *_ in databases:
            await database.prune(0.0)
            await database.aclose()

    asyncio.run(make())
    urls = "".join(f'[{table}]\nurl = "sqlite:///{tmp_path}/{name}"\n' for _, table, name in databases)
    before = sorted(tmp_path.iterdir())
    assert check(UPSTREAM + urls, name=str(tmp_path.parent / "given.toml")).exit_code == 0
    assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "empty").touch()
    assert check(f'{UPSTREAM}[store]\nurl = "sqlite:///empty"\n').exit_code == 0
    assert check(f'{UPSTREAM}[store]\nurl = "sqlite:///not/there/yet.db"\n').exit_code == 0
    assert not (tmp_path / "not").exists()
    (problem,) = problems_of(f'{UPSTREAM}[queue]\nurl = "sqlite:///{tmp_path}/s.db"\n')
    assert problem == f"queue.url: {tmp_path}/s.db is not a queue of Gaugeway; give it a file of its own"
    sqlite_file(tmp_path / "s.db", "PRAGMA journal_mode = DELETE", "PRAGMA user_version = 999")
    (problem,) = problems_of(f'{UPSTREAM}[store]\nurl = "sqlite:///{tmp_path}/s.db"\n')
    assert problem == f"store.url: {tmp_path}/s.db was written by a newer Gaugeway; upgrade, or use another file"


def test_one_file_for_store_and_queue_is_named():
    url = 'url = "sqlite:///one.db"\n'
    (problem,) = problems_of(f"{UPSTREAM}[store]\n{url}[queue]\n{url}")
    assert problem.endswith("one.db is also the file of store.url; use another one")


@pytest.mark.parametrize("text", ["${NU-X}", "${}", "${NAME", "${NAME:-x}", "a${ NAME}", "${file:}"])
def test_a_malformed_placeholder_is_named_and_not_quoted(text):
    assert problems_of(f'{UPSTREAM}api_key = "{text}"\n') == [
        "upstreams[0].api_key: not a placeholder; expected ${NAME} or ${file:/path}"
    ]


def test_a_dollar_in_a_regular_expression_is_no_placeholder():
    answer = check(f"{UPSTREAM}[capture.redact_patterns]\nprice = 'a\\${{2}}'\n")
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("read", [load, monitors_config.load])
def test_both_planes_name_all_variables_that_are_not_there(read):
    Path("given.toml").write_text('[monitors]\ntoken = "${NOT_SET}"\n[store]\nurl = "${EMPTY}"\n' + UPSTREAM)
    with pytest.raises(ConfigError) as caught:
        read(Path("given.toml"))
    assert caught.value.problems == [
        "monitors.token: the environment variable NOT_SET is not set",
        "store.url: the environment variable EMPTY is empty",
    ]


def test_a_file_with_a_secret_that_is_empty_is_named(tmp_path):
    (tmp_path / "secret").write_text("\n")
    assert problems_of(f'{UPSTREAM}api_key = "${{file:{tmp_path}/secret}}"\n') == [
        f"upstreams[0].api_key: {tmp_path}/secret: empty"
    ]


def test_a_data_directory_that_cannot_be_written_is_named_as_such():
    problems = problems_of(UPSTREAM, "--data-dir", "/proc/data")
    assert problems[0].startswith("--data-dir: the data directory /proc/data cannot be written: ")
    assert check(UPSTREAM, "--data-dir", "not/there/yet").exit_code == 0
    assert not Path("not").exists()
    assert data_dir_problem(Path()) is None
    Path("file").touch()
    assert data_dir_problem(Path("file")) is not None


COMMANDS = [
    (name, option)
    for name, command in [*commands().items(), *keys.commands.items()]
    for option in command.params
    if option.name == "config"
]


@pytest.mark.parametrize(("name", "option"), COMMANDS)
def test_every_command_uses_the_file_of_the_working_directory(name, option, capsys):
    context = click.Context(click.Command(name))
    assert option.process_value(context, None) is None
    Path("gaugeway.toml").write_text(UPSTREAM)
    assert option.process_value(context, None) == Path("gaugeway.toml")
    said = capsys.readouterr().err
    assert (said == "gaugeway: using ./gaugeway.toml\n") == (name not in ("serve", "gateway", "monitors", "check"))
    assert option.process_value(context, "other.toml") == Path("other.toml")
    assert capsys.readouterr().err == ""


def test_what_is_checked_is_said():
    Path("gaugeway.toml").write_text(UPSTREAM)
    answer = CliRunner().invoke(cli.main, ["check"])
    assert (answer.exit_code, answer.stdout) == (0, "gaugeway.toml: ok\n")
    Path("gaugeway.toml").write_text("[gateway]\nnope = 1\n")
    assert "gaugeway: using ./gaugeway.toml" in CliRunner().invoke(cli.main, ["check"]).stderr


@pytest.mark.parametrize("command", ["serve", "gateway", "monitors"])
def test_a_plane_says_in_its_log_which_file_it_uses(command):
    busy = socket.create_server(("127.0.0.1", 0))
    port = busy.getsockname()[1]
    ports = f"[gateway]\nport = {port}\nadmin_port = 0\n[monitors]\nport = {port if command == 'monitors' else 0}\n"
    Path("gaugeway.toml").write_text(UPSTREAM + ports + RULE.format("auto"))
    with busy:  # so that it ends by itself, soon after it said so
        answer = subprocess.run(
            [sys.executable, "-m", "gaugeway", command],
            capture_output=True,
            text=True,
            env=child_environment({"PYTHONPATH": str(ROOT)}),
            check=False,
        )
    assert f"configuration: {Path.cwd() / 'gaugeway.toml'}" in answer.stderr
    assert answer.stderr.count("configuration: ") == 1
    removed = answer.stderr.count("alerts.rules: these rules remove the default rules on abstained, ")
    assert removed == (command == "monitors"), "the process that watches says it, once"


@pytest.mark.parametrize(
    ("expected", "warned"),
    [
        ('{"faithfulness": 1.0, "answer_relevancy": 0.9}', None),
        (
            '{"faithfullness": 1.0, "faithfulness": 1.0}',
            "judge.anchors: no enabled metric has the name faithfullness;",
        ),
        ('{"hallucination": 1.0}', "judge.anchors: no enabled metric has the name hallucination;"),
    ],
)
def test_anchors_that_check_nothing_are_a_warning(tmp_path, expected, warned):
    path = tmp_path / "anchors.jsonl"
    path.write_text(f'{{"response": "It has two.", "expected": {expected}}}\n')
    answer = check(f"{UPSTREAM}[metrics.hallucination]\nenabled = false\n{JUDGE}anchors = '{path}'\n")
    assert answer.exit_code == 0
    found = [line for line in answer.stderr.splitlines() if "judge.anchors" in line]
    assert len(found) == (warned is not None)
    assert all(f"warning: {warned}" in line for line in found)


def test_anchors_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "anchors.jsonl"
    path.write_text('{"response": "It has two.", "expected": {"faithfulness": 1.0}}\n', "utf-8-sig")
    assert check(f"{UPSTREAM}{JUDGE}anchors = '{path}'\n").exit_code == 0


def test_a_file_without_anchors_is_named(tmp_path):
    path = tmp_path / "anchors.jsonl"
    path.write_text("\n")
    assert problems_of(f"{UPSTREAM}{JUDGE}anchors = '{path}'\n") == ["judge.anchors: the file has no anchors"]
