"""Children forked ahead of the event loop: like processes of their own, but for the memory they share."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gaugeway.settings import child_environment

START = """
    import asyncio, os, sys, threading, time
    from gaugeway.processes.child_process import ChildProcess
    from gaugeway.processes.child_process import fork
"""


def run(script, **kwargs):
    """Run a script in an interpreter of its own, as pytest's has threads."""
    text = textwrap.dedent(START) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", text], check=False, capture_output=True, text=True, timeout=60, **kwargs
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('a reason')", 1),
        ("1 / 0", 1),
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), 9)", -9),
    ],
)
def test_its_exit_code_is_that_of_the_program(ends, code):
    script = f"""
    def program():
        {ends}

    async def main():
        await child.start()
        print(await child.wait(), child.returncode)

    child = fork(program)
    asyncio.run(main())
    """
    assert run(script) == f"{code} {code}\n"


def test_it_waits_for_its_start_and_prepares_meanwhile():
    script = """
    async def main():
        await asyncio.sleep(0.5)
        print("start", flush=True)
        await child.start()
        await child.wait()

    child = fork(lambda: print("run"), prepare=lambda: print("prepare", flush=True))
    asyncio.run(main())
    """
    assert run(script).split() == ["prepare", "start", "run"]


def test_its_standard_input_and_output_are_connected_to_the_parent():
    script = """
    def program():
        while data := os.read(0, 100):
            os.write(1, data.upper())

    async def main():
        await child.start()
        child.stdin.write(b"hello")
        print(await child.stdout.readexactly(5))
        child.stdin.close()
        print(await child.wait())

    child = fork(program, output=True)
    asyncio.run(main())
    """
    assert run(script) == "b'HELLO'\n0\n"


def test_it_keeps_no_file_of_the_parent_but_those_given():
    script = """
    def program():
        for number in (kept, closed):
            try:
                print(os.read(number, 10))
            except OSError:
                print("closed")

    async def main():
        await child.start()
        await child.wait()

    kept, closed = (os.memfd_create(name) for name in "ab")
    for number in (kept, closed):
        os.pwrite(number, b"text", 0)
    child = fork(program, descriptors=[kept])
    asyncio.run(main())
    """
    assert run(script) == "b'text'\nclosed\n"


def test_two_children_end_when_the_parent_is_killed_started_or_not():
    script = """
    def program():
        while os.read(0, 100):
            pass

    async def main():
        await started.start()
        print(started.pid, waiting.pid, flush=True)
        await asyncio.sleep(60)

    started, waiting = fork(program, session=True), fork(program, session=True)
    asyncio.run(main())
    """
    text = textwrap.dedent(START) + textwrap.dedent(script)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(one) for one in parent.stdout.readline().split()]
        until(lambda: [os.getsid(pid) for pid in pids] == pids)
        parent.kill()
    until(lambda: not any(runs(pid) for pid in pids))


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_one_that_is_dropped_ends():
    script = """
    child = fork(lambda: print("ran"))
    child.close()
    print(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))
    """
    assert run(script) == "1\n"


@pytest.mark.parametrize(
    ("before", "environment"),
    [
        ("threading.Thread(target=time.sleep, args=(1,)).start()", {}),
        ("pass", {"PROMETHEUS_MULTIPROC_DIR": "/nowhere"}),
    ],
)
def test_nothing_is_forked_where_the_copy_would_not_be_like_a_new_process(before, environment):
    script = f"""
    {before}
    print(fork(lambda: None))
    """
    assert run(script, env=child_environment(environment)) == "None\n"


def test_a_child_process_forks_once_and_executes_python_after_that(tmp_path):
    (tmp_path / "child.py").write_text(
        "import os, sys, time\nprint(sys.argv[1:], 'before' in sys.modules, flush=True)\ntime.sleep(0.1)\nsys.exit(5)"
    )
    (tmp_path / "before.py").write_text("")
    script = """
    async def main():
        running = asyncio.create_task(child.run())
        await asyncio.sleep(2)
        child.stop()
        await running

    child = ChildProcess("child", ["--a", "b"])
    child.fork(["before"])
    asyncio.run(main())
    """
    first, second, *_ = run(
        script, cwd=tmp_path, env=child_environment({"PYTHONPATH": f"{Path.cwd()}:{tmp_path}"})
    ).splitlines()
    assert first == "['--a', 'b'] True"
    assert second == "['--a', 'b'] False"


def test_a_signal_reaches_it(tmp_path):
    script = """
    async def main():
        await child.start()
        child.send_signal(15)
        print(await child.wait())
        child.send_signal(15)

    child = fork(lambda: time.sleep(60))
    asyncio.run(main())
    """
    assert run(script) == f"-{signal.SIGTERM.value}\n"


@pytest.mark.parametrize("closed", ["1", "2"])
def test_it_runs_where_standard_output_or_error_is_closed(closed, tmp_path):
    script = f"""
    from gaugeway.runtime import system
    os.close({closed})
    sys.{"stdout" if closed == "1" else "stderr"} = None
    system.open_standard()

    def program():
        open({str(tmp_path / "ran")!r}, "w").close()

    async def main():
        await child.start()
        sys.exit(await child.wait())

    child = fork(program)
    asyncio.run(main())
    """
    run(script)
    assert (tmp_path / "ran").exists()


def test_orphans_are_reaped_and_own_children_are_not():
    script = """
    import subprocess
    from gaugeway.runtime.system import reap_orphans

    async def main():
        reaping = asyncio.create_task(reap_orphans(0.05))
        adopted = subprocess.Popen([sys.executable, "-c", ""])  # no code waits for it
        own = await asyncio.create_subprocess_exec(sys.executable, "-c", "import sys; sys.exit(3)")
        print(await own.wait())
        while True:
            try:
                os.kill(adopted.pid, 0)
            except ProcessLookupError:
                break
            await asyncio.sleep(0.01)
        adopted.returncode = 0
        print("reaped")

    asyncio.run(asyncio.wait_for(main(), 30))
    """
    assert run(script) == "3\nreaped\n"
