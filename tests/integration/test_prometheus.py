"""A real Prometheus scrapes both planes, and promtool has nothing to say against what they show."""

import contextlib
import subprocess

import httpx

from tests.support.product import needs, product
from tests.support.prometheus_server import prometheus_server
from tests.support.scripted_model import serve

CONFIG = """
[[upstreams]]
base_url = "{url}"

[judge]
base_url = "{url}"
model = "judge-1"
price_in = 1.0

[metrics.faithfulness]
rate = 1.0

[alerts]
bucket_s = 1
watermark_s = 0

[[alerts.rules]]
metric = "faithfulness"
slo = 0.5
"""


def chat(running, count=5):
    with httpx.Client(timeout=60) as client:
        for stream in (False, True) * count:
            body = {
                "model": "m",
                "stream": stream,
                "messages": [{"role": "user", "content": "How many moons has Mars?"}],
                "gaugeway": {"contexts": ["Mars has two moons, Phobos and Deimos."], "app": "shop"},
            }
            client.post(f"{running.base_url}/chat/completions", json=body).raise_for_status()


@contextlib.contextmanager
def prometheus(tmp_path, *targets):
    config = tmp_path / "prometheus.yml"
    jobs = "".join(f"- {{job_name: {name}, static_configs: [{{targets: ['{at}']}}]}}\n" for name, at in targets)
    config.write_text(f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{jobs}")
    with prometheus_server(tmp_path, config, ["--enable-feature=exemplar-storage", "--log.level=warn"]) as url:
        yield url


def query(url, text):
    answer = httpx.get(f"{url}/api/v1/query", params={"query": text}, timeout=60)
    assert answer.status_code == 200, answer.text
    result = answer.json()["data"]["result"]
    return {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in result}


def test_both_planes_are_scraped_and_their_series_are_well_formed(tmp_path):
    promtool = needs("promtool")
    with serve() as url, product(tmp_path, CONFIG.format(url=url)) as running:
        chat(running)
        running.until(lambda: len(running.get("/api/metrics")) >= 2, 60, what="estimates are there")
        targets = [("gateway", running.admin), ("monitors", running.monitors)]
        with prometheus(tmp_path, *((name, at.removeprefix("http://")) for name, at in targets)) as server:
            running.until(
                lambda: query(server, 'sum(gaugeway_exchanges_total{outcome="captured"})') == {(): 10.0},
                60,
                what="the gateway is scraped",
            )
            running.until(
                lambda: query(server, 'sum(gaugeway_score_count{metric="faithfulness",app="shop"})') == {(): 10.0},
                60,
                what="the monitors are scraped",
            )
            assert set(query(server, "up").values()) == {1.0}
            assert query(server, 'sum(gaugeway_requests_total{stream="true",ending="complete"})') == {(): 5.0}
        for name, at in targets:
            text = httpx.get(f"{at}/metrics").text
            checked = subprocess.run(
                [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
            )
            assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), name
        assert "error" not in (tmp_path / "prometheus.log").read_text()


def test_openmetrics_carries_the_trace_as_an_exemplar(tmp_path):
    with serve() as url, product(tmp_path, CONFIG.format(url=url)) as running:
        trace = "0af7651916cd43dd8448eb211c80319c"
        httpx.post(
            f"{running.base_url}/chat/completions",
            headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
            json={
                "model": "m",
                "messages": [{"role": "user", "content": "How many moons has Mars?"}],
                "gaugeway": {"contexts": ["Mars has two moons."]},
            },
        ).raise_for_status()

        def shown():
            text = httpx.get(f"{running.monitors}/metrics", headers={"accept": "application/openmetrics-text"}).text
            return text.endswith("# EOF\n") and f'trace_id="{trace}"' in text

        running.until(shown, 60, what="the exemplar is there")


def test_an_admin_port_with_a_token_asks_for_it(tmp_path):
    config = (
        '[gateway]\nadmin_token = "t1"\n[monitors]\ntoken = "t2"\n[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"'
    )
    with product(tmp_path, config) as running:
        for at, token in ((running.admin, "t1"), (running.monitors, "t2")):
            assert httpx.get(f"{at}/metrics").status_code == 401
            assert httpx.get(f"{at}/metrics", headers={"authorization": "Bearer no"}).status_code == 401
            assert httpx.get(f"{at}/metrics", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert httpx.get(f"{running.monitors}/api/status").status_code == 401
        assert httpx.get(f"{running.monitors}/healthz").status_code == 200
