"""What holds for every file that is shipped for deployment, and for the image they all use."""

import re
import tomllib

import pytest
import yaml

from gaugeway.redaction import Redactor
from gaugeway.storage.engines.postgres import ENGINE
from tests.deploy.reading import (
    DEFAULTS,
    DEPLOY,
    PAGE,
    PORTS,
    ROOT,
    configurations,
    named_in,
    parse,
    read_by_both_planes,
    uncommented,
)

FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DATABASE = "postgresql://gaugeway:secret@postgresql/gaugeway"
KINDS = {".yaml", ".yml", ".toml", ".service", ".example", ".md", ".py", ".json", ".tpl", ".txt"}
YAML = [path for path in FILES if path.suffix in (".yaml", ".yml") and path.parent.name != "templates"]


def name_of(path):
    return str(path.relative_to(DEPLOY))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_it_is_of_a_kind_that_is_tested_here(path):
    assert path.suffix in KINDS


@pytest.mark.parametrize("path", YAML, ids=name_of)
def test_yaml_has_no_key_twice(path):
    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader, node):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        assert len(set(keys)) == len(keys), keys
        loader.flatten_mapping(node)
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    Strict.add_constructor("tag:yaml.org,2002:map", mapping)
    assert list(yaml.load_all(path.read_text("utf-8"), Strict))


@pytest.mark.parametrize("path", [*FILES, PAGE], ids=lambda path: path.name)
def test_there_is_no_secret_in_it(path):
    text = path.read_text("utf-8")
    assert Redactor(("secret",), (), "test").redact(text) == text
    for name, value in re.findall(
        r"^\W*(\w*(?:TOKEN|KEY|PASSWORD|SECRET|SALT)\w*)[ \t]*[:=][ \t]*(\S.*)?$", text, re.MULTILINE
    ):
        assert not value or value.startswith(("${", "$(", '"${')), name


@pytest.mark.parametrize("path", configurations(), ids=name_of)
def test_both_planes_take_the_configuration(path, monkeypatch):
    for name in named_in(uncommented(path)):
        monkeypatch.setenv(name, DATABASE if name == "GAUGEWAY_DATABASE" else f"a-{name.lower()}")
    config = read_by_both_planes(path)
    assert {config.gateway.port, config.gateway.admin_port, config.monitors.port} == PORTS, "the manifests say so"


WITH_A_JUDGE = [path for path in configurations() if "# [judge]" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WITH_A_JUDGE, ids=name_of)
def test_the_judge_that_is_commented_out_is_one(path, monkeypatch, tmp_path):
    text = path.read_text("utf-8")
    monkeypatch.setenv("JUDGE_API_KEY", "a-key")
    for name in named_in(uncommented(path)):
        monkeypatch.setenv(name, "a-token")
    switched_on = tmp_path / path.name
    switched_on.write_text(re.sub(r"^# (?=\[judge\]|base_url|api_key|model)", "", text, flags=re.MULTILINE))
    assert read_by_both_planes(switched_on).judge.api_key == "a-key"


def test_the_configuration_for_many_is_the_only_one_that_needs_a_database():
    asking = [path for path in configurations() if "GAUGEWAY_DATABASE" in path.read_text("utf-8")]
    assert [name_of(path) for path in asking] == ["kubernetes/scaled/gaugeway.toml"]
    assert ENGINE.queue
    assert ENGINE.store


# The image


def test_the_image_holds_every_package():
    packages = [name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert ignored[0] == "*"
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert all(f"!{name}" in ignored for name in names.split()), "the build context lacks what is copied"
    for name in packages:
        assert f"COPY {name} {name}\n" in DOCKERFILE
        assert f"!{name}" in ignored, f"the build context lacks {name}/"


@pytest.mark.parametrize("package", ["gaugeway", "gateway", "monitors", "dashboards"])
def test_the_image_holds_what_the_package_reads_beside_its_code(package):
    patterns = PROJECT["tool"]["setuptools"]["package-data"][package]
    shipped = {path for pattern in patterns for path in (ROOT / package).glob(pattern)}
    beside = {
        path
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and "dev" not in path.parts
    }
    assert sorted(map(str, beside - shipped)) == []


def test_the_image_has_the_extras_that_the_manifests_need():
    assert "--require-hashes --only-binary :all: -r requirements.lock" in DOCKERFILE
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE))
    extras = PROJECT["project"]["optional-dependencies"]
    needed = {re.split(r"[<>=]", one)[0] for name in ("otlp", "postgres", "redis", "email") for one in extras[name]}
    assert needed <= locked


def test_the_image_runs_what_there_is():
    (command,) = re.findall(r'^CMD \["(\w+)"\]$', DOCKERFILE, re.MULTILINE)
    assert parse([command])
    assert 'ENTRYPOINT ["gaugeway"]' in DOCKERFILE
    exposed = re.search(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE)[1].split()
    assert exposed == [str(DEFAULTS.gateway.port), str(DEFAULTS.monitors.port)]
    assert f"http://127.0.0.1:{DEFAULTS.gateway.port}/readyz" in DOCKERFILE
    (user,) = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    assert f"useradd --system --uid {user} " in DOCKERFILE


def test_the_files_name_the_version_of_the_project():
    version = PROJECT["project"]["version"]
    text = "".join(path.read_text("utf-8") for path in FILES)
    named = re.findall(r"image: gaugeway:(\S+)|newTag: (\S+)", text)
    assert {tag for pair in named for tag in pair if tag} == {version}
