"""The secret key of the placeholders, without which a redacted value cannot be found by trying."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PUBLIC_SALT = "gaugeway"


def redaction_key(salt: str, data_dir: Path) -> str:
    """Return `salt`, unless it is the default, which is public: then a random one kept in `data_dir`.

    Processes that share the directory share the key, whichever comes first. Raises OSError.
    """
    if salt != PUBLIC_SALT:
        return salt
    path = data_dir / "redaction.key"
    data_dir.mkdir(parents=True, exist_ok=True)
    new = data_dir / f".redaction.key.{secrets.token_hex(4)}"
    try:
        return path.read_text("ascii")
    except FileNotFoundError:
        new.touch(mode=0o600)
        new.write_text(secrets.token_hex(32), "ascii")
        try:
            os.link(new, path)  # fails when another process was first; a reader never sees half a file
        except FileExistsError:
            pass
        finally:
            new.unlink()
        return path.read_text("ascii")
