import asyncio
import json
import os
import pwd
import re

import pytest
from click.testing import CliRunner

from gateway.access.keys import Keyring
from gaugeway.cli.keys import keys
from gaugeway.cli.migrate import migrate
from gaugeway.runtime import audit
from gaugeway.storage.keys import open_keys
from tests.support.postgres import postgres


@pytest.fixture
def gaugeway(tmp_path):
    def run(*words, data_dir=tmp_path / "data"):
        return CliRunner().invoke(keys, [*words, "--data-dir", str(data_dir)])

    return run


def create(gaugeway, *words):
    result = gaugeway("create", "--app", "shop", *words)
    assert result.exit_code == 0, result.output
    return result.stdout.strip(), result.stderr.split()[1]


def stored(tmp_path):
    async def read():
        store = open_keys(None, tmp_path / "data")
        try:
            return await store.keys()
        finally:
            await store.aclose()

    return asyncio.run(read())


def test_a_created_key_is_alone_on_standard_output_and_opens_the_gate(gaugeway, tmp_path):
    secret, key_id = create(
        gaugeway, "--models", "gpt-*, o3", "--expires", "30d", "--requests-per-min", "60", "--usd-per-day", "2.5"
    )
    (key,) = stored(tmp_path)
    assert Keyring([key]).check([(b"authorization", f"Bearer {secret}".encode())], key.created_at) is key
    assert (key.id, key.app, key.models) == (key_id, "shop", ("gpt-*", "o3"))
    assert key.expires_at == pytest.approx(key.created_at + 30 * 86400)
    assert (key.quota.requests_per_min, key.quota.tokens_per_min, key.quota.usd_per_day) == (60, None, 2.5)


def test_a_budget_that_nothing_is_charged_to_is_a_warning(gaugeway, tmp_path):
    config = tmp_path / "gaugeway.toml"

    def warned(text, *quota):
        config.write_text(text)
        result = gaugeway("create", "--app", "shop", "--config", str(config), *quota)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("gw-")
        return "warning: --usd-per-day has no effect: the configuration has no [prices]" in result.stderr

    assert warned("", "--usd-per-day", "2")
    assert not warned("")
    assert not warned('[prices."*"]\ninput = 1\n', "--usd-per-day", "2")


def test_prices_are_mentioned_only_where_they_are_needed(gaugeway):
    said = {command: "[prices]" in gaugeway(command, "--help").stdout for command in ("create", "list", "revoke")}
    assert said == {"create": True, "list": False, "revoke": False}


@pytest.mark.parametrize("how", ["nowhere", "default", "environment"])
def test_missing_prices_are_named_only_where_a_configuration_was_read(gaugeway, tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / ("gaugeway.toml" if how == "default" else "other.toml")
    if how == "environment":
        monkeypatch.setenv("GAUGEWAY_CONFIG", str(file))
    for text, missing in (("", how != "nowhere"), ('[prices."*"]\ninput = 1\n', False)):
        file.write_text(text)
        result = gaugeway("create", "--app", "shop", "--usd-per-day", "2")
        assert result.exit_code == 0, result.output
        assert ("has no [prices]" in result.stderr) is missing


def test_the_list_shows_everything_but_the_secret(gaugeway, tmp_path):
    for command in (["list"], ["revoke", "key_0123456789ab"]):
        result = gaugeway(*command)
        assert result.exit_code == 2
        assert "--data-dir: there is no directory" in result.stderr
    (tmp_path / "data").mkdir()
    assert gaugeway("list").stdout == "no keys\n"
    secret, key_id = create(gaugeway, "--tokens-per-min", "1000", "--expires", "2099-01-01")
    line = gaugeway("list").stdout.splitlines()[1]
    for word in (key_id, "shop", "active", "2099-01-01T00:00:00Z", "1000", "0.0000"):
        assert word in line
    assert secret not in gaugeway("list").output


def test_a_revoked_key_is_listed_as_such(gaugeway):
    _, key_id = create(gaugeway)
    assert gaugeway("revoke", key_id).exit_code == 0
    assert gaugeway("revoke", key_id).exit_code == 0
    assert "revoked" in gaugeway("list").stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("create", "--app", "shop", "--expires", "soon"), "--expires"),
        (("create", "--app", "shop", "--models", " , "), "--models"),
        (("create", "--app", "shop", "--models", "gpt-["), "--models: invalid pattern 'gpt-['"),
        (("create", "--app", " "), "--app"),
        (("create", "--app", "shop", "--requests-per-min", "0"), "--requests-per-min"),
        (("create",), "--app"),
        (("revoke", "key_unknown"), "key_unknown"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(gaugeway, tmp_path, words, named):
    (tmp_path / "data").mkdir()
    result = gaugeway(*words)
    assert result.exit_code == 2
    assert named in result.stderr
    assert not result.stdout


def test_the_key_itself_given_for_its_id_is_not_repeated(gaugeway):
    secret, _ = create(gaugeway)
    result = gaugeway("revoke", secret)
    assert result.exit_code == 2
    assert secret not in result.output


def test_asking_for_keys_makes_no_file(gaugeway, tmp_path):
    gaugeway("list")
    gaugeway("revoke", "key_1")
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_something_else_is_reported(gaugeway, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "keys.db").write_text("not a database" * 100)
    result = gaugeway("create", "--app", "shop")
    assert result.exit_code == 2
    assert "keys.db" in result.stderr
    assert not result.stdout


def told(tmp_path):
    return [json.loads(line) for line in (tmp_path / "data" / audit.FILE).read_text().splitlines()]


def test_who_made_and_who_revoked_a_key_is_written_down_and_the_key_itself_is_not(gaugeway, tmp_path):
    secret, key_id = create(gaugeway)
    gaugeway("revoke", key_id)
    gaugeway("revoke", "key_unknown")
    made, revoked = told(tmp_path)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert made == {"time": made["time"], "action": "key_create", "outcome": "ok"} | {
        "by": user,
        "key": key_id,
        "app": "shop",
    }
    assert (revoked["action"], revoked["key"], revoked["by"]) == ("key_revoke", key_id, user)
    assert secret.removeprefix("gw-") not in (tmp_path / "data" / audit.FILE).read_text()


def test_a_key_is_made_also_where_the_audit_log_cannot_be_written(gaugeway, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / audit.FILE).symlink_to(tmp_path / "elsewhere")
    result = gaugeway("create", "--app", "shop")
    assert result.exit_code == 0
    assert "audit log" in result.stderr
    assert result.stdout.startswith("gw-")
    assert not (tmp_path / "elsewhere").exists()


def test_keys_are_in_the_database_that_the_configuration_names(gaugeway, tmp_path):
    url = postgres().database(empty=True)
    config = tmp_path / "gaugeway.toml"
    config.write_text(f'[keys]\nurl = "{url}"\n')
    options = ("--config", str(config))
    _, key_id = create(gaugeway, *options)
    for place in ("here", "elsewhere"):
        assert key_id in gaugeway("list", *options, data_dir=tmp_path / place).stdout
    assert gaugeway("revoke", key_id, *options, data_dir=tmp_path / "elsewhere").exit_code == 0
    assert "revoked" in gaugeway("list", *options).stdout
    assert gaugeway("list").stdout == "no keys\n"
    assert not (tmp_path / "data" / "keys.db").exists()
    migrated = CliRunner().invoke(migrate, [*options, "--data-dir", str(tmp_path / "data")])
    assert re.search(r"127\.0\.0\.1:\d+/\S+: version \d+ already", migrated.output)


def test_a_database_that_is_not_there_is_told_without_its_password(gaugeway, tmp_path):
    config = tmp_path / "gaugeway.toml"
    config.write_text('[keys]\nurl = "postgresql://user:secret@127.0.0.1:9/x"\n')
    result = gaugeway("create", "--app", "shop", "--config", str(config))
    assert result.exit_code == 2
    assert "127.0.0.1:9" in result.stderr
    assert "secret" not in result.output


def test_a_configuration_that_cannot_be_read_is_named(gaugeway, tmp_path):
    result = gaugeway("list", "--config", str(tmp_path / "missing.toml"))
    assert result.exit_code == 2
    assert "missing.toml" in result.stderr
