"""The units: systemd takes them, they are confined, and they start what there is."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.reading import (
    DEPLOY,
    HAND_OVER_S,
    MONITORS_S,
    parse,
    read_by_both_planes,
)

FOLDER = DEPLOY / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
PROGRAM = "/opt/gaugeway/bin/gaugeway"
EXPOSURE = 20
"""Tenths of systemd's measure; 96 is a unit without any confinement."""


def settings(unit):
    """Key -> its values, in order."""
    found = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", unit.read_text("utf-8"), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def systemd_analyze(*arguments):
    import shutil

    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not here")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_there_is_one_for_each_plane():
    assert [unit.name for unit in UNITS] == ["gaugeway-gateway.service", "gaugeway-monitors.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_every_command_is_one(unit):
    found = settings(unit)
    commands = [shlex.split(line) for key in ("ExecStartPre", "ExecStart", "ExecReload") for line in found.get(key, ())]
    ours = [command[1:] for command in commands if command[0] == PROGRAM]
    assert all(command[:2] == ["kill", "-HUP"] for command in commands if command[0] != PROGRAM)
    for command in ours:
        assert parse(command)["config"] == Path("/etc/gaugeway/gaugeway.toml")
    (start,) = found["ExecStart"]
    plane = unit.stem.removeprefix("gaugeway-")
    assert shlex.split(start)[1] == plane
    data = parse(shlex.split(start)[1:])["data_dir"]
    assert data == Path("/var/lib") / found["StateDirectory"][0], "nothing else can be written"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_it(unit, tmp_path):
    here = tmp_path / unit.name
    here.write_text(unit.read_text("utf-8").replace(PROGRAM, str(Path(sys.executable).parent / "gaugeway")))
    verified = systemd_analyze("verify", "--recursive-errors=no", "--man=no", here)
    assert (verified.returncode, verified.stderr) == (0, "")
    here.write_text(here.read_text("utf-8").replace("ProtectHome=yes", "ProtectHome=perhaps"))
    assert "perhaps" in systemd_analyze("verify", "--recursive-errors=no", "--man=no", here).stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_it_is_confined(unit, tmp_path):
    asked = ("security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager")
    judged = systemd_analyze(*asked, unit)
    assert judged.returncode == 0, judged.stdout
    loose = tmp_path / unit.name
    loose.write_text(
        re.sub(r"^(Protect|Private|SystemCall|Restrict)\w+=.*$", "", unit.read_text("utf-8"), flags=re.MULTILINE)
    )
    assert systemd_analyze(*asked, loose).returncode != 0


def test_the_planes_share_one_user_and_one_directory():
    gateway, monitors = map(settings, UNITS)
    for key in ("DynamicUser", "User", "StateDirectory", "EnvironmentFile"):
        assert gateway[key] == monitors[key]
    assert gateway["StateDirectoryMode"] == ["0700"], "it holds questions and answers in plain text"


def test_there_is_time_to_stop_in_order():
    config = read_by_both_planes(FOLDER / "gaugeway.toml").gateway
    gateway, monitors = map(settings, UNITS)
    assert float(gateway["TimeoutStopSec"][0]) > config.drain_delay_s + config.drain_s + HAND_OVER_S
    assert float(monitors["TimeoutStopSec"][0]) > MONITORS_S


def test_only_the_gateway_is_reloaded_by_a_signal():
    gateway, monitors = map(settings, UNITS)
    assert gateway["ExecReload"][0].split()[1] == "check", "a bad configuration is refused before the signal"
    assert "ExecReload" not in monitors, "it has none: it is restarted"
