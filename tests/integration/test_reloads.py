"""What changes in a running product when its configuration does, and what stays when a change is refused."""

import asyncio
import json
import os
import signal
import time

import httpx
import msgspec
import pytest

from gateway.config import Config, Keys, Limits, Upstream
from gateway.http.errors import Rejection
from gaugeway.storage.keys import open_keys
from tests.support.product import product
from tests.support.running import running_gateway
from tests.support.scripted_model import Model, serve

BODY = {"model": "m", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}
BOTH_PATHS = pytest.mark.parametrize("fast_path", [False, True])


def config_of(url):
    upstream = Upstream(base_url=url, api_key="sk-the-owners")
    return Config(upstreams=(upstream,))


async def status(client, running, secret=None):
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    answer = await client.post(f"http://127.0.0.1:{running.port}/v1/chat/completions", json=BODY, headers=headers)
    return answer.status_code


@BOTH_PATHS
def test_keys_can_be_switched_on_and_off_in_a_running_gateway(tmp_path, fast_path):
    model, file = Model(), tmp_path / "keys.db"

    async def scenario(url):
        config = config_of(url)
        with_keys = msgspec.structs.replace(config, keys=Keys(enabled=True))
        store = open_keys(None, file.parent)
        _, secret = await store.create(app="shop", now=time.time())
        await store.aclose()
        async with (
            httpx.AsyncClient() as client,
            running_gateway(url, config=config, keys_file=file, fast_path=fast_path) as running,
        ):
            assert await status(client, running) == 200
            running.gateway.apply(with_keys)
            with pytest.raises(Rejection) as caught:  # on the event loop nothing could run meanwhile
                running.gateway._admission.gate.identify([])  # noqa: SLF001 - before any request can be read
            assert caught.value.status == 503
            await running.until(lambda: running.gateway._admission.gate._keyring is not None, 60)  # noqa: SLF001 - same
            paid = len(model.log)
            assert [await status(client, running) for _ in range(5)] == [401] * 5, "on the same connection too"
            assert len(model.log) == paid
            assert await status(client, running, secret) == 200
            answer = await client.post(f"http://127.0.0.1:{running.port}/gaugeway/v1/feedback", json={"key": "k"})
            assert answer.status_code == 401
            running.gateway.apply(config)
            assert await status(client, running) == 200

    with serve(model) as url:
        asyncio.run(scenario(url))


@BOTH_PATHS
def test_the_first_limit_and_the_last_one_are_applied_in_a_running_gateway(fast_path):
    model = Model()

    async def scenario(url):
        config = config_of(url)
        limited = msgspec.structs.replace(config, limits=Limits(requests_per_min=3))
        async with httpx.AsyncClient() as client, running_gateway(url, config=config, fast_path=fast_path) as running:
            assert await status(client, running) == 200
            running.gateway.apply(limited)
            assert [await status(client, running) for _ in range(5)] == [200, 200, 200, 429, 429]
            assert len(model.log) == 4
            running.gateway.apply(config)
            assert await status(client, running) == 200

    with serve(model) as url:
        asyncio.run(scenario(url))


def test_keys_switched_on_while_limits_are_in_force_keep_what_was_used(tmp_path):
    async def scenario(url):
        config = msgspec.structs.replace(config_of(url), limits=Limits(requests_per_min=2))
        with_keys = msgspec.structs.replace(config, keys=Keys(enabled=True))
        file = tmp_path / "keys.db"
        async with httpx.AsyncClient() as client, running_gateway(url, config=config, keys_file=file) as running:
            assert [await status(client, running) for _ in range(3)] == [200, 200, 429]
            running.gateway.apply(with_keys)
            assert await status(client, running) == 401
            running.gateway.apply(config)
            assert await status(client, running) == 429

    with serve(Model()) as url:
        asyncio.run(scenario(url))


def audited(running):
    lines = [json.loads(line) for line in (running.data / "audit.log").read_text().splitlines()]
    return [(one["outcome"], one.get("keys")) for one in lines if one["action"] == "reload"]


def test_a_refused_reload_changes_neither_plane_even_when_a_process_starts_again(tmp_path):
    model = Model()
    with serve(model) as url:
        text = f'[[upstreams]]\nbase_url = "{url}"\n'
        with product(tmp_path, text) as running:
            chat = lambda: httpx.post(f"{running.base_url}/chat/completions", json=BODY, timeout=60)  # noqa: E731
            monitors, gateway = running.pid_of("monitors"), running.pid_of("gateway")
            running.configure(f"{text}[keys]\nenabled = true\n[queue]\nlease_s = 99\n[monitors]\nwindow_s = 60\n")
            refused = lambda: running.value(running.admin, "gaugeway_config_reloads_total", result="refused") == 1  # noqa: E731
            running.until(refused, 60, what="the refusal is counted")
            assert running.value(running.admin, "gaugeway_config_restart_keys_total", key="queue.lease_s") == 1
            assert "unchanged: queue.lease_s needs a restart" in running.log.read_text()
            assert audited(running) == [("refused", "queue.lease_s")]
            assert chat().status_code == 200
            assert running.pid_of("monitors") == monitors
            os.kill(gateway, signal.SIGKILL)
            running.until(lambda: _other_pid(running, gateway) and _answers(chat), 60, what="a new gateway answers")
            assert chat().status_code == 200, "keys are still off: the file is not what is in force"
            running.configure(f"{text}[keys]\nenabled = true\n")
            running.until(lambda: chat().status_code == 401, 60, what="what can be applied is applied")


def test_a_secret_file_that_changed_is_not_read_while_the_reload_is_refused(tmp_path):
    model = Model()
    secret = tmp_path / "key"
    secret.write_text("canary-accepted\n")
    with serve(model) as url:
        text = f'[[upstreams]]\nbase_url = "{url}"\napi_key = "${{file:{secret}}}"\n'
        with product(tmp_path, text) as running:
            chat = lambda: httpx.post(f"{running.base_url}/chat/completions", json=BODY, timeout=60)  # noqa: E731
            sent = lambda: [dict(one.headers).get("authorization") for one in model.log][-1]  # noqa: E731
            refused = lambda: running.value(running.admin, "gaugeway_config_reloads_total", result="refused")  # noqa: E731

            def started_again():
                gateway = running.pid_of("gateway")
                os.kill(gateway, signal.SIGKILL)
                running.until(lambda: _other_pid(running, gateway) and _answers(chat), 60, what="a new gateway answers")

            secret.write_text("")
            running.signal(signal.SIGHUP)
            running.until(lambda: refused() == 1, 60, what="the refusal is counted")
            assert f"upstreams[0].api_key: {secret}: empty" in running.log.read_text()
            started_again()
            assert chat().status_code == 200
            assert sent() == "Bearer canary-accepted"
            secret.write_text("canary-refused\n")
            running.configure(f"{text}[queue]\nlease_s = 99\n")
            running.until(lambda: refused() == 1, 60, what="the restarted gateway counts a refusal")
            started_again()
            assert chat().status_code == 200
            assert sent() == "Bearer canary-accepted"
            running.configure(text)
            running.signal(signal.SIGHUP)
            running.until(lambda: chat().status_code == 200 and sent() == "Bearer canary-refused", 60, what="a reload")
            assert "canary" not in running.log.read_text()


def _other_pid(running, pid):
    try:
        return running.pid_of("gateway") != pid
    except (LookupError, StopIteration, FileNotFoundError, AssertionError):
        return False


def _answers(chat):
    try:
        return chat().status_code > 0
    except httpx.HTTPError:
        return False


def test_monitors_alone_outlive_a_reload_signal_and_say_that_they_need_a_restart(tmp_path):
    with product(tmp_path, '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n', command="monitors") as running:
        running.signal(signal.SIGHUP)
        running.until(lambda: "SIGHUP ignored" in running.log.read_text(), 60, what="the signal is answered")
        assert audited(running) == [("refused", None)]
        assert httpx.get(f"{running.monitors}/healthz").status_code == 200
