"""Mails to a real SMTP server, with and without TLS and a password."""

from __future__ import annotations

import asyncio
import contextlib
import email.policy
import ssl
import threading

import pytest
import trustme
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from gaugeway.records import Example
from monitors.alerting.notifiers import NO_PAGE, Links, NotDeliveredError
from monitors.alerting.notifiers.email import EmailNotifier
from tests.support.receivers import alert


class Mailbox:
    """Keeps what it is sent, and refuses some."""

    def __init__(self):
        self.mails, self.logins, self.encrypted = [], [], []

    async def handle_RCPT(self, server, session, envelope, address, rcpt_options):  # noqa: N802 - aiosmtpd's name
        if address.startswith("nobody"):
            return "550 no such s3cret user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - aiosmtpd's name
        self.encrypted.append(session.ssl is not None)
        self.mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 taken"

    def log_in(self, server, session, envelope, mechanism, data):
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password == b"s3cret", handled=False)


@contextlib.contextmanager
def loop_in_a_thread():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def end():
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.05)

    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def mail_server(tmp_path, monkeypatch, tls="off", **options):
    box, context = Mailbox(), None
    if tls != "off":
        ca = trustme.CA()
        ca.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert("127.0.0.1").configure_cert(context)
    if tls == "starttls":
        options = {"tls_context": context, "require_starttls": True, **options}
    with loop_in_a_thread() as run:

        async def listen():
            def make():
                loop = asyncio.get_running_loop()
                return SMTP(box, hostname="mail.example", authenticator=box.log_in, loop=loop, **options)

            ssl_context = context if tls == "ssl" else None
            return await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, ssl=ssl_context)

        async def close(server):
            server.close()

        server = run(listen())
        try:
            yield box, server.sockets[0].getsockname()[1]
        finally:
            run(close(server))


def send(port, *alerts, links=NO_PAGE, **options):
    options = {"host": "127.0.0.1", "tls": "off", "sender": "gaugeway@quality.example", **options}
    notifier = EmailNotifier(port=port, recipients=options.pop("recipients", ["team@quality.example"]), **options)
    notifier.links = links
    assert "s3cret" not in repr(notifier)

    async def main():
        try:
            await (notifier.notify_all(alerts) if len(alerts) > 1 else notifier.notify(alerts[0]))
        finally:
            await asyncio.sleep(0.05)  # a refused connection is closed by the loop, which must not end first

    asyncio.run(main())


def test_a_mail_has_a_plain_and_an_html_part_with_the_same_news(tmp_path, monkeypatch):
    with mail_server(tmp_path, monkeypatch) as (box, port):
        one = alert(app="a<b>&c", examples=(Example(id="x/1", value=0.1, question="<i>why?"),))
        send(port, one, links=Links("https://quality.example"), recipients=["a@x.example", "b@x.example"])
    (mail,) = box.mails
    assert mail["Subject"] == "Firing: faithfulness of a<b>&c fell from 0.91 to 0.62"
    assert (mail["From"], mail["To"]) == ("gaugeway@quality.example", "a@x.example, b@x.example")
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content_type() == "multipart/alternative"
    plain, page = (part.get_content() for part in mail.iter_parts())
    for part in (plain, page):
        assert "fell from 0.91 to 0.62" in part
        assert "https://quality.example/alerts/0123456789abcdef" in part
        assert "https://quality.example/exchanges/x%2F1" in part
    assert "Likely cause: retrieval" in plain
    assert "<b>" not in page
    assert "<i>" not in page
    assert "a&lt;b&gt;&amp;c" in page


def test_mails_about_one_alert_belong_together(tmp_path, monkeypatch):
    with mail_server(tmp_path, monkeypatch) as (box, port):
        send(port, alert())
        send(port, alert("resolved"))
    first, second = box.mails
    assert first["References"] == second["References"]
    assert first["Message-ID"] != second["Message-ID"]
    assert second["Subject"].startswith("Resolved")


def test_a_group_is_one_mail_and_a_line_break_in_a_name_breaks_nothing(tmp_path, monkeypatch):
    with mail_server(tmp_path, monkeypatch) as (box, port):
        send(port, alert(), alert(app="bank"))
        send(port, alert(app="x\r\nBcc: all@x.example"))
    group, broken = box.mails
    assert group["Subject"] == "2 firing: GaugewayQualityDrop"
    assert "of bank fell" in group.get_body(["plain"]).get_content()
    assert broken["Bcc"] is None
    assert "Bcc: all@x.example" in broken["Subject"]


@pytest.mark.filterwarnings("ignore:.*(login_data|AUTH while not requiring TLS):Warning")
@pytest.mark.parametrize("tls", ["starttls", "ssl"])
def test_a_password_goes_over_tls_to_a_server_that_proves_its_name(tmp_path, monkeypatch, tls):
    with mail_server(
        tmp_path,
        monkeypatch,
        tls,
        auth_required=True,
        auth_require_tls=tls == "starttls",  # it does not see that the connection began with TLS
    ) as (box, port):
        send(port, alert(), tls=tls, username="u", password="s3cret")
        with pytest.raises(NotDeliveredError, match="SMTPAuthenticationError 535"):
            send(port, alert(), tls=tls, username="u", password="wrong")
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(NotDeliveredError) as raised:
            send(port, alert(), tls=tls, username="u", password="s3cret")
    assert len(box.mails) == 1
    assert box.logins.count(("u", "s3cret")) == 1, "an unknown server got no password"
    assert "s3cret" not in str(raised.value)


def test_a_server_without_starttls_gets_nothing(tmp_path, monkeypatch):
    with mail_server(tmp_path, monkeypatch) as (box, port):
        with pytest.raises(NotDeliveredError, match="SMTP"):
            send(port, alert(), tls="starttls")
        assert not box.mails


def test_one_refused_recipient_does_not_keep_the_mail_from_the_others(tmp_path, monkeypatch, caplog):
    with mail_server(tmp_path, monkeypatch) as (box, port):
        send(port, alert(), recipients=["nobody@x.example", "a@x.example"])
        assert len(box.mails) == 1
        assert "refused 1 of 2" in caplog.text
        with pytest.raises(NotDeliveredError, match="SMTPRecipientsRefused") as raised:
            send(port, alert(), recipients=["nobody@x.example"])
    assert "s3cret" not in str(raised.value) + caplog.text


def test_nobody_listening_means_not_delivered():
    with pytest.raises(NotDeliveredError, match=r"^127\.0\.0\.1:1: "):
        send(1, alert())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"recipients": []}, "recipients:"),
        ({"username": "u"}, "password:"),
        ({"username": "u", "password": "p", "tls": "off", "host": "mail.example"}, "tls:"),
        ({"sender": "a\nb"}, "sender:"),
    ],
)
def test_what_cannot_work_is_refused(options, field):
    good = {"host": "127.0.0.1", "sender": "a@x.example", "recipients": ["b@x.example"]}
    with pytest.raises(ValueError, match=f"^{field}"):
        EmailNotifier(**{**good, **options})
