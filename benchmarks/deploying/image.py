"""Build the image of the Dockerfile without a registry, start it, and time it up to the first judged score.

python benchmarks/deploying/image.py [--rounds 3]

Needs root and the Debian packages `buildah` and `debootstrap`; the base is a Debian with Python 3.11 in the place of
`python:3.11-slim`. Steps and processes run in a chroot on the machine's network (buildah's isolation `chroot`): that
shows that the image is complete, starts as its user and answers, not that a runtime confines it. The second row is the
pod of the Helm chart: configuration, command and variables as the chart renders them, in the same image; it needs
`make helm`. The provider and the judge are the scripted model.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks/page")]

import first_minutes  # noqa: E402 - after the path is set
from first_minutes import TOKENS, Way  # noqa: E402 - same

HOME = Path(__file__).parent / ".peers"
BASE, IMAGE = "localhost/gaugeway-base", "localhost/gaugeway"
INCLUDED = "python3,python3-venv,python-is-python3,ca-certificates"
MIRROR = "http://deb.debian.org/debian"
BUILDAH = ["buildah", "--root", str(HOME / "store"), "--runroot", str(HOME / "run")]
SEEN_IN_A_BUILD = ("/etc/ssl/certs", "/etc/pip.conf")
"""What the machine needs to reach its package index."""


def run(*words: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


def base() -> None:
    """Make the base image, unless it is there."""
    if BASE in run(*BUILDAH, "images", "--format", "{{.Name}}"):
        return
    files = HOME / "base"
    if not (files / "usr/bin/python").exists():
        run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", "bookworm", str(files), MIRROR)
    container = run(*BUILDAH, "from", "scratch")
    run(*BUILDAH, "copy", "--quiet", container, str(files), "/")
    run(*BUILDAH, "commit", "--quiet", container, BASE)
    run(*BUILDAH, "rm", container)


def build() -> None:
    """Build the Dockerfile on that base."""
    seen = [f"--volume={path}:{path}:ro" for path in SEEN_IN_A_BUILD if Path(path).exists()]
    wheels = os.environ.get("PIP_FIND_LINKS")  # noqa: TID251 - of the machine that builds
    seen += [f"--volume={wheels}:{wheels}:ro"] if wheels and Path(wheels).is_dir() else []
    how = ["--isolation", "chroot", "--network", "host", "--format", "docker", "--quiet"]
    run(*BUILDAH, "build", *how, *seen, "--build-arg", f"BASE={BASE}", "--tag", IMAGE, str(ROOT))


def container() -> str:
    """A container of the image; its processes are started by `processes`."""
    return run(*BUILDAH, "from", IMAGE)


def process(name: str, words: Sequence[str], environment: Mapping[str, str], volumes: Iterable[str]) -> list[str]:
    """The command that runs the image's program in a container."""
    given = [word for item in environment.items() for word in ("--env", "=".join(item))]
    mounted = [word for volume in volumes for word in ("--volume", volume)]
    return [*BUILDAH, "run", "--isolation", "chroot", *given, *mounted, name, "--", "gaugeway", *words]


def data(directory: Path) -> Path:
    """A volume that belongs to the image's user."""
    made = directory / "data"
    made.mkdir(mode=0o700)
    directory.chmod(0o755)
    os.chown(made, 10001, 10001)
    return made


def on(ports: Sequence[int]) -> dict[str, str]:
    """The variables that put the three ports where they are free."""
    names = ("GAUGEWAY_PORT", "GAUGEWAY_ADMIN_PORT", "GAUGEWAY_MONITORS_PORT")
    return dict(zip(names, map(str, ports), strict=True))


def as_typed(name: str, url: str, directory: Path, ports: Sequence[int]) -> Way:
    """The README's `docker run`."""
    token = TOKENS["GAUGEWAY_MONITORS_TOKEN"]
    environment = {"OPENAI_API_KEY": "sk-image", "GAUGEWAY_MONITORS_TOKEN": token, "GAUGEWAY_MONITORS_HOST": "0.0.0.0"}
    words = ["serve", "--upstream", url, "--judge", "judge-1"]
    return Way(
        name="image: docker build, docker run (buildah, chroot)",
        typed=["docker build", "export GAUGEWAY_MONITORS_TOKEN=...", "docker run"],
        processes=[process(name, words, environment | on(ports), [f"{data(directory)}:/data"])],
        environment={},
        token=token,
    )


def as_rendered(name: str, url: str, directory: Path, ports: Sequence[int]) -> Way:
    """The pod of the chart with the README's values, as a kubelet would start it."""
    helm = importlib.import_module("helm_python")
    values = {"upstream": url, "judge": {"model": "judge-1"}}
    with helm.Chart.load(ROOT / "deploy/helm/gaugeway") as chart:
        files = chart.render(values, name="gaugeway", namespace="gaugeway")
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    objects = {item["kind"]: item for text in texts for item in yaml.safe_load_all(text) if item is not None}
    (pod,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    (directory / "etc").mkdir()
    for file, text in objects["ConfigMap"]["data"].items():
        (directory / "etc" / file).write_text(text, "utf-8")
    environment = {variable["name"]: variable["value"] for variable in pod["env"]}
    secret = {**TOKENS, "JUDGE_API_KEY": "sk-image"}
    volumes = [f"{data(directory)}:/data", f"{directory / 'etc'}:/etc/gaugeway:ro"]
    return Way(
        name="Helm: its rendered pod (buildah, chroot)",
        typed=["kubectl create namespace", "kubectl create secret", "helm install", "kubectl port-forward"],
        processes=[process(name, pod["args"], environment | secret | on(ports), volumes)],
        environment={},
        token=secret["GAUGEWAY_MONITORS_TOKEN"],
    )


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--rounds", type=int, default=3)
    asking.add_argument("--built", action="store_true", help="take the image that is there")
    given = asking.parse_args()
    HOME.mkdir(exist_ok=True)
    for step in () if given.built else (base, build):
        begun = time.monotonic()
        step()
        print(f"{step.__name__}: {time.monotonic() - begun:.0f} s", flush=True)
    size = run(*BUILDAH, "images", "--format", "{{.Name}} {{.Size}}")
    print("\n".join(line for line in size.splitlines() if re.match(rf"{IMAGE}(-base)? ", line)))
    name = container()
    print(run(*process(name, ["--version"], {}, ())), flush=True)
    print(run(*BUILDAH, "run", "--isolation", "chroot", name, "--", "id"), "\n", flush=True)
    first_minutes.head()
    try:
        for way in (as_typed, as_rendered):
            first_minutes.row(lambda *where, way=way: way(name, *where), given.rounds)
    finally:
        run(*BUILDAH, "rm", name)


if __name__ == "__main__":
    main()
