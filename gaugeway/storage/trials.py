"""Trials: the same requests sent to a candidate. What the documents of an engine keep: definitions, requests, answers.

Money is reserved before a call and settled after it, each in one transaction, so that processes that share a trial
cannot spend more together than its bound.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from gaugeway.settings import secret_of
from gaugeway.settings.shared import Price
from gaugeway.storage.documents import Changes, Collection, Documents, Row
from gaugeway.storage.engine import adapter
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.erase import Subject

TRIALS = Collection(name="trials", key=("trial",), others=("state", "changed_at", "left_out"), body="payload")
REQUESTS = Collection(name="trial_requests", key=("trial", "exchange"), others=("at", "size"), body="payload")
ANSWERS = Collection(
    name="trial_answers", key=("trial", "arm", "exchange"), others=("state", "at", "usd", "judge_usd"), body="payload"
)
MAX_TRIALS = 50
MAX_ARMS = 4
MAX_ANSWERS = 20_000
"""Answers of all arms of a trial; with the last one the trial ends."""
MAX_WAITING = 500
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Requests of all trials that wait to be sent, and their bytes."""
MAX_REQUEST_BYTES = 2 * 1024 * 1024
_SPARE = 1.25
"""What is reserved for judging, as a multiple of the dearest exchange so far."""
WAITS_S = 3600.0
"""How long a request waits; then it is deleted unsent."""

State: TypeAlias = Literal["running", "ended"]
Claim: TypeAlias = Literal["claimed", "taken", "wait", "spent", "judge_spent", "full"]
_PARAMS = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"),
        *("seed", "stop", "stop_sequences", "max_tokens", "max_completion_tokens", "max_output_tokens", "logit_bias"),
        *("reasoning", "reasoning_effort", "verbosity", "thinking", "response_format", "text", "chat_template_kwargs"),
    }
)
"""Members of a request that an arm may change. Others name models, addresses, keys or prompts, or multiply the cost."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_Share = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]
_Usd = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate: where the request goes, and what of it changes.

    `api_key` is a placeholder, `${NAME}` or `${file:/path}`: the key itself is never stored. `params` replace members
    of the request's body; null removes one. `system_prompt` is a text that takes the place of the instructions;
    `{context}` and `{question}` in it stand for the stretch of the passages and the question. `max_contexts` keeps the
    first passages, `drop_source` leaves out those of a source or an id. `price` is in USD, per million tokens by
    default; without one `[prices]` has that of the model that is asked.
    """

    name: str = "candidate"
    base_url: str
    api_key: str
    price: Price | None = None
    model: str | None = None
    params: dict[str, Any] = {}
    system_prompt: str | None = None
    max_contexts: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    drop_source: str | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is tried, on which exchanges, and within which bounds.

    `rate` is the share of the app's exchanges that are tried, `per_second` the calls a second, `parallel` those at
    once. `usd` bounds what the candidates cost, `judge_usd` what judging costs; `until` is Unix time. `primary` names
    the metric that decides, `metrics` those judged beside it. `send` is "redacted": exchanges that redaction would
    change are left out; or "original": they are sent as they came and kept encrypted until then. With `watch` the arm
    is the version before a switch, and the question is whether the live answers are worse than its.
    """

    name: str
    app: Annotated[str, msgspec.Meta(min_length=1)]
    arms: Annotated[tuple[Arm, ...], msgspec.Meta(min_length=1, max_length=MAX_ARMS)]
    send: Literal["redacted", "original"]
    primary: str
    usd: _Usd
    judge_usd: _Usd
    until: float
    metrics: tuple[str, ...] = ()
    margin: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] = 0.02
    alpha: Annotated[float, msgspec.Meta(gt=0.0, le=0.5)] = 0.05
    rate: _Share = 1.0
    per_second: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)] = 1.0
    parallel: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    timeout_s: Annotated[float, msgspec.Meta(gt=0.0, le=600.0)] = 120.0
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4_096
    watch: bool = False
    started_at: float = 0.0
    by: str | None = None

    def problems(self) -> list[str]:
        """Return what types alone cannot express; each line begins with its field."""
        names = [arm.name for arm in self.arms]
        wrong = {
            f"name: {self.name!r}: a-z, 0-9, '_', '-', at most 40 characters": not _NAME.fullmatch(self.name),
            "arms: each needs a name of its own: a-z, 0-9, '_', '-'": len({*names}) < len(names)
            or not all(map(_NAME.fullmatch, names)),
            "until: lies in the past": self.until <= self.started_at,
        }
        fixed = [f"{arm.name}.params.{name}" for arm in self.arms for name in arm.params if name not in _PARAMS]
        able = ", ".join(sorted(_PARAMS))
        return [
            *(problem for problem, is_so in wrong.items() if is_so),
            *(f"arms.{name}: a trial cannot change it; it can change {able}" for name in fixed),
        ]


class StoredTrial(msgspec.Struct, frozen=True):
    """A trial with its state; `left_out` counts the exchanges that were not tried, by reason."""

    trial: Trial
    state: str
    changed_at: float
    left_out: dict[str, int]
    why: str = ""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waits: its route, the body as the client sent it, and headers that say how to read it.

    `sealed` bodies are encrypted. No credential is kept.
    """

    route: str
    body: str
    headers: dict[str, str] = {}
    sealed: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one exchange with one arm; `facts` say how the two answers compare."""

    arm: str
    exchange: str
    state: str
    at: float
    usd: float
    judge_usd: float
    facts: dict[str, Any]


class UnknownTrialError(ValueError):
    """There is no trial of this name."""


class Trials:
    """Keeps trials in documents. Operations raise `engines.failures.FAILURES`."""

    def __init__(self, documents: Documents) -> None:
        self._documents, self.aclose = documents, documents.aclose

    async def all(self) -> list[StoredTrial]:
        """Return all trials, the newest first."""
        return (await self.changed(None))[1] or []

    async def changed(self, revision: bytes | None) -> tuple[bytes, list[StoredTrial] | None]:
        """Return the revision and, if it is not the one given, all trials. Cheap when nothing has changed."""
        current, rows = await self._documents.changed(TRIALS, revision)
        if rows is None:
            return current, None
        found = []
        for _, state, at, left_out, body in rows:
            with suppress(msgspec.DecodeError, UnicodeError):  # of a newer release
                state_, _, why = state.partition(":")
                counts = msgspec.json.decode(left_out, type=dict[str, int])
                found.append(StoredTrial(msgspec.json.decode(body, type=Trial), state_, at, counts, why))
        return current, sorted(found, key=lambda stored: -stored.trial.started_at)

    async def get(self, name: str) -> StoredTrial:
        """Return one trial. Raises UnknownTrialError."""
        for stored in await self.all():
            if stored.trial.name == name:
                return stored
        raise UnknownTrialError(f"there is no trial {name}; see 'gaugeway trial list'")

    async def start(self, trial: Trial) -> None:
        """Add a trial that runs. Raises ValueError where there is one of its name, or no room."""
        known: list[str] = []

        def change(rows: Sequence[Row]) -> Changes:
            known[:] = [row[0] for row in rows]
            free = trial.name not in known and len(known) < MAX_TRIALS
            row = (trial.name, "running", trial.started_at, "{}", encoded(trial).decode())
            return Changes(put=[row] if free else [])

        await self._documents.update(TRIALS, change)
        if trial.name in known:
            raise ValueError(f"there is a trial {trial.name} already; remove it, or choose another name")
        if len(known) >= MAX_TRIALS:
            raise ValueError(f"no room: at most {MAX_TRIALS} trials; remove one")

    async def end(self, name: str, why: str, now: float) -> bool:
        """End a trial, and delete what waits for it; False where it does not run."""
        ended: list[Row] = []

        def change(rows: Sequence[Row]) -> Changes:
            ended[:] = [(row[0], f"ended:{why}", now, row[3]) for row in rows if row[:2] == (name, "running")]
            return Changes(revise=ended)

        await self._documents.update(TRIALS, change)
        waited: list[str] = []

        def drop(rows: Sequence[Row]) -> Changes:
            waited[:] = [row[1] for row in rows if row[0] == name]
            return Changes(delete=[(name, exchange) for exchange in waited])

        await self._documents.update(REQUESTS, drop)
        tried = {answer.exchange for answer in await self.answers(name)} if waited else set()
        await self.leave_out({name: Counter(ended=len(set(waited) - tried))})
        return bool(ended)

    async def remove(self, name: str) -> bool:
        """Delete a trial with all that is kept of it; False where there is none."""
        known = any(stored.trial.name == name for stored in await self.all())
        for collection in (TRIALS, REQUESTS, ANSWERS):
            await self._documents.update(collection, _of(name, len(collection.key)))
        return known

    async def leave_out(self, counts: dict[str, Counter[str]]) -> None:
        """Count exchanges that are not tried, by trial and reason; what was counted is taken from `counts`."""
        given = {name: Counter(reasons) for name, reasons in counts.items()}

        def change(rows: Sequence[Row]) -> Changes:
            changed = []
            for name, state, at, left_out in rows:
                if more := given.get(name):
                    total = Counter(msgspec.json.decode(left_out, type=dict[str, int])) + more
                    changed.append((name, state, at, encoded(dict(total)).decode()))
            return Changes(revise=changed)

        if any(given.values()):
            await self._documents.update(TRIALS, change)
        for name, reasons in given.items():
            counts[name] -= reasons

    async def keep(self, requests: Sequence[tuple[str, str, Kept]], now: float) -> list[bool]:
        """Keep requests, each with its trial and exchange, until they are sent. Deletes what waits too long.

        False for each without room, or whose trial ended.
        """
        bodies = [encoded(kept) for _, _, kept in requests]
        fitting: list[Row] = []

        def change(rows: Sequence[Row]) -> Changes:
            old = [row[:2] for row in rows if now - row[2] > WAITS_S]
            room = MAX_WAITING - len(rows) + len(old)
            free = MAX_WAITING_BYTES - sum(row[3] for row in rows if now - row[2] <= WAITS_S)
            fitting.clear()
            for (name, exchange, _), body in zip(requests, bodies, strict=True):
                if len(fitting) < room and len(body) <= free:
                    free -= len(body)
                    fitting.append((name, exchange, now, float(len(body)), body.decode()))
            return Changes(put=fitting, delete=old)

        await self._documents.update(REQUESTS, change)
        running = {stored.trial.name for stored in await self.all() if stored.state == "running"}
        if late := [row[:2] for row in fitting if row[0] not in running]:
            await self.drop(late)  # else they would outlive a trial that ended meanwhile
        kept = {row[:2] for row in fitting if row[0] in running}
        return [(name, exchange) in kept for name, exchange, _ in requests]

    async def waiting(self, revision: bytes | None) -> tuple[bytes, dict[tuple[str, str], tuple[float, Kept]] | None]:
        """Return a revision and, if it is not the one given, what waits: by trial and exchange, since when and what."""
        current, rows = await self._documents.changed(REQUESTS, revision)
        if rows is None:
            return current, None
        return current, {(row[0], row[1]): (row[2], msgspec.json.decode(row[4], type=Kept)) for row in rows}

    async def drop(self, requests: Sequence[Row]) -> None:
        """Delete requests that were sent, or will not be: (trial, exchange) each."""
        await self._documents.update(REQUESTS, lambda _: Changes(delete=requests))

    async def claim(self, trial: Trial, arm: str, exchange: str, usd: float, now: float) -> Claim:
        """Reserve an exchange and money for an arm.

        "taken": another process has it; "wait": what others reserved has to be settled first; "spent": the bound of
        the candidates or of the judge is reached. What judging costs is not known before: reserved is a quarter more
        than the dearest so far, and at first everything, so that one exchange shows it; where none cost anything yet,
        an equal share for each call at once.
        """
        said: list[Claim] = []

        def change(rows: Sequence[Row]) -> Changes:
            ours = [row for row in rows if row[0] == trial.name]
            dearest = max((row[6] for row in ours if row[3] == "answered"), default=trial.judge_usd)
            judge_usd = min(_SPARE * dearest or trial.judge_usd / trial.parallel, trial.judge_usd)
            over = [
                why
                for why, column, more, most in (
                    ("spent", 5, usd, trial.usd),
                    ("judge_spent", 6, judge_usd, trial.judge_usd),
                )
                if sum(row[column] for row in ours) + more > most
            ]
            if any(row[1:3] == (arm, exchange) for row in ours):
                said.append("taken")
            elif len(ours) >= MAX_ANSWERS:
                said.append("full")
            elif over:
                said.append("wait" if any(row[3] == "sending" for row in ours) else over[0])  # type: ignore[arg-type]
            else:
                said.append("claimed")
            row = (trial.name, arm, exchange, "sending", now, usd, judge_usd, "{}")
            return Changes(put=[row] if said[-1] == "claimed" else [])

        await self._documents.update(ANSWERS, change)
        return said[-1]

    async def release(self, name: str, arm: str, exchange: str) -> None:
        """Give a claim back: nothing was sent."""
        await self._documents.update(ANSWERS, lambda _: Changes(delete=[(name, arm, exchange)]))

    async def settle(self, name: str, answer: Answer) -> None:
        """Keep what became of a claim, and what it cost; nothing of a trial that was removed meanwhile."""
        facts = encoded(answer.facts).decode()
        row = (name, answer.arm, answer.exchange, answer.state, answer.at, answer.usd, answer.judge_usd, facts)
        await self._documents.update(
            ANSWERS, lambda rows: Changes(put=[row] if any(known[:3] == row[:3] for known in rows) else [])
        )

    async def answers(self, name: str) -> list[Answer]:
        """Return what is known of a trial's exchanges, in the order in which they became complete."""
        rows = (await self._documents.changed(ANSWERS, None))[1] or ()
        found = [
            Answer(
                arm=row[1],
                exchange=row[2],
                state=row[3],
                at=row[4],
                usd=row[5],
                judge_usd=row[6],
                facts=msgspec.json.decode(row[7]),
            )
            for row in rows
            if row[0] == name
        ]
        return sorted(found, key=lambda answer: (answer.at, answer.exchange))

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> int:
        """Delete the waiting requests about a person; return how many. Sealed ones cannot be read: all of them go."""
        _, waiting = await self.waiting(None)
        apps = {stored.trial.name: stored.trial.app for stored in await self.all()}
        meant = [
            key
            for key, (_, kept) in (waiting or {}).items()
            if subject.app in (None, apps.get(key[0])) and (kept.sealed or subject.meets_texts([kept.body]))
        ]
        if meant and not dry_run:
            await self.drop(meant)
        return len(meant)


def open_trials(url: str) -> Trials:
    """Return the trials beside the store that `url` names. Nothing is opened yet. Raises ValueError."""
    return Trials(adapter(url, "trials").from_url(url))


SEAL_KEY = "${GAUGEWAY_TRIALS_KEY}"


def sealer() -> Any | None:
    """Return what encrypts and decrypts requests, with the key in the environment; None without key or package."""
    secret = secret_of(SEAL_KEY)
    with suppress(ImportError):
        from cryptography.fernet import Fernet  # noqa: PLC0415 - an extra: gaugeway[trials]

        return Fernet(urlsafe_b64encode(sha256(secret.encode()).digest())) if secret else None
    return None


def _of(name: str, columns: int = 2) -> Any:
    return lambda rows: Changes(delete=[row[:columns] for row in rows if row[0] == name])
