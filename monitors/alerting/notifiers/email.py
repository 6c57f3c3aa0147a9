"""Email notifier, over SMTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Literal

import aiosmtplib
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from gaugeway.records import Alert
from gaugeway.settings.endpoints import host_problem
from gaugeway.settings.shared import LOOPBACK, Port
from monitors.alerting.notifiers import GroupNotifier, Links, NotDeliveredError
from monitors.alerting.notifiers.message import facts, plain, summary, title, worst

PORTS = {"starttls": 587, "ssl": 465, "off": 25}
MAX_SUBJECT = 150  # internal bound: size of a message that we send
MAX_ALERTS, MAX_FACT = 50, 1000  # internal bound: size of a message that we send
"""Alerts shown per email, and characters per value."""
_log = logging.getLogger("gaugeway")
_TEMPLATES = Environment(
    loader=PackageLoader("monitors", "alerting/notifiers"),
    autoescape=select_autoescape(("html.j2",)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.globals |= {"facts": facts, "summary": summary, "worst": worst}
_TEMPLATES.filters["value"] = lambda text: plain(text, MAX_FACT)


class EmailNotifier(GroupNotifier):
    """Emails alerts from `sender` to `recipients`. The password is never sent over an unencrypted connection."""

    no_heartbeat = "every heartbeat would be an email"

    def __init__(
        self,
        *,
        host: str,
        sender: str,
        recipients: Sequence[str],
        port: Port | None = None,
        tls: Literal["starttls", "ssl", "off"] = "starttls",
        username: str | None = None,
        password: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        problems = [] if recipients else ["recipients: a mail needs at least one"]
        if (problem := host_problem(host)) is not None:
            problems.append(f"host: {problem}")
        if (username is None) != (password is None):
            problems.append("password: a username and its password come together")
        if username is not None and tls == "off" and host not in LOOPBACK:
            problems.append('tls: "off" would send the password for everybody to read')
        if problems:
            raise ValueError("\n".join(problems))
        self._host, self._port, self._tls = host, port if port is not None else PORTS[tls], tls
        self._login = (username, password)
        self._sender, self._recipients = sender, tuple(recipients)
        self._timeout_s = timeout_s
        try:
            self._message("a try", "text", "html", "0")
        except (ValueError, MessageError, IndexError):
            raise ValueError("sender: sender and recipients are mail addresses") from None

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        shown, more = alerts[:MAX_ALERTS], len(alerts[MAX_ALERTS:])
        text, page = text_of(shown, self.links, more), html_of(shown, self.links, more)
        message = self._message(title(alerts), text, page, alerts[0].fingerprint)
        where = f"{self._host}:{self._port}"
        try:
            async with asyncio.timeout(self._timeout_s):
                refused, _ = await aiosmtplib.send(
                    message,
                    hostname=self._host,
                    port=self._port,
                    username=self._login[0],
                    password=self._login[1],
                    use_tls=self._tls == "ssl",
                    start_tls=self._tls == "starttls",
                    timeout=self._timeout_s,
                )
        except aiosmtplib.SMTPResponseException as error:  # its text may repeat what was sent
            raise NotDeliveredError(f"{where}: {type(error).__name__} {error.code}") from None
        except (aiosmtplib.SMTPException, OSError, TimeoutError, ValueError) as error:
            raise NotDeliveredError(f"{where}: {type(error).__name__}") from None
        if refused:
            _log.warning("%s refused %d of %d recipients of an alert", where, len(refused), len(self._recipients))

    def _message(self, subject: str, text: str, page: str, thread: str) -> EmailMessage:
        """Build the email; emails about one alert share a thread."""
        message = EmailMessage()
        message["From"] = self._sender
        message["To"] = ", ".join(self._recipients)
        message["Subject"] = " ".join("".join(c if c.isprintable() else " " for c in subject).split())[:MAX_SUBJECT]
        message["Date"] = formatdate(usegmt=True)
        domain = self._sender.rpartition("@")[2].strip("<> ") or "gaugeway"
        message["Message-ID"] = make_msgid(domain=domain)
        message["References"] = f"<{thread}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        message.add_alternative(page, subtype="html")
        return message


def text_of(alerts: Sequence[Alert], links: Links, more: int = 0) -> str:
    """Return the plain-text body; `more` alerts are only counted."""
    return _TEMPLATES.get_template("email.txt.j2").render(alerts=alerts, links=links, more=more)


def html_of(alerts: Sequence[Alert], links: Links, more: int = 0) -> str:
    """Return the HTML body, with everything escaped; `more` alerts are only counted."""
    return _TEMPLATES.get_template("email.html.j2").render(alerts=alerts, links=links, more=more)
