"""The operator's page of the evaluation plane. It loads nothing from other hosts and works without JavaScript.

A view is a module with a function `<view>_handlers(site) -> list[Any]` that returns Litestar handlers. They render
with `site.render(request, "<view>.html", title=..., **context)` and read forms with `await site.form(request)`, which
rejects cross-site requests. `dashboards.web.app` assembles the views.
"""
