"""What both planes run on: settings, tasks, serving, audit."""
