"""A snapshot holds the accepted configuration with its values, whatever changes behind its placeholders."""

import pytest

from gateway.snapshot import Snapshot
from gaugeway.settings import ConfigError, read

TEXT = 'a = "${NAME}"\nb = ["x-${file:PATH}"]\nday = 1979-05-27\nall = inf\n'


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
