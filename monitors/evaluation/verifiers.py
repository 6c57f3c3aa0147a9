"""Builds the verifier that `[judge.grounding]` names, with the same middleware as the judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from gaugeway.settings import ConfigError
from gaugeway.settings import shared as config
from gaugeway.settings.shared import GroundingVerifier
from monitors.evaluation.models import cached, chat_endpoint, guarded, limits_of, origin_of, price_of
from monitors.exporters.instruments import Instruments
from monitors.judges import Judge
from monitors.judges.cost import Bill, Billing
from monitors.judges.grounding import Verifier
from monitors.judges.grounding.http import Classify, JsonEndpoint, Predict, Protocolled
from monitors.judges.grounding.lettucedetect import DetectorApi, GenerativeDetector, SpansApi, TokensApi
from monitors.judges.grounding.pairs import BatchedPairs, MiniCheck, PairProtocol, PairVerifier
from monitors.judges.micro_batcher import BATCH_WAIT_S
from monitors.judges.openai import OpenAIJudge

if TYPE_CHECKING:
    from monitors.judges.grounding.onnx import LocalModel

TABLE = "judge.grounding"


def open_verifier(settings: config.Judge, instruments: Instruments, *, answers: Path | None = None) -> Verifier | None:
    """Build the verifier; None if the settings name none. `answers` is the path of the cache file.

    Its cost is counted and billed to the app as the judge's is, and does not count towards the judge's budget: it runs
    for all traffic, so nothing could be saved by lowering a rate. Raises ConfigError.
    """
    if settings.grounding is None:
        return None
    try:
        return _Opening(settings, settings.grounding, instruments, answers).verifier()
    except ValueError as error:
        raise ConfigError([f"{TABLE}.{error}"]) from error


def examine_verifier(settings: config.Judge, instruments: Instruments) -> Verifier | None:
    """Build the verifier, and load a model on this machine. Raises ConfigError."""
    verifier = open_verifier(settings, instruments)
    if settings.grounding is not None and settings.grounding.kind == "onnx":
        try:
            _Opening(settings, settings.grounding, instruments, None).local_model().load()
        except ValueError as error:
            raise ConfigError([f"{TABLE}.{error}"]) from error
    return verifier


class _Opening(Struct, frozen=True):
    """The settings of one verifier, and where it is counted."""

    settings: config.Judge
    table: GroundingVerifier
    instruments: Instruments
    answers: Path | None

    def verifier(self) -> Verifier:
        kind, api, most = self.table.kind, self.table.spoken, self.table.document_chars
        ask_again = self.table.max_retries > 0
        if kind == "onnx":
            return self._local(most)
        if kind == "minicheck":
            return MiniCheck(self._cached(self._guarded(self._chat())), most=most, ask_again=ask_again)
        if kind == "classify":
            return self._classifier(most)
        if api == "chat":
            return GenerativeDetector(self._cached(self._guarded(self._chat())), most=most, ask_again=ask_again)
        protocol = SpansApi() if api == "spans" else TokensApi()
        judge = self._cached(self._guarded(self._http(protocol), protocol.path))
        return DetectorApi(judge, version=protocol.version, most=most)

    def _classifier(self, most: int) -> Verifier:
        table = self.table
        protocol = (
            Predict(table.label)
            if table.spoken == "predict"
            else Classify(table.model or "", table.template or "", table.label)
        )
        return self._pairs(self._guarded(self._http(protocol), protocol.path), protocol, most)

    def _pairs(self, judge: Judge, protocol: PairProtocol, most: int) -> Verifier:
        batched = BatchedPairs(judge, protocol, size=self.table.batch_size, wait_s=BATCH_WAIT_S)
        return PairVerifier(self._cached(batched), version=protocol.version, most=most)

    def local_model(self) -> LocalModel:
        """Build the model on this machine, without loading it. Raises ValueError."""
        from monitors.judges.grounding.onnx import LocalModel  # noqa: PLC0415 - only where it is asked for

        table = self.table
        return LocalModel(
            table.path or "",
            label=table.label,
            name=table.model,
            threads=table.threads,
            price=self._price(),
            observer=self._observer(),
        )

    def _local(self, most: int) -> Verifier:
        from monitors.judges.grounding.onnx import LocalPairs  # noqa: PLC0415 - as above

        model = self.local_model()
        judge = self._guarded(model, "")
        if model.of_tokens:
            return DetectorApi(self._cached(judge), version=model.version, most=most)
        return self._pairs(judge, LocalPairs(model.version), most)

    def _http(self, protocol: Protocolled) -> JsonEndpoint:
        return JsonEndpoint(
            protocol,
            self.table.base_url or "",
            self.table.api_key,
            self.table.model or self.table.kind,
            timeout_s=self.table.timeout_s,
            price=self._price(),
            observer=self._observer(),
        )

    def _chat(self) -> OpenAIJudge:
        return chat_endpoint(self.table, self._price(), self._observer())

    def _guarded(self, endpoint: Judge, path: str = "/chat/completions") -> Judge:
        limits = limits_of(
            self.settings,
            concurrency=self.table.concurrency,
            max_retries=self.table.max_retries,
            verifier_timeout_s=self.table.timeout_s,
        )
        origin = self.table.path or origin_of(self.table.base_url or "")
        observer = self._observer()
        stack = guarded(
            endpoint, limits, origin=origin, instruments=self.instruments, observer=observer, path=path, role="verifier"
        )
        return stack.judge

    def _cached(self, judge: Judge) -> Judge:
        return cached(judge, self.settings, self.answers, self.instruments.looked_up)

    def _price(self) -> config.Price:
        return price_of(self.table, self.settings.prices)

    def _observer(self) -> Billing:
        def charge(bill: Bill) -> None:
            self.instruments.charged(bill.app, bill.metric, bill.input_tokens, bill.output_tokens, bill.usd)

        return Billing(self.instruments, charge)
