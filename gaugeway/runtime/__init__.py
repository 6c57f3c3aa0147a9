"""Infrastructure of both planes: settings, tasks, serving, audit."""
