"""Which exchanges are evaluated: a deterministic, salted position per trace, so that every replica decides alike."""

from __future__ import annotations

from hashlib import blake2b

_BITS = 56
_SPAN = 1 << _BITS


def position(key: str, salt: str) -> int:
    """Place `key` (a trace or exchange id) in [0, 2**56), uniformly and the same everywhere.

    The convention is OpenTelemetry's consistent probability sampling (keep when position >= threshold), but the
    randomness is a salted BLAKE2b hash: independent of anything else that keys on the trace id.
    """
    digest = blake2b(key.encode(), key=salt.encode()[:64], digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _BITS)


def keep(key: str, rate: float, salt: str) -> bool:
    """Decide whether `key` belongs to a sample taken with probability `rate`; lower rates give subsets of higher ones.

    >>> kept = {str(k) for k in range(1000) if keep(str(k), 0.5, "s")}
    >>> {str(k) for k in range(1000) if keep(str(k), 0.1, "s")} <= kept
    True
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"a sampling rate lies in [0, 1], got {rate!r}")
    return position(key, salt) >= round((1.0 - rate) * _SPAN)
