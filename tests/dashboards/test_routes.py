"""The example routes, in a real Alertmanager: who is told, and what silences what."""

import contextlib
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import yaml

from gaugeway.demo.servers import free_ports
from tests.dashboards.reading import FOLDER
from tests.support.product import needs

ROUTES = FOLDER / "alertmanager" / "alertmanager.yml"
QUALITY = {"alertname": "GaugewayQualityDrop", "app": "shop", "metric": "faithfulness", "severity": "page"}
COPY = {**QUALITY, "rule": "answers", "raised_by": "prometheus"}
OWN = {**QUALITY, "rule": "answers"}
FAST = {"alertname": "GaugewaySLOBurnFast", "app": "shop", "metric": "faithfulness", "severity": "page"}
SLOW = {"alertname": "GaugewaySLOBurnSlow", "app": "shop", "metric": "faithfulness", "severity": "warn"}
BLIND = {"alertname": "GaugewayJudgeBlind", "judge_model": "large", "severity": "page"}
OWN_BLIND = {
    "alertname": "GaugewayJudgeBlind",
    "app": "*",
    "metric": "judge",
    "rule": "judge_blind",
    "severity": "page",
}
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
def alertmanager(directory, receivers="http://127.0.0.1:9", **times):
    """Run one with the shipped routes; each receiver is the path of its name below `receivers`.

    `times` replace the waiting times of every route.
    """
    config = yaml.safe_load(ROUTES.read_text())
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": f"{receivers}/{receiver['name']}"}]
    routes = [config["route"]]
    for route in routes:
        route.update({name: time for name, time in times.items() if name in route})
        routes += route.get("routes", ())
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    arguments = [f"--config.file={directory / 'alertmanager.yml'}", f"--storage.path={directory / 'data'}"]
    arguments += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=warn"]
    with (directory / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen([needs("prometheus-alertmanager"), *arguments], stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v2", trust_env=False) as client:
                wait_until(lambda: is_ready(client))
                yield client
        finally:
            process.terminate()
            process.wait(20)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_ready(client):
    with contextlib.suppress(httpx.HTTPError):
        return client.get("/status").status_code == 200
    return False


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Send alerts; returns the labels of those that are not held back."""
    with alertmanager(tmp_path_factory.mktemp("alertmanager")) as client:

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


def test_an_incident_is_paged_by_gaugeway_s_own_alert_alone(told):
    relevancy = {**FAST, "metric": "context_relevancy"}
    assert told(OWN, COPY, FAST, relevancy, SLOW) == [OWN]
    assert told(COPY, FAST, relevancy, SLOW) == [COPY], "without Gaugeway's notifier, by the copy of it"
    assert told(FAST) == [FAST]


def test_gaugeway_s_alert_replaces_the_copy_of_the_same_rule_and_slice_alone(told):
    others = [{**COPY, "rule": "other"}, {**COPY, "app": "desk"}, {**COPY, "slice": "model=m", "metric": "mrr"}]
    assert told(OWN, COPY, *others) == [OWN, *others]


def test_a_warning_about_a_metric_does_not_hold_back_the_page_of_an_objective(told):
    warning = {**OWN, "severity": "warn", "metric": "slow"}
    assert told(warning, FAST) == [warning, FAST]


def test_the_outage_of_one_judge_is_paged_once(told):
    judge, verifier = {**BLIND, "role": "judge"}, {**BLIND, "role": "verifier"}
    assert told(OWN_BLIND, judge, verifier) == [OWN_BLIND, verifier]


@pytest.fixture
def on_call():
    """A pager: the messages that it got, as (incident, labels of the alerts that fire)."""
    pages = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            firing = [alert["labels"] for alert in body["alerts"] if alert["status"] == "firing"]
            if self.path == "/on-call":
                pages.append((body["groupKey"], firing))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_real_incident_of_two_apps_is_one_page_for_each(on_call, tmp_path):
    url, pages = on_call
    relevancy = {**OWN, "metric": "answer_relevancy", "rule": "answer_relevancy-drop"}
    incident = [OWN, COPY, FAST, SLOW, relevancy, {**relevancy, "raised_by": "prometheus"}]
    incident += [{**alert, "app": "desk"} for alert in incident]
    with alertmanager(tmp_path, url, group_wait="5s", group_interval="5s") as client:
        client.post("/alerts", json=[{"labels": alert} for alert in incident]).raise_for_status()
        wait_until(lambda: len(pages) == 2)
        client.post("/alerts", json=[{"labels": alert} for alert in incident]).raise_for_status()
        last = {**DOWN, "job": "sent when the others were sent twice"}
        client.post("/alerts", json=[{"labels": last}]).raise_for_status()
        wait_until(lambda: any(last in firing for _, firing in pages))
    incidents = {firing[0]["app"]: firing for _, firing in pages if last not in firing}
    assert len(pages) == 3, pages
    assert incidents.keys() == {"shop", "desk"}
    for app, firing in incidents.items():
        assert sorted(firing, key=str) == sorted([{**OWN, "app": app}, {**relevancy, "app": app}], key=str)


def test_an_alert_that_joins_later_updates_the_incident_of_its_app(on_call, tmp_path):
    url, pages = on_call
    with alertmanager(tmp_path, url, group_wait="0s", group_interval="1s") as client:
        for alert in (FAST, COPY, OWN):
            client.post("/alerts", json=[{"labels": alert}]).raise_for_status()
            wait_until(lambda alert=alert: any(alert in firing for _, firing in pages))
    assert len({key for key, _ in pages}) == 1
    assert pages[-1][1] == [OWN]
