"""Extensions are found by the entry points of installed packages."""

import pytest

from gaugeway import extensions
from tests.support.extension_packages import install


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    extensions.registered.cache_clear()
    yield tmp_path
    extensions.registered.cache_clear()


def test_an_installed_package_registers_names(installed):
    install(installed, "pager", "[gaugeway.invented]", "pager = pager.client:Pager", "[other]", "not = this:One")
    assert extensions.registered("invented") == {"pager": "pager.client:Pager"}
    assert extensions.registered("unheard_of") == {}


def test_two_packages_cannot_register_one_name(installed):
    install(installed, "first", "[gaugeway.invented]", "pager = first:Pager")
    install(installed, "second", "[gaugeway.invented]", "pager = second:Pager")
    with pytest.raises(ValueError, match="both register 'pager'"):
        extensions.registered("invented")
