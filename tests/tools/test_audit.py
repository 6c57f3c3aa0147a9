"""What `tools/audit.py` says: what is known, what was not asked, and never fine for what was not asked."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools import audit

FINE = {"name": "click", "version": "8.1", "vulns": []}
BAD = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.11.3"]}]}
UNMENDED = {"name": "x", "version": "1", "vulns": [{"id": "A", "fix_versions": []}, {"id": "B", "fix_versions": []}]}
UNKNOWN = {"name": "mine", "skip_reason": "Dependency not found on PyPI and could not be audited: mine (1)"}
AWAY = "Traceback ...\nrequests.exceptions.ProxyError: HTTPSConnectionPool(host='h', port=443): Max retries exceeded"
LOCK = "jinja2==2.4.1 \\\n    --hash=sha256:" + "0" * 64 + "\n"


def told(*packages, status=0):
    return audit.verdict(status, json.dumps({"dependencies": packages, "fixes": []}), "")


def test_nothing_known_is_said_with_how_many_were_asked():
    assert told(FINE, FINE) == (["advisories checked: 2 packages, no known vulnerabilities"], audit.FINE, True)


def test_what_is_known_fails_and_is_named_with_the_way_out():
    lines, status, checked = told(FINE, BAD, UNMENDED, status=1)
    assert (status, checked) == (audit.FOUND, True)
    assert lines == [
        "jinja2 2.4.1: PYSEC-1, mended in 2.11.3",
        "x 1: A, mended in no release",
        "x 1: B, mended in no release",
        "advisories checked: 3 packages, 3 known vulnerabilities",
    ]


def test_a_package_that_the_service_does_not_know_is_not_taken_for_fine():
    lines, status, checked = told(FINE, UNKNOWN)
    assert (status, checked) == (audit.FINE, False)
    assert lines[-1] == "advisories not checked: the service does not know 1 packages: mine"
    assert told(UNKNOWN).lines == lines[-1:]
    assert told(BAD, UNKNOWN).status == audit.FOUND
    assert "and 2 more" in told(*(UNKNOWN | {"name": f"p{number:02}"} for number in range(12))).lines[-1]


@pytest.mark.parametrize("output", ["", "not JSON", "[]", "null", '{"dependencies": null'])
def test_a_service_that_is_away_is_said_to_be(output):
    lines, status, checked = audit.verdict(1, output, AWAY)
    assert (status, checked) == (audit.FINE, False)
    assert lines[0].startswith("advisories not checked: service unreachable (")


def test_a_failure_of_another_kind_is_none_of_the_services():
    lines, status, _ = audit.verdict(1, "", "ERROR:pip_audit._cli:requirement broken does not contain a hash")
    assert status == audit.BROKEN
    assert "does not contain a hash" in lines[0]


def run(path, monkeypatch, *options):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("PIP_CACHE_DIR", str(path))
    lock = path / "small.lock"
    lock.write_text(LOCK)
    return CliRunner().invoke(audit.main, ["--lock", str(lock), "--timeout-s", "2", *options])


def test_without_a_way_to_the_service_it_says_so_and_only_the_strict_form_fails(tmp_path, monkeypatch):
    answer = run(tmp_path, monkeypatch)
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("advisories not checked: ")
    assert "no known" not in answer.output
    assert run(tmp_path, monkeypatch, "--required").exit_code == 1


def test_the_lock_it_looks_at_is_the_projects():
    assert Path(__file__).parents[2] / "requirements.lock" == audit.LOCK
    assert audit.LOCK.exists()
