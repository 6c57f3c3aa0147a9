import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.keys import Keyring, check_model, model_asked, parse_expiry, presented_key, without_credentials
from gateway.http.errors import Rejection, body_of
from gaugeway.storage.keys import VirtualKey, digest

SECRET = b"gw-" + b"s" * 43
NOW = 1_800_000_000.0


def key(secret=SECRET, **fields):
    fields = {"id": "key_1", "app": "shop", "created_at": NOW} | fields
    return VirtualKey(digest=digest(secret), **fields)


def refused(ring, headers, now=NOW):
    with pytest.raises(Rejection) as caught:
        ring.check(headers, now)
    assert caught.value.status == 401
    assert caught.value.code == "invalid_api_key"
    return caught.value.message


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer " + SECRET),
        (b"authorization", b"bearer  " + SECRET + b" "),
        (b"api-key", SECRET),
        (b"x-api-key", SECRET),
    ],
)
def test_a_key_is_found_wherever_clients_of_openai_azure_and_anthropic_put_it(header):
    assert Keyring([key()]).check([(b"accept", b"*/*"), header], NOW).id == "key_1"


def test_a_key_of_the_provider_beside_ours_does_not_hide_it():
    headers = [(b"authorization", b"Bearer sk-own"), (b"api-key", SECRET)]
    assert Keyring([key()]).check(headers, NOW).id == "key_1"


@given(st.binary(max_size=80))
def test_whatever_else_is_presented_is_refused(value):
    if presented_key([(b"authorization", value)]) != SECRET:
        refused(Keyring([key()]), [(b"authorization", value)])


@given(st.integers(0, len(SECRET) - 1), st.integers(1, 255))
def test_a_key_with_one_wrong_byte_is_refused(index, change):
    wrong = bytearray(SECRET)
    wrong[index] ^= change
    refused(Keyring([key()]), [(b"api-key", bytes(wrong))])


def test_a_missing_an_unknown_a_revoked_and_an_expired_key_are_401_in_openais_shape():
    ring = Keyring([key(revoked_at=NOW - 1), key(b"gw-old", id="key_2", expires_at=NOW)])
    assert "No API key" in refused(ring, [])
    assert "Malformed" in refused(ring, [(b"api-key", b"gw-unknown")])
    assert "revoked" in refused(ring, [(b"api-key", SECRET)])
    assert "expired" in refused(ring, [(b"api-key", b"gw-old")])
    assert ring.check([(b"api-key", b"gw-old")], NOW - 0.1).id == "key_2"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "No API key given"),
        ([(b"authorization", b" ")], "No API key given"),
        (
            [(b"authorization", b"Bearer sk-provider")],
            "The Authorization header holds no Gaugeway key (gw-...). Provider keys are not accepted.",
        ),
        ([(b"x-api-key", b'"' + SECRET + b'"')], "The x-api-key header holds no Gaugeway key (gw-...). Provider keys"),
        (
            [(b"authorization", b"Bearer gw-short")],
            "Malformed API key: expected 'gw-' followed by 43 characters (A-Z, a-z, 0-9, '-', '_').",
        ),
        (
            [(b"authorization", b"Bearer " + SECRET + b"\x00\x85\xff")],
            "Malformed API key: expected 'gw-' followed by 43 characters (A-Z, a-z, 0-9, '-', '_').",
        ),
        ([(b"authorization", b"Bearer " + SECRET)], "does not know it"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_never_repeats_it(headers, said):
    with pytest.raises(Rejection) as caught:
        Keyring().check(headers, NOW)
    assert said in caught.value.message
    assert caught.value.message.isprintable()
    assert not any(value.split()[-1:] and value.split()[-1] in body_of(caught.value) for _, value in headers)


def test_no_refusal_repeats_what_was_presented():
    for ring in (Keyring(), Keyring([key(revoked_at=NOW)]), Keyring([key(expires_at=NOW)])):
        with pytest.raises(Rejection) as caught:
            ring.check([(b"api-key", SECRET)], NOW)
        assert SECRET not in body_of(caught.value)


def test_a_key_for_certain_models_allows_those_and_no_others():
    some = key(models=("gpt-4o*", "o3"))
    for model in ("gpt-4o", "gpt-4o-mini", "o3"):
        check_model(some, model)
    for model in ("gpt-4", "GPT-4O", "o3-mini", "", None):
        with pytest.raises(Rejection) as caught:
            check_model(some, model)
        rejection = caught.value
        assert (rejection.status, rejection.code, rejection.param) == (403, "model_not_allowed", "model")
    check_model(key(), None)


@pytest.mark.parametrize(
    ("path", "in_body", "model"),
    [
        ("/v1/chat/completions", "m", "m"),
        ("/v1/chat/completions", None, None),
        ("/openai/deployments/m/chat/completions", None, "m"),
        ("/openai/deployments/m/chat/completions", "m", "m"),
        ("/openai/deployments/other/chat/completions", "m", None),
        ("/openai/deployments/", "m", None),
    ],
)
def test_a_model_in_the_body_opens_no_other_deployment(path, in_body, model):
    assert model_asked(path, in_body) == model


def test_every_credential_is_cut_out_and_nothing_else():
    kept = [(b"host", b"h"), (b"accept", b"*/*"), (b"x-api-key-id", b"1")]
    secret = [(b"authorization", b"Bearer " + SECRET), (b"api-key", SECRET), (b"x-api-key", b"sk-other")]
    assert without_credentials([kept[0], *secret, *kept[1:]]) == kept


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 30 * 86400), ("12h", 43200), ("45m", 2700), ("2w", 14 * 86400), (" 1D ", 86400)],
)
def test_an_expiry_may_be_a_duration(text, seconds):
    assert parse_expiry(text, NOW) == NOW + seconds


def test_an_expiry_may_be_a_date_or_a_time_and_is_utc_unless_it_says_otherwise():
    assert parse_expiry("2030-01-01", NOW) == parse_expiry("2030-01-01T00:00:00Z", NOW) == 1_893_456_000
    assert parse_expiry("2030-01-01T01:00:00+01:00", NOW) == 1_893_456_000


@pytest.mark.parametrize("text", ["", "soon", "30", "-1d", "0d", "2020-01-01", "999999999w", "30d12h"])
def test_any_other_expiry_and_the_past_are_refused(text):
    with pytest.raises(ValueError, match=r"expected|future"):
        parse_expiry(text, NOW)
