"""Processes that run modules of this project: a fork made before, or a new interpreter."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

from gaugeway.processes.forked import ForkedChild
from gaugeway.settings import child_environment

_ROOT = Path(__file__).parents[2]


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module like `python -m`, but imports nothing from the working directory.

    A file there could hide one of this project or of the standard library.
    """
    return sys.executable, "-P", "-m", module, *arguments


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for such a command: it loads the code that this process runs, a source tree's as well."""
    given = child_environment(extra or {})
    if _ROOT.name in ("site-packages", "dist-packages"):  # found anyway, and after the standard library
        return given
    return given | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), given.get("PYTHONPATH"))))}


async def start(
    forked: ForkedChild | None,
    module: str,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    session: bool = False,
    output: bool = False,
) -> Process | ForkedChild:
    """Start the fork; without one, a new interpreter that gets what a fork was given. Raises OSError."""
    if forked is not None:
        await forked.start()
        return forked
    return await asyncio.create_subprocess_exec(
        *command(module, *arguments),
        stdin=PIPE,
        stdout=PIPE if output else None,
        start_new_session=session,
        env=environment(variables),
        pass_fds=descriptors,
    )
