"""The pipelines import what is installed elsewhere: they are run, not collected; the table of results ends the run."""

from tests.frameworks import harness, table

collect_ignore = ["pipelines"]


def pytest_terminal_summary(terminalreporter):
    ran = terminalreporter.config.stash.get(harness.RAN, {})
    if ran:
        terminalreporter.section("frameworks: recovered / of")
        terminalreporter.write_line(
            "\n".join([table.HEAD, *(line for one in ran.values() for line in table.rows(one))])
        )
