"""An MCP server over the monitors' API: what an agent needs to find the cause of an alert. Needs the extra `mcp`."""
