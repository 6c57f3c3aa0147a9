"""`gaugeway mcp`: an MCP server over a running Gaugeway, for agents."""

from __future__ import annotations

from importlib.resources import files

import click

from dashboards import runbooks
from gaugeway.cli.shared import fail, reported_errors
from gaugeway.client import DEFAULT_URL, TOKEN_VARIABLE, AsyncClient
from gaugeway.settings import environment

PORT = 9467


@click.command()
@click.option("--url", envvar="GAUGEWAY_MONITORS_URL", default=DEFAULT_URL, help="The monitors' port.")
@click.option("--http", "over_http", is_flag=True, help="Serve streamable HTTP at /mcp. [standard input and output]")
@click.option("--host", default="127.0.0.1", help="With --http: the address to bind.")
@click.option("--port", default=PORT, type=click.IntRange(1, 65_535), help="With --http: the port.")
@click.option("--allow", default="", show_default=False, metavar="TOOL,...", help="Writing tools to switch on. [none]")
def mcp(*, url: str, over_http: bool, host: str, port: int, allow: str) -> None:
    """Serve alerts, answers and comparisons to agents (Model Context Protocol).

    Reads the monitors' API with the token GAUGEWAY_MONITORS_TOKEN, which clients of --http then need too. Writing tools
    are off: --allow acknowledge_alert,label_answer,add_to_dataset switches them on. Needs pip install 'gaugeway[mcp]'.
    """
    try:
        from gaugeway.mcp import server, serving  # noqa: PLC0415 - optional
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types"}:
            raise
        fail("gaugeway mcp needs: pip install 'gaugeway[mcp]'")
    names = [name.strip() for name in allow.split(",") if name.strip()]
    with reported_errors():
        token = environment().get(TOKEN_VARIABLE)
        made = server.build(AsyncClient(url, token=token), allow=names, documents=documents())
        if over_http:
            app = serving.http_app(made, host=host, token=token)
            click.echo(f"gaugeway: MCP at http://{host}:{port}{serving.PATH}", err=True)
            serving.run_http(app, host=host, port=port)
        else:
            serving.run_stdio(made)


def documents() -> dict[str, str]:
    """Return the resources: the guide, and a runbook for each alert."""
    return {"guide": (files("gaugeway") / "mcp" / "guide.md").read_text("utf-8"), **runbooks()}
