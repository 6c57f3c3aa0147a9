"""What one fault did: counted over the client, the upstream, the store and every process that there was."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.faults.stand import Stand
from benchmarks.faults.traffic import Request

_NUMBER = re.compile(r"\d+")
LOSSES = ("overflow", "error", "too_large", "back_pressure")
SLACK_S = 0.05
"""By how much two processes' notes of one moment may differ."""
BATCH = 100
"""What a gateway brings to the queue at once: more must not be lost with it."""


@dataclass(kw_only=True)
class Row:
    """One line of the table. Everything that should be zero is a count."""

    fault: str
    may_lose: bool = False
    may_be_blind: bool = False
    took_s: float = 0.0
    sent: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    """Requests under way on a gateway that was killed."""
    passed_by: int = 0
    slowest_s: float = 0.0
    answered: int = 0
    stored: int = 0
    left: int = 0
    """Still on their way when we stopped waiting."""
    counted: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    """Answered, not stored, and counted nowhere: what was in the memory of a process that was killed."""
    lost_at_once: int = 0
    lost_age_ms: int = 0
    twice: int = 0
    evaluations: int = 0
    doubled: int = 0
    unscored: dict[str, int] = field(default_factory=dict)
    judged_again: int = 0
    late: int = 0
    alerts_expected: int = 0
    alerts_told: int = 0
    alerts_doubled: int = 0
    alerts_wrong: int = 0
    alert_s: float | None = None
    blind: int = 0
    recovered_s: float | None = None
    notes: list[str] = field(default_factory=list)
    died: str = ""
    """Why the row could not be finished."""

    @property
    def fine(self) -> bool:
        """Whether all is as it was promised."""
        zeros = (sum(self.failed.values()), self.twice, self.doubled, self.alerts_doubled, self.alerts_wrong, self.left)
        few = self.lost_at_once <= BATCH if self.may_lose else not self.lost
        spared = few and (self.may_be_blind or not self.unscored)
        told = self.alerts_told == self.alerts_expected
        return not self.died and not any(zeros) and spared and told and self.recovered_s is not None


def count(stand: Stand, row: Row, *, planted: bool) -> None:
    """Fill in the row, after everything has settled."""
    requests = stand.traffic.requests
    _requests(stand, row, requests)
    for replica in stand.machines:
        stand.look(replica)
    ok = {one.number: one for one in requests if one.kind == "ok"}
    stored = stand.engine.ask(f"SELECT id, {stand.engine.question} FROM samples")
    numbers = Counter(int(_NUMBER.search(question)[0]) for _, question in stored)
    row.stored = len(ok.keys() & numbers.keys())
    row.twice = sum(times - 1 for times in numbers.values())
    row.counted = {
        one: round(found)
        for one in LOSSES
        if (found := stand.counted("gaugeway_exchanges_total", "gateway", outcome=one))
    }
    queue = stand.alive("monitors")[0].get("/api/status")["queue"]
    row.counted |= {one: queue[one] for one in ("dead_letters", "trimmed") if queue.get(one)}
    row.left = queue["ready"] + queue["leased"]
    missing = [one for number, one in ok.items() if number not in numbers]
    # a dead letter may be stored all the same: its worker died before it could say so
    row.lost = max(0, len(missing) - sum(row.counted.values()) - row.left)
    _losses(stand, row, missing)
    _evaluations(stand, row)
    _alerts(stand, row, planted=planted)


def _requests(stand: Stand, row: Row, requests: list[Request]) -> None:
    row.sent = len(requests)
    row.answered = sum(one.kind == "ok" for one in requests)
    row.passed_by = sum(one.passed_by for one in requests)
    row.slowest_s = round(max((one.ended_at - one.sent_at for one in requests if one.kind == "ok"), default=0.0), 2)
    failed: Counter[str] = Counter()
    for one in requests:
        if one.kind == "cut" and _killed_under(stand, one):
            row.cut += 1
        elif one.kind != "ok":
            failed[f"status {one.status}" if one.kind == "status" else one.kind] += 1
    row.failed = dict(failed)


def _killed_under(stand: Stand, one: Request) -> bool:
    return any(
        gateway == one.gateway and one.sent_at - SLACK_S <= gone and at <= one.ended_at + SLACK_S
        for gateway, at, gone in stand.kills
    )


def _losses(stand: Stand, row: Row, missing: list[Request]) -> None:
    """How many were lost with each kill, and how long before it the oldest of them had been answered."""
    by_kill: defaultdict[tuple[int, float], int] = defaultdict(int)
    oldest = 0.0
    for one in missing:
        later = [(gone - one.ended_at, gone) for gateway, _, gone in stand.kills if gateway == one.gateway]
        later = [(age, gone) for age, gone in later if age > -SLACK_S]
        if later:
            age, gone = min(later)
            by_kill[one.gateway, gone] += 1
            oldest = max(oldest, age)
    row.lost_at_once = max(by_kill.values(), default=0)
    row.lost_age_ms = round(oldest * 1000)


def _evaluations(stand: Stand, row: Row) -> None:
    ask = stand.engine.ask
    row.evaluations = ask("SELECT count(*) FROM evaluations")[0][0]
    distinct = ask("SELECT count(*) FROM (SELECT DISTINCT sample_id, metric, version FROM evaluations) AS one")[0][0]
    row.doubled = row.evaluations - distinct
    unscored = ask(
        "SELECT outcome, reason, count(*) FROM evaluations"
        " WHERE metric = 'faithfulness' AND outcome <> 'score' GROUP BY 1, 2"
    )
    row.unscored = {f"{outcome}: {reason}"[:40]: number for outcome, reason, number in unscored}
    judged = stand.judge.told()["judged"]
    row.judged_again = sum(times - 1 for times in judged.values())
    row.late = round(stand.counted("gaugeway_late_scores_total", "monitors"))


def _alerts(stand: Stand, row: Row, *, planted: bool) -> None:
    row.alerts_expected = int(planted)
    firing = [one for one in stand.alerts() if one["status"] == "firing"]
    shop = stand.told("shop")
    row.alerts_told = len({one["startsAt"] for one in shop}) if planted else 0
    row.alerts_doubled = len(shop) - len({one["startsAt"] for one in shop})
    if planted and shop:
        row.alert_s = round(min(one["at"] for one in shop) - stand.drop_at, 1)
    row.blind = sum(one["labels"]["rule"] != "answers" for one in firing)
    row.alerts_wrong = sum(one["labels"]["rule"] == "answers" for one in firing) - (len(shop) if planted else 0)


def recovered(seen: list[tuple[float, int]], since: float) -> float | None:
    """Seconds from `since` until the count was first what it is at the end."""
    if not seen:
        return None
    last = seen[-1][1]
    return round(next(max(0.0, at - since) for at, number in seen if number == last), 1)


def saved(row: Row) -> dict[str, Any]:
    """As JSON takes it."""
    return asdict(row) | {"fine": row.fine, "at": time.strftime("%Y-%m-%d %H:%M")}
