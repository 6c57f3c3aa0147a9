"""The operator's page: what the evaluation plane knows, for people with a browser. It needs no network and no script.

A view is a module with a function `<view>_handlers(site) -> list[Any]` that returns Litestar handlers. They answer with
`site.render(request, "<view>.html", title=..., **context)`; a form is read with `await site.form(request)`, which
refuses one that another page made the browser send. `dashboards.web.app` puts the views together.
"""
