"""The tutorials, typed as they stand: their commands run in one shell, and show what they say they show."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gaugeway.demo.servers import free_ports

PAGE, TRIAL = (Path(__file__).parents[2] / "docs/tutorial" / name for name in ("first-alert.md", "switch-a-model.md"))
LIMIT_S = 300
OURS = ("GAUGEWAY_PORT", "GAUGEWAY_ADMIN_PORT", "GAUGEWAY_MONITORS_PORT")
PORTS = {PAGE: (*OURS, "MODEL_PORT"), TRIAL: (*OURS, "OLD_PORT", "NEW_PORT")}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Step:
    """A block to type, and the blocks of output that the page shows for it."""

    commands: str
    shown: list[str]


def steps(page):
    """The page's shell blocks in order. `console` blocks (the installation) are not typed here."""
    found = []
    for kind, text in FENCE.findall(page.read_text("utf-8")):
        if kind == "sh":
            found.append(Step(text, []))
        elif kind == "text":
            found[-1].shown.append(text)
        else:
            assert kind == "console", kind
    return found


def with_free_ports(commands, ports):
    """The one place where the page says which numbers to change."""
    line = next(line for line in commands.splitlines() if line.startswith("export GAUGEWAY_PORT"))
    assert re.findall(r"(\w+)=\d+", line) == list(ports)
    values = zip(ports, free_ports(len(ports)), strict=True)
    return commands.replace(line, "export " + " ".join(f"{name}={port}" for name, port in values))


def script(steps):
    """All steps for one shell; after each a mark with its exit code, and the end unless that is 0."""
    mark = 'code=$?; printf "\\n@@%d@@\\n" $code; [ $code = 0 ] || exit\n'
    return "set -u\n" + "".join(step.commands + mark for step in steps)


def pattern_of(shown):
    """What is shown as a regular expression: `...` stands for anything, a line of it for any lines."""
    lines = []
    for line in shown.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:[^\n]*\n)*?")
        else:
            lines.append(".*".join(map(re.escape, line.split("..."))) + r"\n")
    return re.compile("".join(lines), re.MULTILINE)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    return typed_in(tmp_path_factory.mktemp("tutorial"), PAGE)


def typed_in(here, file):
    """(step, exit code, output) of every step; the shell and what it left in the background end with it."""
    page = steps(file)
    page[0].commands = with_free_ports(page[0].commands, PORTS[file])
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # noqa: TID251 - a child's
    (here / "typed.sh").write_text(script(page), "utf-8")
    shell = subprocess.Popen(
        ["bash", "typed.sh"],
        cwd=here,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired as stuck:
        said = (stuck.stdout or b"").decode(errors="replace")
        logs = "".join(f"\n{log.name}:\n{log.read_text()[-3000:]}" for log in here.glob("*.log"))
        pytest.fail(f"not through after {LIMIT_S} s; so far:\n{said[-3000:]}{logs}")
    finally:
        with contextlib.suppress(ProcessLookupError):  # the tutorial stopped everything itself
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
    parts = re.split(r"\n@@(\d+)@@\n", output)
    done = [(step, int(code), text + "\n") for step, text, code in zip(page, parts[::2], parts[1::2], strict=False)]
    assert len(done) == len(page), f"ended after:\n{done[-1][0].commands}\nwith {done[-1][1:]}"
    return done


def test_every_step_ends_well(typed):
    assert [(step.commands, text) for step, code, text in typed if code != 0] == []


def test_what_the_page_shows_is_what_is_seen(typed):
    shown = [(block, text) for step, _, text in typed for block in step.shown]
    assert len(shown) > 6
    for block, text in shown:
        assert pattern_of(block).search(text), f"shown:\n{block}\nseen:\n{text}"


def test_a_reader_ends_with_an_alert_that_names_the_cause(typed):
    (alert,) = [text for step, _, text in typed if "Retrieval:" in step.commands]
    assert "gaugeway.alerts firing faithfulness-below-0.8" in alert
    assert "Retrieval: the passages got worse" in alert
    (exchange,) = [text for step, _, text in typed if "WORST" in step.commands]
    assert '"metric": "faithfulness"' in exchange


def test_nothing_goes_on_after_the_last_step(typed):
    assert typed[-1][2].split() == [
        "audit.log",
        "gateway.lock",
        "monitors.lock",
        "queue.db",
        "redaction.key",
        "store.db",
    ]


def test_a_candidate_is_tried_and_the_model_switched(tmp_path):
    typed = typed_in(tmp_path, TRIAL)
    assert [(step.commands, text) for step, code, text in typed if code != 0] == []
    for block, text in [(block, text) for step, _, text in typed for block in step.shown]:
        assert pattern_of(block).search(text), f"shown:\n{block}\nseen:\n{text}"


def test_a_pattern_tells_other_output_apart():
    pattern = pattern_of('"mean": 1.0,\n...\n"state": "quiet"\n')
    assert pattern.search('"mean": 1.0,\n"ci_low": 0.9,\n"state": "quiet"\n')
    assert pattern.search('"mean": 1.0,\n"state": "quiet"\n')
    assert not pattern.search('"mean": 0.9,\n"state": "quiet"\n')
    assert not pattern.search('"mean": 1.0,\n"state": "firing"\n')


def test_what_production_leaves_out_is_said():
    text = PAGE.read_text("utf-8")
    assert "bucket_s = 2" in text
    assert "omit both in production" in text
