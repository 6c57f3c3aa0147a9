"""The documentation site: every page is in the navigation, every link leads somewhere, and the versions are listed."""

import json
import re

import pytest

from tools import docs_site


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Folders of a site of its own."""
    for name, folder in {"STAGED": "build/docs", "MADE": "build/site", "SITE": "site"}.items():
        monkeypatch.setattr(docs_site, name, tmp_path / folder)
    return tmp_path


def named(entries):
    for entry in entries:
        for value in entry.values():
            if isinstance(value, list):
                yield from named(value)
            else:
                yield value


def test_every_page_is_in_the_navigation_once():
    listed = list(named(docs_site.navigation()))
    written = [str(path.relative_to(docs_site.ROOT)) for path in (docs_site.ROOT / "docs").rglob("*.md")]
    assert len(written) > 80
    assert set(written) <= set(listed)
    assert len(set(listed)) == len(listed)


def test_a_section_is_in_the_order_and_the_groups_of_its_readme():
    index, start, *_ = next(entry["How-to guides"] for entry in docs_site.navigation() if "How-to guides" in entry)
    assert index == {"How-to guides": "docs/how-to/README.md"}
    first, frameworks, *_ = start["Start"]
    assert list(first.values()) == ["docs/how-to/tell-gaugeway-the-contexts.md"]
    assert "docs/how-to/frameworks/langchain.md" in named(frameworks["Frameworks"])


def test_no_link_to_a_file_leads_nowhere():
    files, missing = docs_site.linked(docs_site.pages())
    assert missing == []
    assert docs_site.ROOT / "docs/images/overview-light.png" in files


def test_a_link_that_leads_nowhere_stops_the_build(tmp_path, monkeypatch, capsys):
    for name in docs_site.FIRST:
        (tmp_path / name).write_text(
            "# A\n\n[b](b.md) [c](https://c.example) [d](#d) [out](../out.md)\n\n```\n[no](no.md)\n```\n"
        )
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.0"\n')
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    assert docs_site.main() == 1
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["README.md: b.md does not exist", "README.md: ../out.md does not exist"]
    assert len(said) == 2 * len(docs_site.FIRST)


def test_the_switch_lists_the_versions_that_are_there_the_newest_first(elsewhere):
    for version in ("0.9.0", "0.10.0", "0.2.0"):
        (elsewhere / "site" / version).mkdir(parents=True)
        (elsewhere / "site" / version / "index.html").touch()
    docs_site.list_versions("0.10.0")
    listed = json.loads((elsewhere / "site/versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in listed] == [
        ("0.10.0", ["latest"]),
        ("0.9.0", []),
        ("0.2.0", []),
    ]
    assert "url=0.10.0/" in (elsewhere / "site/index.html").read_text()


@pytest.mark.full
def test_zensical_builds_it_strictly(elsewhere, capfd):
    pytest.importorskip("zensical", reason="`make docs` installs it")
    assert docs_site.main() == 0, capfd.readouterr()
    (made,) = (path for path in (elsewhere / "site").iterdir() if path.is_dir())
    page = (made / "docs/how-to/deploy.html").read_text("utf-8")
    assert f"Gaugeway {made.name}" in page
    found = json.loads((made / "search.json").read_text("utf-8"))
    assert "docs/how-to/coming-from-elsewhere.html" in json.dumps(found)
    loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="?(https?:[^" >]+)', page)
    assert loaded == [], "it loads nothing from elsewhere"
