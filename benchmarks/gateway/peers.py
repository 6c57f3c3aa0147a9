"""The contenders: how each is installed, configured, started in front of one upstream, and stopped.

python benchmarks/gateway/peers.py install [NAME ...]   # into .peers/, one at a time, at low priority
python benchmarks/gateway/peers.py list                 # what is there, and what is not, and why
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Self

import installs
import machine

READY_S = 120.0
HERE = Path(sys.executable).parent
KEY = "sk-bench-0123456789abcdef0123456789abcdef"
SECRETS: dict[str, str] = {}
"""Keys that a contender issued when it was started, by its name."""
STATUSES = (400, 401, 404, 429, 500)
# One deployment for each scripted failure, so that what a gateway does to a deployment that failed stays with that row.
MODELS = ("bench", *(f"bench-{status}" for status in STATUSES), "bench-after")


class Missing(Exception):
    """A contender that cannot take part, with the reason."""


@dataclass
class Start:
    """What a contender is started with."""

    port: int
    upstream: int
    home: Path
    upstream_client: str | None = None
    # Ports whose /healthz must answer too before it counts as started.
    healthy: list[int] = field(default_factory=list)

    def write(self, name: str, text: str) -> str:
        path = self.home / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Contender:
    """A proxy, and how a client talks to it. `command` writes its configuration and gives the words to run."""

    name: str
    label: str
    command: Callable[[Start], list[str]] | None
    package: str | None = None
    base: str = "/v1"
    model: str = "{}"
    headers: Callable[[int], dict[str, str]] = field(default=lambda _: {})

    def version(self) -> str | None:
        """The version here, or None; `direct` has none."""
        if self.package == "gaugeway":
            return f"{distribution_version('gaugeway')} {_commit()}".strip()
        return installs.version(self.package) if self.package else "-"


def _commit() -> str:
    """The commit of the code that is measured, with a + if it differs from that; nothing outside a repository."""
    found = importlib.util.find_spec("gateway")
    if found is None or not found.submodule_search_locations:
        return ""
    git = ["env", "GIT_OPTIONAL_LOCKS=0", "git", "-C", next(iter(found.submodule_search_locations))]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = [*git, "status", "--porcelain", ":/gateway", ":/monitors"]
    dirty = head.stdout and subprocess.run(changed, capture_output=True, text=True, check=False).stdout
    return head.stdout.strip() + ("+" if dirty else "")


def _nginx(start: Start) -> list[str]:
    binary = installs.nginx()
    assert binary is not None
    start.write(
        "nginx.conf",
        f"""daemon off; worker_processes 1; pid {start.home}/nginx.pid; error_log {start.home}/error.log;
        events {{ worker_connections 4096; }}
        http {{
          access_log off; client_max_body_size 0; keepalive_requests 1000000; client_body_buffer_size 1m;
          client_body_temp_path {start.home}/b; proxy_temp_path {start.home}/p; fastcgi_temp_path {start.home}/f;
          uwsgi_temp_path {start.home}/u; scgi_temp_path {start.home}/s;
          upstream up {{ server 127.0.0.1:{start.upstream}; keepalive 512; keepalive_requests 1000000; }}
          server {{ listen 127.0.0.1:{start.port} backlog=1024;
            location / {{ proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";
              proxy_buffering off; proxy_request_buffering off; }} }} }}""",
    )
    return [binary, "-p", str(start.home), "-c", "nginx.conf", "-e", "stderr"]


def _litellm(start: Start) -> list[str]:
    entries = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{name}",
                "api_base": f"http://127.0.0.1:{start.upstream}/v1",
                "api_key": KEY,
            },
        }
        for name in MODELS
    ]
    config = start.write("litellm.yaml", json.dumps({"model_list": entries}))
    return [
        *("env", f"LITELLM_MASTER_KEY={KEY}", "LITELLM_LOCAL_MODEL_COST_MAP=True"),
        *(str(installs.PEERS / "litellm/bin/litellm"), "--config", config, "--host", "127.0.0.1"),
        *("--port", str(start.port), "--num_workers", "1", "--telemetry", "False"),
    ]


def _portkey(start: Start) -> list[str]:
    script = installs.PEERS / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
    return ["node", str(script), f"--port={start.port}", "--headless"]


def _portkey_headers(upstream: int) -> dict[str, str]:
    return {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1"}


def _mlflow(start: Start) -> list[str]:
    entries = [
        {
            "name": name,
            "endpoint_type": "llm/v1/chat",
            "model": {
                "provider": "openai",
                "name": name,
                "config": {"openai_api_key": KEY, "openai_api_base": f"http://127.0.0.1:{start.upstream}/v1"},
            },
        }
        for name in MODELS
    ]
    config = start.write("mlflow.yaml", json.dumps({"endpoints": entries}))
    folder = installs.PEERS / "mlflow/bin"
    path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
    return [
        *("env", f"PATH={path}", "MLFLOW_DISABLE_TELEMETRY=true", str(folder / "mlflow"), "gateway", "start"),
        *("--config-path", config, "--host", "127.0.0.1", "--port", str(start.port), "--workers", "1"),
    ]


_TENSORZERO = """
import pathlib, signal, sys, tensorzero.tensorzero as rust
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
gateway = rust._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False)
pathlib.Path("port.new").write_text(gateway.base_url.split(":")[2].split("/")[0])
pathlib.Path("port.new").rename("port")  # it takes a free port, whatever its configuration says
while True: signal.pause()
"""


def _tensorzero(start: Start) -> list[str]:
    models = "".join(
        f"""
[models.{name}]
routing = ["up"]
[models.{name}.providers.up]
type = "openai"
model_name = "{name}"
api_base = "http://127.0.0.1:{start.upstream}/v1/"
api_key_location = "none"
"""
        for name in MODELS
    )
    gateway = f'[gateway]\nbind_address = "127.0.0.1:{start.port}"\nobservability.enabled = false\n'
    config = start.write("tensorzero.toml", gateway + models)
    return [
        *("env", "TENSORZERO_DISABLE_PSEUDONYMOUS_USAGE_ANALYTICS=1", str(installs.PEERS / "tensorzero/bin/python")),
        *("-c", _TENSORZERO, config),
    ]


def _sglang(start: Start) -> list[str]:
    return [
        *(str(installs.PEERS / "sglang/bin/sglang-router"), "launch", "--backend", "openai"),
        *("--worker-urls", f"http://127.0.0.1:{start.upstream}", "--host", "127.0.0.1", "--port", str(start.port)),
        *("--history-backend", "none", "--disable-retries", "--prometheus-port", str(machine.free_port())),
    ]


def _gaugeway(command: str, settings: str, programs: Path | None = None) -> Callable[[Start], list[str]]:
    def words(start: Start) -> list[str]:
        client = f'[gateway]\nupstream_client = "{start.upstream_client}"\n' if start.upstream_client else ""
        upstream = f'[[upstreams]]\nbase_url = "http://127.0.0.1:{start.upstream}/v1"\n'
        config = start.write("gaugeway.toml", client + settings + upstream)
        monitors = machine.free_port()
        if command == "serve":
            start.healthy.append(monitors)
        return [
            *(str((programs or HERE) / "gaugeway"), command, "--config", config, "--port", str(start.port)),
            *("--admin-port", str(machine.free_port()), "--monitors-port", str(monitors)),
            *("--data-dir", str(start.home / "data")),
        ]

    return words


def _gaugeway_with_keys(name: str, programs: Path | None = None) -> Callable[[Start], list[str]]:
    """Have it check a key and count against limits of every kind that are never reached."""

    def words(start: Start) -> list[str]:
        create = [str((programs or HERE) / "gaugeway"), "keys", "create", "--app", "bench"]
        create += ["--data-dir", str(start.home / "data")]
        made = subprocess.run(create, check=True, capture_output=True, text=True)
        SECRETS[name] = next(word for word in made.stdout.split() if word.startswith("gw-"))
        limits = "requests_per_min = 1e9\ntokens_per_min = 1e12\nusd_per_day = 1e9\nmax_concurrency = 10000\n"
        tables = f'[keys]\nenabled = true\n[limits]\n{limits}[prices."*"]\ninput = 1.0\noutput = 2.0\n'
        return _gaugeway("gateway", tables, programs)(start)

    return words


def _gaugeway_with_trial(programs: Path | None = None) -> Callable[[Start], list[str]]:
    """Have it send five requests a second again, to the same upstream, while it serves."""

    def words(start: Start) -> list[str]:
        where = (
            f'base_url = "http://127.0.0.1:{start.upstream}/v1", api_key = "${{file:{start.write("key", "sk-bench")}}}"'
        )
        trial = 'name = "bench"\napp = "default"\nsend = "redacted"\nprimary = "lexical_groundedness"\nusd = 1e5\n'
        arms = f"per_second = 5\narms = [{{ {where}, price = {{ input = 1.0, output = 1.0 }} }}]\n"
        return _gaugeway("serve", f"[[trials]]\n{trial}{arms}", programs)(start)

    return words


def compile_bytecode() -> None:
    """Compile Gaugeway's modules to bytecode, as pip does: from a source tree, each start could compile them."""
    packages = [importlib.util.find_spec(name) for name in ("gateway", "monitors", "dashboards")]
    folders = [folder for one in packages if one is not None for folder in one.submodule_search_locations or ()]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], check=True)


def gaugeways(suffix: str = "", programs: Path | None = None) -> list[Contender]:
    """Gaugeway's contenders; with `programs`, the folder with another installation's `gaugeway`, those of that one."""

    def contender(name: str, label: str, command: Callable[[Start], list[str]]) -> Contender:
        return Contender(f"{name}{suffix}", f"{label}{suffix}", command, "gaugeway")

    keys = f"gaugeway-keys{suffix}"
    with_keys = contender("gaugeway-keys", "Gaugeway, on, keys and limits", _gaugeway_with_keys(keys, programs))
    return [
        contender("gaugeway-off", "Gaugeway, capture off", _gaugeway("gateway", "[capture]\nrate = 0\n", programs)),
        contender("gaugeway-on", "Gaugeway, capture on", _gaugeway("gateway", "", programs)),
        replace(with_keys, headers=lambda _: {"api-key": SECRETS[keys]}),
        contender("gaugeway-serve", "Gaugeway, on + monitors", _gaugeway("serve", "", programs)),
        contender("gaugeway-trial", "Gaugeway, on + monitors + a trial", _gaugeway_with_trial(programs)),
    ]


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("direct", "direct", None),
        Contender("nginx", "nginx", _nginx, "nginx"),
        *gaugeways(),
        Contender("sglang", "sglang-router", _sglang, "sglang"),
        Contender(
            *("tensorzero", "TensorZero", _tensorzero, "tensorzero"),
            base="/openai/v1",
            model="tensorzero::model_name::{}",
        ),
        Contender("mlflow", "MLflow", _mlflow, "mlflow"),
        Contender("portkey", "Portkey", _portkey, "portkey", headers=_portkey_headers),
        Contender("litellm", "LiteLLM", _litellm, "litellm"),
    )
}


class Running:
    """A started contender; leave the context and the whole tree of it is gone."""

    def __init__(
        self, contender: Contender, upstream: int, *, core: int | None = None, upstream_client: str | None = None
    ) -> None:
        self.contender = contender
        self.upstream = upstream
        self.port = upstream if contender.command is None else machine.free_port()
        self.ready_s = 0.0
        self._core = core
        self._client = upstream_client
        self._process: subprocess.Popen[bytes] | None = None
        self._home: Path | None = None

    def __enter__(self) -> Self:
        if self.contender.version() is None:
            raise Missing(installs.missing_reason(str(self.contender.package)))
        if self.contender.command is None:
            return self
        self._home = Path(tempfile.mkdtemp(prefix=f"gaugeway-bench-{self.contender.name}-"))
        start = Start(self.port, self.upstream, self._home, self._client)
        words = self.contender.command(start)
        if self._core is not None and shutil.which("taskset"):
            words = ["taskset", "-c", str(self._core), *words]
        begun = time.monotonic()
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                words, cwd=self._home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait(begun + READY_S, start.healthy)
        except BaseException:  # Ctrl-C too: nothing started here may outlive the run
            self.__exit__()
            raise
        self.ready_s = time.monotonic() - begun
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            machine.stop(self._process.pid)
            self._process.wait(timeout=5)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    def pids(self) -> list[int]:
        """Every process of it."""
        return machine.tree(self._process.pid) if self._process is not None else []

    def log(self) -> str:
        """The end of what it printed."""
        return (self._home / "log").read_text(errors="replace")[-1500:] if self._home else ""

    def _wait(self, deadline: float, healthy: list[int]) -> None:
        """Return when a chat request is answered with the upstream's text and every other part says it lives."""
        last = "no answer"
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._home is not None
            if self._process.poll() is not None:
                raise Missing(f"ended with code {self._process.returncode}: {self._tail()}")
            if (taken := self._home / "port").is_file():
                self.port = int(taken.read_text())
            try:
                status, body = self._ask()
                for port in healthy:
                    _health(port)
            except (OSError, http.client.HTTPException) as error:
                last = repr(error)
            else:
                if status == 200 and b"Refunds are paid" in body:
                    return
                last = f"{status} {body[:200]!r}"
            time.sleep(0.1)
        raise Missing(f"not ready after {READY_S:.0f} s; last: {last}; {self._tail()}")

    def _ask(self) -> tuple[int, bytes]:
        body = {"model": self.contender.model.format("bench"), "messages": [{"role": "user", "content": "ready?"}]}
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(
                "POST",
                f"{self.contender.base}/chat/completions",
                json.dumps(body),
                headers | self.contender.headers(self.upstream),
            )
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def _tail(self) -> str:
        return " / ".join(line.strip() for line in self.log().splitlines()[-4:])[-500:]


def _health(port: int) -> None:
    """Raise OSError unless this port's /healthz answers 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        if (status := connection.getresponse().status) != 200:
            raise OSError(f"/healthz of port {port}: {status}")
    finally:
        connection.close()


def select(only: str | None) -> list[Contender]:
    """The contenders asked for, in the table's order."""
    names = only.split(",") if only else list(CONTENDERS)
    unknown = set(names) - set(CONTENDERS)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CONTENDERS)}")
    return [contender for name, contender in CONTENDERS.items() if name in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument("names", nargs="*", default=list(installs.NAMES))
    commands.add_parser("list")
    arguments = parser.parse_args()
    if arguments.command == "install":
        return installs.main(arguments.names)
    for name in installs.NAMES:
        found = installs.version(name)
        print(f"{name:<12} {found or 'MISSING: ' + installs.missing_reason(name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
