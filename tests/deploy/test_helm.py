"""The Helm chart: the objects of the Kustomize variants, values that are documented and checked, and no secret."""

import copy
import json
import re
import tomllib

import jsonschema
import pytest
import yaml

from gaugeway.settings import ConfigError
from tests.deploy.reading import DEPLOY, PAGE, ROOT, named_in, parse, read_by_both_planes
from tests.deploy.test_kubernetes import FOLDER, RELEASES, VARIANTS, WORKLOADS, called, resources

CHART = DEPLOY / "helm/gaugeway"
VALUES_TEXT = (CHART / "values.yaml").read_text("utf-8")
VALUES = yaml.safe_load(VALUES_TEXT)
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
README = (CHART / "README.md").read_text("utf-8")
HELMS_OWN = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}
DIGEST = "sha256:" + "0123456789abcdef" * 4


def sdk():
    return pytest.importorskip("helm_python", reason="`make helm` installs it (75 MB)")


def rendered(values=None, name="gaugeway"):
    """The objects of a release, in the order of their names."""
    helm = sdk()
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values or {}, name=name, namespace="gaugeway")
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    objects = [item for text in texts for item in yaml.safe_load_all(text) if item is not None]
    return {called(item): item for item in sorted(objects, key=called)}


def as_kustomize(value):
    """A part of an object without what only Helm adds to it."""
    if isinstance(value, list):
        return [as_kustomize(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: as_kustomize(item) for key, item in value.items() if key not in HELMS_OWN | {"checksum/config"}}
    return {key: item for key, item in kept.items() if key != "annotations" or item}


def without_labels(item):
    """An object whose own labels are left out: the chart labels all of them, Kustomize only what is selected."""
    item = copy.deepcopy(as_kustomize(item))
    item["metadata"].pop("labels", None)
    return item


def wanted(variant):
    """The objects that `kubectl kustomize` makes of a variant, but for its Namespace and ConfigMap."""
    objects = [item for item in resources(variant) if item["kind"] != "Namespace"]
    text = json.dumps(objects).replace('"image": "gaugeway"', '"image": "gaugeway:0.1.0"')
    return {called(item): without_labels(item) for item in json.loads(text)}


def workloads(objects):
    return [item for item in objects.values() if item["kind"] in WORKLOADS]


def configuration(objects):
    return objects["ConfigMap/gaugeway"]["data"]["gaugeway.toml"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_release_is_what_kustomize_makes(variant):
    objects = rendered({"mode": variant})
    ours = {name: without_labels(item) for name, item in objects.items() if name != "ConfigMap/gaugeway"}
    assert ours == wanted(variant)
    shipped = tomllib.loads((FOLDER / variant / "gaugeway.toml").read_text("utf-8"))
    assert tomllib.loads(configuration(objects)) == shipped


@pytest.mark.parametrize("variant", VARIANTS)
def test_its_service_monitors_are_those_of_kustomize(variant):
    objects = rendered({"mode": variant, "serviceMonitor": {"enabled": True}})
    ours = {name: without_labels(item) for name, item in objects.items() if name.startswith("ServiceMonitor/")}
    assert ours == {called(item): without_labels(item) for item in resources("monitoring")}
    other = rendered({"mode": variant, "serviceMonitor": {"enabled": True, "labels": {"release": "p"}}}, name="shop")
    for plane in ("gateway", "monitors"):
        monitor = other[f"ServiceMonitor/shop-gaugeway-{plane}"]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": f"gaugeway-{plane}"}]
        assert monitor["metadata"]["labels"]["release"] == "p"


EVERYTHING = {
    "image": {"repository": "registry.example/gaugeway", "digest": DIGEST, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "existingSecret": "of-the-vault",
    "judge": {"model": "gpt-6-luna"},
    "extraEnv": [{"name": "GAUGEWAY_LOG_LEVEL", "value": "debug"}],
    "single": {"storageClass": "fast"},
    "podAnnotations": {"team": "search"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "fullnameOverride": "quality",
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_kubernetes_takes_every_object(variant, release, values):
    validator = pytest.importorskip("kubernetes_validate")
    objects = rendered({"mode": variant, **values})
    assert len(objects) > 5
    for item in objects.values():
        validator.validate(item, release, strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_value_arrives(variant):
    objects = rendered({"mode": variant, **EVERYTHING})
    pods = [item["spec"]["template"] for item in workloads(objects)]
    assert len(pods) == (1 if variant == "single" else 2)
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["image"] == f"registry.example/gaugeway@{DIGEST}"
        assert container["imagePullPolicy"] == "Always"
        assert container["envFrom"] == [{"secretRef": {"name": "of-the-vault"}}]
        assert EVERYTHING["extraEnv"][0] in container["env"]
        assert pod["metadata"]["annotations"]["team"] == "search"
        for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
            assert pod["spec"][name] == EVERYTHING[name]
    assert all(name.split("/")[1].startswith("quality") for name in objects)
    text = objects["ConfigMap/quality"]["data"]["gaugeway.toml"]
    assert tomllib.loads(text)["judge"] == {
        "base_url": "https://api.openai.com/v1",
        "api_key": "${JUDGE_API_KEY}",
        "model": "gpt-6-luna",
    }
    if variant == "single":
        (claim,) = objects["StatefulSet/quality"]["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["storageClassName"] == "fast"


def test_what_is_optional_can_be_left_out():
    bare = rendered({"mode": "scaled", "podDisruptionBudget": {"enabled": False}, "networkPolicy": {"enabled": False}})
    assert {name.split("/")[0] for name in bare}.isdisjoint({"PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"})
    assert not [name for name in rendered() if name.startswith("Secret/")], "a release's values are readable in it"


def test_two_releases_of_a_namespace_select_only_their_own_pods():
    for name in ("gaugeway-a", "gaugeway-b"):
        for item in rendered({"mode": "scaled"}, name=name).values():
            if item["kind"] == "Service":
                assert item["spec"]["selector"]["app.kubernetes.io/instance"] == name
            elif item["kind"] == "NetworkPolicy":
                assert item["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == name
            elif item["kind"] in ("Deployment", "PodDisruptionBudget"):
                assert item["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == name


def test_where_the_file_is_not_watched_a_change_of_it_replaces_the_pods():
    def annotations(**values):
        return [item["spec"]["template"]["metadata"].get("annotations", {}) for item in workloads(rendered(values))]

    assert annotations(mode="single") == [{}], "`serve` watches it"
    before = annotations(mode="scaled")
    after = annotations(mode="scaled", upstream="https://llm.example/v1")
    assert len({one["checksum/config"] for one in (*before, *after)}) == 2


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """Read a release's configuration as both planes do."""

    def read(values):
        path = tmp_path / "gaugeway.toml"
        path.write_text(configuration(rendered(values)), "utf-8")
        urls = {"GAUGEWAY_DATABASE": "postgresql://db/gaugeway", "SLACK_WEBHOOK": "https://hooks.example/a"}
        for name in named_in(path.read_text("utf-8")):
            monkeypatch.setenv(name, urls.get(name, "a-token"))
        return read_by_both_planes(path)

    return read


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_planes_take_the_configuration(variant, taken):
    judge = {"model": 'a "model" \\ <&>', "baseUrl": "https://judge.example/v1", "apiKeyVariable": "OF_THE_JUDGE"}
    extra = '[metrics.faithfulness]\nrate = 0.2\n\n[[notifiers]]\nkind = "slack"\nurl = "${SLACK_WEBHOOK}"\n'
    config = taken({"mode": variant, "upstream": "https://llm.example/v1", "judge": judge, "extraConfig": extra})
    assert config.upstreams[0].base_url == "https://llm.example/v1"
    assert (config.judge.model, config.judge.base_url) == (judge["model"], judge["baseUrl"])
    assert config.metrics["faithfulness"].rate == 0.2
    assert config.notifiers[0].kind == "slack"


def test_the_readmes_example_of_more_tables_is_taken(taken):
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    config = taken({"judge": {"model": "gpt-6-luna"}} | yaml.safe_load(example))
    assert config.metrics["faithfulness"].rate == 0.2
    assert [notifier.kind for notifier in config.notifiers] == ["slack"]


def test_a_whole_configuration_takes_the_place_of_the_generated_one(taken):
    given = '[[upstreams]]\nbase_url = "https://mine.example/v1"\n'
    config = taken({"config": given, "judge": {"model": "not used"}})
    assert config.upstreams[0].base_url == "https://mine.example/v1"
    assert config.judge.model is None
    with pytest.raises(ConfigError):
        taken({"config": "[nothing]\n"})


def test_helm_has_nothing_to_complain_about():
    helm = sdk()
    said = [message["error"] for message in helm.lint(CHART)["messages"]]
    assert said == ["icon is recommended"]


# The values, without Helm

WRONG = [
    {"mode": "double"},
    {"modes": "single"},
    {"existingSecret": ""},
    {"upstream": "api.openai.com"},
    {"judge": {"apiKeyVariable": "sk-a-key"}},
    {"image": {"digest": "sha256:abc"}},
    {"image": {"repository": "gaugeway", "version": "1"}},
    {"gateway": {"minReplicas": 0}},
    {"networkPolicy": {"clients": {}}},
    {"networkPolicy": {"egressPorts": ["https"]}},
    {"serviceMonitor": {"interval": "often"}},
    {"single": {"storage": "a lot"}},
    {"fullnameOverride": "Has Spaces"},
]


@pytest.mark.parametrize("values", [VALUES, EVERYTHING], ids=["defaults", "everything"])
def test_the_schema_takes_values(values):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(values, SCHEMA)


@pytest.mark.parametrize("values", WRONG, ids=json.dumps)
def test_the_schema_refuses_what_is_no_value(values):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


def test_helm_uses_the_schema():
    helm = sdk()
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmValuesError, match="mode"):
        chart.validate_schema({"mode": "double"})


def leaves(values, path=()):
    """Every value with its dotted path; an empty or open mapping is one."""
    for key, value in values.items():
        if isinstance(value, dict) and value and (*path, key) not in OPEN:
            yield from leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value


OPEN = {("networkPolicy", "clients"), *((name, "resources") for name in ("single", "gateway", "monitors"))}


def described():
    """The comment above each key of values.yaml, by dotted path."""
    path, comment, texts = [], [], {}
    for line in VALUES_TEXT.splitlines():
        if words := re.match(r" *# ?(.*)", line):
            comment.append(words[1])
        elif key := re.match(r"( *)([A-Za-z-]+):", line):
            path = [*path[: len(key[1]) // 2], key[2]]
            if comment:
                texts[".".join(path)] = " ".join(comment)
            comment = []
        else:
            comment = []
    return texts


def test_the_readme_has_a_row_for_every_value():
    texts = described()
    rows = [f"| `{name}` | `{json.dumps(value)}` | {texts.get(name)} |" for name, value in leaves(VALUES)]
    shown = [line for line in README.splitlines() if line.startswith("| `")]
    assert shown == rows, "expected:\n" + "\n".join(rows)
    assert texts.keys() == dict(leaves(VALUES)).keys(), "every value has a comment, and only values have"


def test_it_has_the_version_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (project["version"], project["version"])


def test_the_manuals_commands_name_the_chart_and_its_values():
    text = README + PAGE.read_text("utf-8") + (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^(?:\$ )?helm (?:.*\\\n)*.*$", text, re.MULTILINE)
    assert len(commands) >= 3
    names = dict(leaves(VALUES))
    for command in commands:
        assert "deploy/helm/gaugeway" in command
        for name in re.findall(r"--set (?:\S+,)?([\w.]+)=", command):
            assert name in names, command


def test_the_pods_run_commands_there_are():
    for variant in VARIANTS:
        for item in workloads(rendered({"mode": variant})):
            (container,) = item["spec"]["template"]["spec"]["containers"]
            assert parse(container["args"]) is not None
