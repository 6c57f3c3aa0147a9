"""How the parts of the stand reach one another: straight, through proxies that break, or as hosts of their own."""

from __future__ import annotations

import contextlib
from typing import Protocol, Self

from benchmarks.faults.hosts import Hosts, allowed
from benchmarks.faults.wire import Wire

SERVICES = ("client", "engine", "judge", "upstream", "hook")
"""Our own requests leave by the first address of the bridge, so that a cut from a service does not cut them off."""
STRAIGHT, PROXIED, HOSTED = "straight", "proxied", "hosted"


class Paths(Protocol):
    """The way from each plane to each service."""

    kind: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def reach(self, machine: str, service: str, port: int) -> tuple[str, int]:
        """Where `machine` finds what listens on `port`."""

    def address(self, machine: str) -> str:
        """Where `machine` itself is found."""

    def prefix(self, machine: str) -> list[str]:
        """Words that start a command on `machine`."""

    def cut(self, machine: str, service: str) -> None:
        """Let nothing through; nobody is told."""

    def mend(self, machine: str, service: str) -> None:
        """Let everything through again."""

    def forget(self, machine: str, service: str) -> int:
        """Leave the connections there are hanging; return how many."""


class Straight:
    """Everything on loopback, nothing between."""

    kind = STRAIGHT

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def reach(self, machine: str, service: str, port: int) -> tuple[str, int]:  # noqa: ARG002 - the same for all
        return "127.0.0.1", port

    def address(self, machine: str) -> str:  # noqa: ARG002 - same
        return "127.0.0.1"

    def prefix(self, machine: str) -> list[str]:  # noqa: ARG002 - same
        return []

    def cut(self, machine: str, service: str) -> None:
        raise RuntimeError(f"nothing stands between {machine} and {service}")

    mend = cut

    def forget(self, machine: str, service: str) -> int:
        raise RuntimeError(f"nothing stands between {machine} and {service}")


class Proxied(Straight):
    """A proxy for every pair of machine and service."""

    kind = PROXIED

    def __init__(self) -> None:
        self.wires: dict[tuple[str, str, int], Wire] = {}
        self._stack = contextlib.ExitStack()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reach(self, machine: str, service: str, port: int) -> tuple[str, int]:
        key = machine, service, port
        if key not in self.wires:
            self.wires[key] = self._stack.enter_context(Wire("127.0.0.1", port))
        return "127.0.0.1", self.wires[key].port

    def between(self, machine: str, service: str) -> list[Wire]:
        """The proxies on the way."""
        return [wire for (one, other, _), wire in self.wires.items() if (one, other) == (machine, service)]

    def cut(self, machine: str, service: str) -> None:
        for wire in self.between(machine, service):
            wire.set("stall")

    def mend(self, machine: str, service: str) -> None:
        for wire in self.between(machine, service):
            wire.set("pass")

    def forget(self, machine: str, service: str) -> int:
        return sum(wire.forget() for wire in self.between(machine, service))


class Hosted:
    """A network namespace for every machine."""

    kind = HOSTED

    def __init__(self, machines: tuple[str, ...]) -> None:
        self._hosts = Hosts(services=SERVICES, machines=machines)
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._hosts.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._hosts.__exit__()

    def reach(self, machine: str, service: str, port: int) -> tuple[str, int]:  # noqa: ARG002 - the same for all
        self._ports[service] = port
        return self._hosts.services[service], port

    def address(self, machine: str) -> str:
        return self._hosts.machines[machine]

    def prefix(self, machine: str) -> list[str]:
        return ["ip", "netns", "exec", self._hosts.namespace(machine)]

    def cut(self, machine: str, service: str) -> None:
        self._hosts.cut(machine, service)

    def mend(self, machine: str, service: str) -> None:
        self._hosts.mend(machine, service)

    def forget(self, machine: str, service: str) -> int:
        return self._hosts.forget(machine, service, self._ports[service])


def paths(kind: str, machines: tuple[str, ...]) -> Paths:
    """The paths of that kind; proxies where hosts are wanted and the machine allows none."""
    if kind == HOSTED and allowed():
        return Hosted(machines)
    return Straight() if kind == STRAIGHT else Proxied()
