import stat
import threading

from gaugeway.redaction.key import redaction_key


def test_a_salt_of_ones_own_is_the_key(tmp_path):
    assert redaction_key("mine", tmp_path / "data") == "mine"
    assert not (tmp_path / "data").exists()


def test_otherwise_it_is_random_private_and_kept(tmp_path):
    key = redaction_key("gaugeway", tmp_path / "data")
    assert len(key) == 64
    assert redaction_key("gaugeway", tmp_path / "data") == key
    assert redaction_key("gaugeway", tmp_path / "other") != key
    (file,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_whoever_comes_at_the_same_time_gets_the_same(tmp_path):
    keys = []
    threads = [threading.Thread(target=lambda: keys.append(redaction_key("gaugeway", tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
