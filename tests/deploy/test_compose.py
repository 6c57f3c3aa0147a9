"""The compose file: its services fit each other, the product, and the engines that read their configurations."""

import contextlib
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from tests.deploy.reading import (
    DEFAULTS,
    DEPLOY,
    HAND_OVER_S,
    MONITORS_S,
    ROOT,
    environment_variables,
    interpolated,
    named_in,
    parse,
    read_by_both_planes,
    uncommented,
)
from tests.support.product import needs, product
from tests.support.prometheus_server import prometheus_server
from tests.support.scripted_model import serve

FOLDER = DEPLOY / "compose"
TEXT = (FOLDER / "compose.yaml").read_text("utf-8")
TOKENS = {"GAUGEWAY_ADMIN_TOKEN": "token-of-the-gateway", "GAUGEWAY_MONITORS_TOKEN": "token-of-the-monitors"}
ENVIRONMENT = TOKENS | {"GRAFANA_ADMIN_PASSWORD": "word"}
COMPOSE = interpolated(yaml.safe_load(TEXT), ENVIRONMENT)
SERVICES = COMPOSE["services"]
LISTENS = {
    "gateway": {DEFAULTS.gateway.port, DEFAULTS.gateway.admin_port},
    "monitors": {DEFAULTS.monitors.port},
    "prometheus": {9090},
    "alertmanager": {9093},
    "grafana": {3000},
}


def mounts(service):
    """Where in the container -> the file or folder of this checkout."""
    bound = (volume.split(":") for volume in SERVICES[service]["volumes"] if volume.startswith("."))
    return {there: (FOLDER / here).resolve() for here, there, _ in bound}


def container(service, root):
    """Lay out below `root` what the service sees of its mounts and secrets."""
    for there, here in mounts(service).items():
        target = root / there.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(here, target) if here.is_dir() else shutil.copy(here, target)
    for name in SERVICES[service].get("secrets", ()):
        secret = root / "run/secrets" / name
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text(ENVIRONMENT[COMPOSE["secrets"][name]["environment"]])


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def test_the_specification_takes_it():
    specification = pytest.importorskip("compose_viz.spec.compose_spec").ComposeSpecification
    plain = {key: value for key, value in COMPOSE.items() if not key.startswith("x-")}
    specification.model_validate(plain)
    with pytest.raises(ValueError, match="commnd"):
        specification.model_validate(plain | {"services": {"one": {"image": "a:1", "commnd": []}}})


def test_every_service_is_known_here():
    assert SERVICES.keys() == LISTENS.keys()


@pytest.mark.parametrize("service", LISTENS)
def test_images_have_tags(service):
    _, _, tag = SERVICES[service]["image"].rpartition(":")
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag)


@pytest.mark.parametrize("service", LISTENS)
def test_only_what_listens_is_published_and_only_on_this_machine(service):
    for published in SERVICES[service]["ports"]:
        address, outside, inside = published.split(":")
        assert address == "127.0.0.1"
        assert outside == inside
        assert int(inside) in LISTENS[service]


@pytest.mark.parametrize("service", LISTENS)
def test_processes_cannot_gain_rights(service):
    assert SERVICES[service]["cap_drop"] == ["ALL"]
    assert SERVICES[service]["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("service", LISTENS)
def test_what_is_mounted_is_there_and_read_only(service):
    assert all(path.exists() for path in mounts(service).values()), mounts(service)
    for volume in SERVICES[service]["volumes"]:
        if volume.startswith("."):
            assert volume.endswith(":ro")
        else:
            assert volume.split(":")[0] in COMPOSE["volumes"]


@pytest.mark.parametrize("service", LISTENS)
def test_a_read_only_container_gets_no_secret_from_the_environment(service):
    # Docker copies such a secret into the container, and refuses to where the file system is read-only.
    assert not (SERVICES[service].get("read_only") and SERVICES[service].get("secrets"))


@pytest.mark.parametrize("plane", ["gateway", "monitors"])
def test_the_planes_know_their_commands_and_variables(plane):
    service = SERVICES[plane]
    assert parse(service["command"]) is not None
    asked = named_in(uncommented(FOLDER / "gaugeway.toml")) | {"JUDGE_API_KEY"}
    assert set(service["environment"]) <= environment_variables() | asked
    assert asked <= set(service["environment"]), "or the configuration cannot be read"
    assert service["environment"]["GAUGEWAY_CONFIG"] in mounts(plane)
    assert service["build"]["context"] == "../.."
    assert (FOLDER / service["build"]["context"] / "Dockerfile").is_file()
    assert "data:/data" in service["volumes"], "both share the queue"


def test_there_is_time_to_stop_in_order(monkeypatch):
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)
    settings = read_by_both_planes(FOLDER / "gaugeway.toml").gateway
    needed = settings.drain_delay_s + settings.drain_s + HAND_OVER_S
    assert seconds(SERVICES["gateway"]["stop_grace_period"]) > needed
    assert seconds(SERVICES["monitors"]["stop_grace_period"]) > MONITORS_S


def test_the_monitors_are_asked_for_their_own_health():
    asked = " ".join(SERVICES["monitors"]["healthcheck"]["test"])
    assert f"http://127.0.0.1:{DEFAULTS.monitors.port}/healthz" in asked


def test_without_a_token_nothing_starts():
    for name in ENVIRONMENT:
        with pytest.raises(KeyError, match=name):
            interpolated(yaml.safe_load(TEXT), {key: value for key, value in ENVIRONMENT.items() if key != name})


def test_the_template_of_the_environment_names_all_of_it():
    template = (FOLDER / "env.example").read_text("utf-8")
    names = re.findall(r"^(?:# )?([A-Z_]+)=", template, re.MULTILINE)
    assert sorted(names) == sorted(named_in(TEXT))


# Prometheus, Alertmanager, Grafana


def prometheus_yml():
    return yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))


def test_prometheus_scrapes_and_calls_what_is_there():
    config = prometheus_yml()
    jobs = [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
    targets = [target for job in jobs for one in job["static_configs"] for target in one["targets"]]
    assert len(targets) == 3
    for target in targets:
        host, port = target.split(":")
        assert int(port) in LISTENS[host]
    for job in config["scrape_configs"]:
        name = Path(job["authorization"]["credentials_file"]).name
        assert name in SERVICES["prometheus"]["secrets"]
        plane = job["static_configs"][0]["targets"][0].split(":")[0]
        assert COMPOSE["secrets"][name]["environment"] in (FOLDER / "gaugeway.toml").read_text("utf-8")
        assert name == f"{plane}_token"


def test_the_jobs_are_those_that_the_rules_look_for():
    (pattern,) = set(re.findall(r'absent\(up\{job=~"(.+?)"\}\)', mounted_rules().read_text("utf-8")))
    assert all(re.fullmatch(pattern, job["job_name"]) for job in prometheus_yml()["scrape_configs"])


def mounted_rules():
    return mounts("prometheus")["/etc/prometheus/gaugeway.rules.yml"]


def relocated(root, replace=()):
    """Prometheus' configuration in its container, with the paths (and `replace`) as they are below `root`."""
    path = root / "etc/prometheus/prometheus.yml"
    text = path.read_text("utf-8").replace("/run/secrets", str(root / "run/secrets"))
    for old, new in replace:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, "utf-8")
    return path


def test_promtool_takes_the_configuration_with_rules_and_secrets(tmp_path):
    container("prometheus", tmp_path)
    command = [needs("promtool"), "check", "config", relocated(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "rules found" in checked.stdout
    shutil.rmtree(tmp_path / "run")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0, "it looks for the secrets"


def test_amtool_takes_the_routes():
    (path,) = mounts("alertmanager").values()
    checked = subprocess.run([needs("amtool"), "check-config", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("service", ["prometheus", "alertmanager"])
def test_the_flags_name_files_and_folders_that_are_mounted(service):
    flags = dict(flag.split("=", 1) for flag in SERVICES[service]["command"])
    assert flags.pop("--config.file") in mounts(service)
    kept = next(value for name, value in flags.items() if name.endswith(".path"))
    assert kept in [volume.split(":")[1] for volume in SERVICES[service]["volumes"]]


def test_a_real_prometheus_scrapes_both_planes_with_the_shipped_configuration(tmp_path, monkeypatch):
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)
    container("prometheus", tmp_path)
    with serve() as url, contextlib.ExitStack() as stack:
        text = (FOLDER / "gaugeway.toml").read_text("utf-8").replace("https://api.openai.com/v1", url)
        running = stack.enter_context(product(tmp_path, text))
        assert httpx.get(f"{running.monitors}/metrics").status_code == 401
        config = relocated(
            tmp_path,
            [
                ("gateway:9464", f"127.0.0.1:{running.admin_port}"),
                ("monitors:9465", f"127.0.0.1:{running.monitors_port}"),
                ("scrape_interval: 15s", "scrape_interval: 1s"),
            ],
        )
        asked = stack.enter_context(prometheus(tmp_path, config))
        wanted = {"gaugeway-gateway": "up", "gaugeway-monitors": "up"}
        running.until(lambda: health(asked) == wanted, 60, what=f"both are scraped; {health(asked)}")
        groups = httpx.get(f"{asked}/api/v1/rules").json()["data"]["groups"]
        assert "gaugeway-recordings" in [group["name"] for group in groups]


def prometheus(root, config):
    """A real one with the flags of the compose file."""
    flags = dict(flag.split("=", 1) for flag in SERVICES["prometheus"]["command"])
    moved = {"--config.file", "--storage.tsdb.path", "--web.listen-address"}
    return prometheus_server(root, config, [f"{name}={value}" for name, value in flags.items() if name not in moved])


def health(url):
    targets = httpx.get(f"{url}/api/v1/targets").json()["data"]["activeTargets"]
    return {one["labels"]["job"]: one["health"] for one in targets}


def test_grafana_finds_its_dashboards_and_its_prometheus():
    seen = mounts("grafana")
    provisioning = seen["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/gaugeway.yml").read_text("utf-8"))["providers"]
    folder = seen[provider["options"]["path"]]
    assert folder == ROOT / "dashboards/grafana"
    assert list(folder.glob("*.json"))
    sources = yaml.safe_load((provisioning / "datasources/gaugeway.yml").read_text("utf-8"))["datasources"]
    (ours,) = [source for source in sources if source["type"] == "prometheus"]
    there = urlsplit(ours["url"])
    assert there.port in LISTENS[there.hostname]
    assert ours["jsonData"]["timeInterval"] == prometheus_yml()["global"]["scrape_interval"]
