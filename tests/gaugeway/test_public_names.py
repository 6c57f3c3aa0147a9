"""`import gaugeway` gives the public names, each loaded when it is asked for."""

import subprocess
import sys

import gaugeway


def test_every_public_name_is_there():
    assert {name for name in gaugeway.__all__ if getattr(gaugeway, name) is None} == set()
    assert set(gaugeway.__all__) <= set(dir(gaugeway))


def test_the_import_loads_neither_numpy_nor_a_plane():
    script = "import gaugeway, sys; print(*{'numpy', 'httpx', 'monitors', 'gateway'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_a_data_set_is_scored_with_the_public_names_alone():
    run = gaugeway.evaluate([{"question": "How long?", "answer": "Two years.", "contexts": ["It is two years."]}])
    assert isinstance(run, gaugeway.Run)
    assert isinstance(run.rows[0].sample, gaugeway.Sample)
    assert run.rows[0].score("lexical_groundedness") is not None
