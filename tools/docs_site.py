"""Build the documentation site with Zensical: `python tools/docs_site.py` writes site/VERSION/ and site/versions.json.

The pages are those of the checkout, in the folders they have there, with every file that they link to: links work as in
the repository. A link that leads nowhere fails the build. The version is the project's; folders of other versions in
`site/` stay, and the switch in the header lists them. Zensical builds one version.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STAGED, MADE, SITE = ROOT / "build/docs", ROOT / "build/site", ROOT / "site"
FIRST = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SECTIONS = {
    "Tutorial": "docs/tutorial",
    "How-to guides": "docs/how-to",
    "Reference": "docs/reference",
    "Explanation": "docs/explanation",
    "Decisions": "docs/decisions",
    "Runbooks": "dashboards/runbooks",
}
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+?)(?:#[^()\s]*)?\)")
_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^([A-Z][\w ]+):$", re.MULTILINE)
_NAME = re.compile(r"[A-Z][\w ]+")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def pages() -> list[Path]:
    """The pages of the navigation."""
    inside = [path for folder in SECTIONS.values() for path in sorted((ROOT / folder).rglob("*.md"))]
    return [ROOT / name for name in FIRST] + inside


def links(page: Path) -> Iterator[tuple[str, Path]]:
    """Each link of a page to a file, with that file."""
    for target in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        if "://" not in target and not target.startswith(("#", "mailto:")):
            yield target, (page.parent / target).resolve()


def linked(start: list[Path]) -> tuple[dict[Path, None], list[str]]:
    """These pages with all files that they and linked pages link to, and the links that lead nowhere."""
    wanted: dict[Path, None] = dict.fromkeys(start)
    missing = []
    for page in (queue := list(start)):
        for target, found in links(page):
            path = found / "README.md" if (found / "README.md").exists() else found
            if not path.exists() or not path.is_relative_to(ROOT):
                missing.append(f"{page.relative_to(ROOT)}: {target} does not exist")
            elif path not in wanted and path.is_file():
                wanted[path] = None
                if path.suffix == ".md":
                    queue.append(path)
    return wanted, missing


def title(page: Path) -> str:
    """The first heading of a page, without marks."""
    heading = _TITLE.search(page.read_text("utf-8"))
    return re.sub(r"[`*]", "", heading[1]) if heading else page.stem


def section(folder: Path) -> list[dict[str, Any]]:
    """The pages of a folder in the order of its README, under the headings of that page's lists ("Start:")."""
    index = folder / "README.md"
    inside = {path for path in folder.rglob("*.md") if path != index}
    entries: list[dict[str, Any]] = [{title(index): str(index.relative_to(ROOT))}] if index.exists() else []
    group = entries
    for part in _HEADING.split(index.read_text("utf-8")) if index.exists() else ():
        if _NAME.fullmatch(part):
            group = []
            entries.append({part: group})
            continue
        for target in _LINK.findall(part):
            path = (folder / target).resolve()
            if path in inside:
                deeper = path.name == "README.md"
                inside -= set(path.parent.rglob("*.md")) if deeper else {path}
                group.append({title(path): section(path.parent) if deeper else str(path.relative_to(ROOT))})
    rest = sorted(inside)
    return entries + [{title(path): str(path.relative_to(ROOT))} for path in rest]


def navigation() -> list[dict[str, Any]]:
    """The sections with their pages, as Zensical reads them."""
    entries: list[dict[str, Any]] = [{"Gaugeway": FIRST[0]}]
    entries += [{name: section(ROOT / folder)} for name, folder in SECTIONS.items()]
    return [*entries, {"Project": [{title(ROOT / path): path} for path in FIRST[1:]]}]


def configuration(version: str) -> dict[str, Any]:
    """The settings of the site, as a mkdocs.yml in JSON, which is YAML."""
    palette = [
        {"media": f"(prefers-color-scheme: {kind})", "scheme": scheme, "toggle": {"icon": icon, "name": f"{kind} mode"}}
        for kind, scheme, icon in (("light", "default", "lucide/sun"), ("dark", "slate", "lucide/moon"))
    ]
    features = ["content.code.copy", "navigation.indexes", "navigation.sections", "navigation.tabs", "search.highlight"]
    return {
        "site_name": "Gaugeway",
        "copyright": f"Gaugeway {version}",
        "site_description": "An OpenAI-compatible proxy that measures the answer quality of RAG apps",
        "docs_dir": STAGED.name,
        "site_dir": MADE.name,
        "use_directory_urls": False,  # docs/reference/metrics.md stands beside docs/reference/metrics/
        "nav": navigation(),
        "theme": {"features": [*features, "navigation.top"], "font": False, "palette": palette},
        "plugins": ["search"],
        "extra": {"version": {"provider": "mike"}, "generator": False},
        "markdown_extensions": [
            *("attr_list", "md_in_html", "tables", {"toc": {"permalink": True}}),
            *({"pymdownx.highlight": {"anchor_linenums": True}}, "pymdownx.inlinehilite", "pymdownx.superfences"),
        ],
    }


def stage(files: dict[Path, None]) -> None:
    """Copy the files into the folder that Zensical reads."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for path in files:
        copied = STAGED / path.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)


def list_versions(newest: str) -> None:
    """Write what the switch in the header reads, and lead the root of the site to the newest version."""

    def number(name: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", name)]

    names = sorted((path.name for path in SITE.iterdir() if (path / "index.html").exists()), key=number, reverse=True)
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == names[0] else []} for name in names]
    (SITE / "versions.json").write_text(json.dumps(listed), "utf-8")
    (SITE / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={newest}/">\n', "utf-8"
    )


def main() -> int:
    """Build the site. Returns the exit code."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    files, missing = linked(pages())
    if missing:
        sys.stderr.write("\n".join(missing) + "\n")
        return 1
    stage(files)
    config = STAGED.parent / "mkdocs.yml"
    config.write_text(json.dumps(configuration(version), indent=1), "utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(config)]
    if code := subprocess.run(command, check=False).returncode:  # noqa: S603 - our own arguments
        return code
    shutil.rmtree(SITE / version, ignore_errors=True)
    SITE.mkdir(exist_ok=True)
    MADE.rename(SITE / version)
    list_versions(version)
    sys.stdout.write(f"site/{version}/: {sum(1 for _ in (SITE / version).rglob('*.html'))} pages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
