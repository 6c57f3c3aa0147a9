"""The Kubernetes manifests: valid for several releases of it, confined, and true to the product."""

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml

from tests.deploy.reading import (
    DEFAULTS,
    DEPLOY,
    HAND_OVER_S,
    MONITORS_S,
    PAGE,
    PORTS,
    PROBES,
    ROOT,
    documents,
    environment_variables,
    named_in,
    parse,
    read_by_both_planes,
    uncommented,
)
from tests.support.postgres import postgres
from tests.support.product import product
from tests.support.scripted_model import serve

FOLDER = DEPLOY / "kubernetes"
VARIANTS = ("single", "scaled")
RELEASES = ("1.27.0", "1.32.0", "1.37.0")
WORKLOADS = ("Deployment", "StatefulSet")
SECRET = "gaugeway"
RULES = (ROOT / "dashboards/prometheus/gaugeway.rules.yml").read_text("utf-8")


def kustomization(variant):
    (found,) = documents(FOLDER / variant / "kustomization.yaml")
    return found


def resources(variant):
    return [one for name in kustomization(variant)["resources"] for one in documents(FOLDER / variant / name)]


def of_kind(variant, *kinds):
    return [one for one in resources(variant) if one["kind"] in kinds]


def called(one):
    return f"{one['kind']}/{one['metadata']['name']}"


def kustomize(folder):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here")
    made = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


PODS = [
    pytest.param(variant, one, id=f"{variant}-{one['metadata']['name']}")
    for variant in VARIANTS
    for one in of_kind(variant, *WORKLOADS)
]


def pod(workload):
    return workload["spec"]["template"]["spec"]


def container(workload):
    (only,) = pod(workload)["containers"]
    return only


def ports(workload):
    return {port["name"]: port["containerPort"] for port in container(workload)["ports"]}


@pytest.fixture
def settings(monkeypatch):
    def read(variant):
        path = FOLDER / variant / "gaugeway.toml"
        for name in named_in(uncommented(path)):
            monkeypatch.setenv(name, "postgresql://db/gaugeway" if name == "GAUGEWAY_DATABASE" else "a-token")
        return read_by_both_planes(path)

    return read


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_takes_every_object(variant, release):
    validator = pytest.importorskip("kubernetes_validate")
    for one in resources(variant):
        validator.validate(one, release, strict=True)
    wrong = of_kind(variant, *WORKLOADS)[0]
    container(wrong)["readinessprobe"] = {}
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, release, strict=True)


@pytest.mark.parametrize("variant", [*VARIANTS, "monitoring"])
def test_kustomize_puts_it_together(variant):
    made = kustomize(FOLDER / variant)
    assert {one["metadata"]["namespace"] for one in made if one["kind"] != "Namespace"} == {"gaugeway"}
    kept = sorted(called(one) for one in made if one["kind"] != "ConfigMap")
    assert kept == sorted(called(one) for one in resources(variant))
    maps = {one["metadata"]["name"] for one in made if one["kind"] == "ConfigMap"}
    for workload in (one for one in made if one["kind"] in WORKLOADS):
        assert re.fullmatch(r"gaugeway:\d+\.\d+\.\d+", container(workload)["image"]), "an image has a tag"
        assert {volume["configMap"]["name"] for volume in pod(workload)["volumes"] if "configMap" in volume} == maps


def test_where_the_file_is_not_watched_a_change_of_it_replaces_the_pods():
    def hashed(variant):
        (generator,) = kustomization(variant)["configMapGenerator"]
        return not generator.get("options", {}).get("disableNameSuffixHash", False)

    commands = {variant: {container(one)["args"][0] for one in of_kind(variant, *WORKLOADS)} for variant in VARIANTS}
    assert commands == {"single": {"serve"}, "scaled": {"gateway", "monitors"}}
    assert (hashed("single"), hashed("scaled")) == (False, True), "only `serve` watches it"


@pytest.mark.parametrize(("variant", "workload"), PODS)
def test_a_pod_is_confined(variant, workload):
    spec = pod(workload)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert spec["securityContext"]["runAsUser"] == int(re.search(r"--uid (\d+)", dockerfile)[1])
    assert container(workload)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    (namespace,) = of_kind(variant, "Namespace")
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.parametrize(("variant", "workload"), PODS)
def test_a_pod_runs_what_there_is_and_has_what_it_names(variant, workload):
    ours = container(workload)
    assert parse(ours["args"]) is not None
    given = {one["name"]: one["value"] for one in ours["env"]}
    assert given.keys() <= environment_variables()
    mounted = {one["mountPath"]: one["name"] for one in ours["volumeMounts"]}
    assert str(Path(given["GAUGEWAY_CONFIG"]).parent) in mounted
    assert "/data" in mounted, "where the image keeps its data"
    (generator,) = kustomization(variant)["configMapGenerator"]
    assert generator["files"] == [Path(given["GAUGEWAY_CONFIG"]).name]
    volumes = {volume["name"] for volume in pod(workload)["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
    assert set(mounted.values()) == volumes
    assert ours["envFrom"] == [{"secretRef": {"name": SECRET}}]
    assert {"cpu", "memory"} <= ours["resources"]["requests"].keys()
    assert "memory" in ours["resources"]["limits"]


@pytest.mark.parametrize(("variant", "workload"), PODS)
def test_probes_ask_what_answers_without_a_token(variant, workload):
    numbers = ports(workload)
    assert set(numbers.values()) <= PORTS
    paths = {}
    for kind in ("livenessProbe", "readinessProbe"):
        asked = container(workload)[kind]["httpGet"]
        assert asked["path"] in PROBES[numbers[asked["port"]]]
        paths[kind] = (asked["port"], asked["path"])
    if "traffic" in numbers:
        assert paths == {"livenessProbe": ("traffic", "/healthz"), "readinessProbe": ("traffic", "/readyz")}


@pytest.mark.parametrize(("variant", "workload"), PODS)
def test_there_is_time_to_notice_and_to_stop_in_order(variant, workload, settings):
    gateway = settings(variant).gateway
    needed = {
        "gateway": gateway.drain_delay_s + gateway.drain_s + HAND_OVER_S,
        "monitors": MONITORS_S,
        "serve": gateway.drain_delay_s + gateway.drain_s + HAND_OVER_S + MONITORS_S,
    }[container(workload)["args"][0]]
    assert pod(workload)["terminationGracePeriodSeconds"] > needed
    if "traffic" in ports(workload):
        probe = container(workload)["readinessProbe"]
        assert gateway.drain_delay_s > probe["periodSeconds"] * probe["failureThreshold"], "readiness fails first"


@pytest.mark.parametrize("variant", VARIANTS)
def test_services_lead_to_ports_of_pods(variant):
    workloads = of_kind(variant, *WORKLOADS)
    for service in of_kind(variant, "Service"):
        selector = service["spec"]["selector"].items()
        behind = [one for one in workloads if selector <= one["spec"]["template"]["metadata"]["labels"].items()]
        assert len(behind) == 1, called(service)
        for port in service["spec"]["ports"]:
            assert ports(behind[0])[port["targetPort"]] == port["port"]
    (traffic,) = [one for one in of_kind(variant, "Service") if one["metadata"]["name"] == "gaugeway"]
    assert [port["port"] for port in traffic["spec"]["ports"]] == [DEFAULTS.gateway.port], "no admin port beside it"


@pytest.mark.parametrize(("variant", "workload"), PODS)
def test_every_pod_is_under_a_network_policy_for_its_ports(variant, workload):
    labels = workload["spec"]["template"]["metadata"]["labels"].items()
    policies = of_kind(variant, "NetworkPolicy")
    (policy,) = [one for one in policies if one["spec"]["podSelector"]["matchLabels"].items() <= labels]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    let_in = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(let_in) == sorted(ports(workload))
    assert all(rule["from"] for rule in policy["spec"]["ingress"]), "nobody is let in unnamed"
    let_out = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert {53, 443} <= let_out
    assert (5432 in let_out) == (variant == "scaled")


def test_the_gateways_scale_and_survive_a_drain_of_nodes():
    scaled = {called(one): one for one in resources("scaled")}
    gateway = scaled["Deployment/gaugeway-gateway"]
    scaler = scaled["HorizontalPodAutoscaler/gaugeway-gateway"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gaugeway-gateway"}
    assert scaler["minReplicas"] >= 2
    assert "replicas" not in gateway["spec"], "two would decide"
    for name in ("gaugeway-gateway", "gaugeway-monitors"):
        budget = scaled[f"PodDisruptionBudget/{name}"]["spec"]
        assert budget["maxUnavailable"] == 1
        assert budget["selector"] == scaled[f"Deployment/{name}"]["spec"]["selector"]


def test_only_several_machines_need_a_database(settings):
    assert settings("single").store.url is None
    assert settings("scaled").store.url == settings("scaled").queue.url == "postgresql://db/gaugeway"
    assert settings("scaled").capture.salt != DEFAULTS.capture.salt, "or every pod has a key of its own"
    assert [one["spec"]["replicas"] for one in of_kind("single", "StatefulSet")] == [1]


def test_two_gateways_and_two_monitors_with_the_shipped_configuration_are_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUGEWAY_DATABASE", postgres().database())
    for name in ("GAUGEWAY_ADMIN_TOKEN", "GAUGEWAY_MONITORS_TOKEN", "GAUGEWAY_SALT"):
        monkeypatch.setenv(name, f"a-{name.lower()}")
    token = {"authorization": "Bearer a-gaugeway_monitors_token"}
    body = {"model": "m", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}
    with serve() as url, contextlib.ExitStack() as stack:
        text = (FOLDER / "scaled/gaugeway.toml").read_text("utf-8").replace("https://api.openai.com/v1", url)
        text = text.replace("drain_delay_s = 10\n", "")
        planes = {"gateway": [], "monitors": []}
        for number, plane in enumerate(("gateway", "gateway", "monitors", "monitors")):
            here = tmp_path / f"{plane}-{number}"  # each pod has a /data of its own
            here.mkdir()
            planes[plane].append(stack.enter_context(product(here, text, command=plane)))
        for gateway in planes["gateway"]:
            assert httpx.post(f"{gateway.base_url}/chat/completions", json=body, timeout=20).status_code == 200

        def seen(one):
            answer = httpx.get(f"{one.monitors}/api/exchanges?metric=lexical_groundedness", headers=token)
            assert answer.status_code == 200, answer.text
            return len(answer.json())

        for one in planes["monitors"]:
            one.until(lambda one=one: seen(one) == 2, 60, what="either shows what both gateways captured")
        assert not list(tmp_path.rglob("*.db")), "nothing that must last is in a pod"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_manual_says_how_to_make_the_secret_that_is_referred_to(variant):
    text = PAGE.read_text("utf-8")
    (command,) = re.findall(r"^kubectl .*create secret generic (?:.*\\\n)*.*$", text, re.MULTILINE)
    assert f"create secret generic {SECRET} " in command
    given = set(re.findall(r"--from-literal=(\w+)=", command))
    assert named_in(uncommented(FOLDER / variant / "gaugeway.toml")) <= given


@pytest.mark.parametrize("variant", VARIANTS)
def test_prometheus_is_led_to_both_planes_with_their_tokens(variant):
    (jobs,) = set(re.findall(r'absent\(up\{job=~"(.+?)"\}\)', RULES))
    (policies,) = [kustomization("monitoring")["namespace"]]
    assert policies == kustomization(variant)["namespace"]
    tokens = {}
    for monitor in resources("monitoring"):
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        found = [
            (service["metadata"]["name"], port["port"])
            for service in of_kind(variant, "Service")
            if wanted <= service["metadata"].get("labels", {}).items()
            for port in service["spec"]["ports"]
            if port["name"] == endpoint["port"]
        ]
        assert len(found) == 1
        assert re.fullmatch(jobs, found[0][0]), "the job is named after the service"
        assert endpoint["path"] == "/metrics"
        assert endpoint["authorization"]["credentials"]["name"] == SECRET
        tokens[found[0][1]] = endpoint["authorization"]["credentials"]["key"]
    assert tokens == {
        DEFAULTS.gateway.admin_port: "GAUGEWAY_ADMIN_TOKEN",
        DEFAULTS.monitors.port: "GAUGEWAY_MONITORS_TOKEN",
    }


def test_the_manual_makes_a_rule_object_of_the_rules(tmp_path):
    (script,) = re.findall(r"^```sh\n(\{ printf .*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    made = script.replace("kubectl apply -f -", "cat").replace(
        "monitoring/prometheus", str(ROOT / "dashboards/prometheus")
    )
    (written,) = yaml.safe_load_all(subprocess.run(["bash", "-c", made], check=True, capture_output=True).stdout)
    assert (written["apiVersion"], written["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert written["spec"] == yaml.safe_load(RULES)
