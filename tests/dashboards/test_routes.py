"""The example routes, in a real Alertmanager: who is told, and what silences what."""

import contextlib
import subprocess
import time

import httpx
import pytest
import yaml

from gateway.demo.servers import free_ports
from tests.dashboards.reading import FOLDER
from tests.support.product import needs

ROUTES = FOLDER / "alertmanager" / "alertmanager.yml"
QUALITY = {"alertname": "GaugewayQualityDrop", "app": "shop", "metric": "faithfulness", "severity": "page"}
SLOW = {"alertname": "GaugewaySLOBurnSlow", "app": "shop", "metric": "faithfulness", "severity": "warn"}
BLIND = {"alertname": "GaugewayJudgeBlind", "judge_model": "large", "severity": "page"}
DOWN = {"alertname": "GaugewayDown", "job": "gaugeway-gateway", "severity": "page"}
STOPPED = {"alertname": "GaugewayScoringStopped", "app": "shop", "severity": "page"}


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (QUALITY, "on-call"),
        (SLOW, "chat"),
        ({"alertname": "GaugewayWatchdog", "severity": "none"}, "dead-mans-switch"),
        ({"alertname": "Else"}, "chat"),
    ],
)
def test_who_is_told(labels, receiver):
    pairs = [f"{name}={value}" for name, value in labels.items()]
    command = [needs("amtool"), "config", "routes", "test", f"--config.file={ROUTES}", *pairs]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [receiver]


@contextlib.contextmanager
def alertmanager(directory):
    """Run one with the shipped routes; nobody listens where its receivers are."""
    config = yaml.safe_load(ROUTES.read_text())
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": "http://127.0.0.1:9/"}]
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    arguments = [f"--config.file={directory / 'alertmanager.yml'}", f"--storage.path={directory / 'data'}"]
    arguments += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=warn"]
    with (directory / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen([needs("prometheus-alertmanager"), *arguments], stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v2", trust_env=False) as client:
                yield client
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Send alerts; returns the labels of those that are not held back."""
    with alertmanager(tmp_path_factory.mktemp("alertmanager")) as client:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if client.get("/status").status_code == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)

        def send(*alerts):
            until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
            client.post("/alerts", json=[{"labels": one, "endsAt": until} for one in alerts]).raise_for_status()
            seen = settled(client)
            over = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))
            past = [{"labels": one, "startsAt": over, "endsAt": over} for one in alerts]
            client.post("/alerts", json=past).raise_for_status()
            assert len(seen) == len(alerts)
            return [one for one in alerts for found in seen if found["labels"] == one and not inhibited(found)]

        yield send


def settled(client):
    """Read the alerts until they stay what they are: the inhibitor hears of one a little later than it is listed."""
    before, same = None, 0
    while same < 5:
        seen = client.get("/alerts").raise_for_status().json()
        now = sorted((sorted(one["labels"].items()), inhibited(one)) for one in seen)
        before, same = now, same + 1 if now == before else 0
        time.sleep(0.05)
    return seen


def inhibited(alert):
    return bool(alert["status"]["inhibitedBy"])


def test_a_blind_judge_silences_what_it_judges(told):
    lexical = {**QUALITY, "metric": "lexical_groundedness"}
    ranking = {**QUALITY, "metric": "precision@5"}
    assert told(BLIND, QUALITY, lexical, ranking, SLOW) == [BLIND, lexical, ranking]


def test_a_verifier_that_fails_silences_its_own_metric_alone(told):
    verifier = {**BLIND, "judge_model": "nli", "role": "verifier"}
    grounding = {**QUALITY, "metric": "grounding"}
    assert told(verifier, QUALITY, grounding) == [verifier, QUALITY]
    judge = {**BLIND, "role": "judge"}
    assert told(judge, QUALITY, grounding) == [judge, grounding]


def test_without_it_they_are_told(told):
    assert told(QUALITY, {**SLOW, "app": "desk"}) == [QUALITY, {**SLOW, "app": "desk"}]


def test_a_page_silences_the_warnings_about_the_same(told):
    other = {**SLOW, "metric": "hallucination"}
    assert told(QUALITY, SLOW, other) == [QUALITY, other]


def test_a_page_about_no_app_silences_no_warning(told):
    behind = {"alertname": "GaugewayBehind", "instance": "a:9465", "severity": "warn"}
    assert told(DOWN, behind, SLOW) == [DOWN, behind, SLOW]


def test_an_app_s_alarm_silences_its_slices(told):
    part = {**QUALITY, "slice": "model=m"}
    elsewhere = {**part, "app": "desk"}
    assert told(QUALITY, part, elsewhere) == [QUALITY, elsewhere]


def test_one_page_is_enough_when_nothing_is_scored(told):
    assert told(DOWN, STOPPED) == [DOWN]
    assert told(BLIND, STOPPED) == [BLIND]
    assert told(STOPPED) == [STOPPED]


def test_errors_of_another_judge_are_told(told):
    errors = {"alertname": "GaugewayJudgeErrors", "judge_model": "large", "severity": "warn"}
    small = {**errors, "judge_model": "small"}
    assert told(BLIND, errors, small) == [BLIND, small]


def test_an_upstream_that_is_out_is_told_once(told):
    errors = {"alertname": "GaugewayUpstreamErrors", "upstream": "main", "severity": "page"}
    out = {"alertname": "GaugewayUpstreamOut", "upstream": "main", "severity": "warn"}
    other = {**out, "upstream": "spare"}
    assert told(errors, out, other) == [errors, other]
