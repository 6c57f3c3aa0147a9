"""Several hosts on one machine: network namespaces on a bridge, whose packets to one another can be made to vanish."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Self

BRIDGE, NET = "gwfaults0", "10.77.0"
NOBODY = "02:00:00:00:00:fe"
"""An address that no card on the bridge has: what is sent there arrives nowhere, and nobody says so."""
_FIRST = 11
FREE_S = 20.0


def run(*words: object) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def allowed() -> bool:
    """Whether this machine lets us make hosts."""
    try:
        with Hosts(services=("probe",), machines=("probe",)):
            return True
    except OSError:
        return False


class Hosts:
    """`machines` have a namespace each; `services` are addresses of ours that they reach. Use as a context manager."""

    def __init__(self, *, services: tuple[str, ...], machines: tuple[str, ...]) -> None:
        self.services = {name: f"{NET}.{number}" for number, name in enumerate(services, 1)}
        self.machines = {name: f"{NET}.{number}" for number, name in enumerate(machines, _FIRST)}
        self._rules: list[tuple[object, ...]] = []

    def __enter__(self) -> Self:
        deadline = time.monotonic() + FREE_S
        while any((Path("/sys/class/net") / card).exists() for card in (BRIDGE, *self._cards())):
            if time.monotonic() > deadline:
                raise OSError("another run has its hosts here")
            time.sleep(0.1)  # those of the row before go by and by
        try:
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "link", "set", BRIDGE, "up")
            for address in self.services.values():
                run("ip", "address", "add", f"{address}/24", "dev", BRIDGE)
            for card, (name, address) in zip(self._cards(), self.machines.items(), strict=True):
                self._make(name, address, card)
        except OSError:
            self.__exit__()
            raise
        return self

    def _cards(self) -> list[str]:
        return [f"gwf{number}" for number in range(len(self.machines))]

    def _make(self, name: str, address: str, card: str) -> None:
        space = self.namespace(name)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", card, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", card, "master", BRIDGE, "up")
        run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", space, "link", "set", device, "up")

    def __exit__(self, *_: object) -> None:
        self._lift()
        for card in self._cards():  # a namespace lives on for as long as connections in it wait for an answer
            subprocess.run(["ip", "link", "del", card], capture_output=True, check=False)
        for name in self.machines:
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)

    @staticmethod
    def namespace(machine: str) -> str:
        return f"gwf-{machine}"

    def cut(self, machine: str, service: str) -> None:
        """Let no packet through, either way, and tell nobody."""
        here, there = self.machines[machine], self.services[service]
        space = self.namespace(machine)
        run("ip", "-n", space, "neigh", "replace", there, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")
        self._drop("from", there, "to", here)

    def mend(self, machine: str, service: str) -> None:
        """Let them through again."""
        self._lift()
        run("ip", "-n", self.namespace(machine), "neigh", "del", self.services[service], "dev", "eth0")

    def forget(self, machine: str, service: str, port: int) -> int:
        """Lose every packet that the service sends on connections there are now; return how many these are."""
        here, there = self.machines[machine], self.services[service]
        found = run("ss", "-Htn", "state", "established", "src", f"{there}:{port}", "dst", here).splitlines()
        for line in found:
            peer = line.split()[-1].rpartition(":")[2]
            self._drop("from", there, "to", here, "ipproto", "tcp", "sport", port, "dport", peer)
        return len(found)

    def _drop(self, *what: object) -> None:
        run("ip", "rule", "add", *what, "pref", 100, "blackhole")
        self._rules.append(what)

    def _lift(self) -> None:
        for what in self._rules:
            subprocess.run(
                ["ip", "rule", "del", *map(str, what), "pref", "100", "blackhole"], capture_output=True, check=False
            )
        self._rules.clear()
