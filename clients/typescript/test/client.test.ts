import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, createClient } from "../src/index.js";

const url = process.env.GAUGEWAY_URL;
const token = process.env.GAUGEWAY_MONITORS_TOKEN;
const client = createClient({ url, token });

test("an incident is read, acknowledged and labelled", async () => {
  const { data: alerts } = await client.GET("/api/alerts");
  const alert = alerts?.[0];
  assert.equal(alert?.app, "shop");
  const path = { fingerprint: alert.fingerprint };
  const { data: whole } = await client.GET("/api/alerts/{fingerprint}", { params: { path } });
  assert.equal(whole?.likely_cause, "retrieval");
  assert.match(whole.worst[0]!.faults[0]!, /within two years/);
  const { data: ack } = await client.POST("/api/alerts/{fingerprint}/ack", { params: { path }, body: { by: "ana" } });
  assert.equal(ack?.by, "ana");
  const { data: made } = await client.POST("/api/exchanges/{exchange_id}/label", {
    params: { path: { exchange_id: whole.worst[0]!.id } },
    body: { metric: "faithfulness", label: "fail", by: "ana" },
  });
  assert.equal(made?.label, "fail");
});

test("a mean has an interval and n, and parameters are typed", async () => {
  const { data: metrics } = await client.GET("/api/metrics");
  const row = metrics?.find((each) => each.metric === "faithfulness");
  assert.ok(row && row.n > 0 && row.mean !== null && row.ci_low !== null && row.ci_low < row.mean);
  const { data: points } = await client.GET("/api/exchanges", { params: { query: { app: "shop", limit: 3 } } });
  assert.equal(points?.length, 3);
});

test("an error is thrown with its status and field, and without the token", async () => {
  await assert.rejects(client.GET("/api/exchanges", { params: { query: { limit: 0 } } }), (error) => {
    assert.ok(error instanceof ApiError);
    assert.deepEqual([error.status, error.field], [400, "limit"]);
    return true;
  });
  const stranger = createClient({ url, token: "wrong" });
  await assert.rejects(stranger.GET("/api/alerts"), (error) => {
    assert.ok(error instanceof ApiError && error.status === 401);
    assert.ok(!String(error).includes("wrong "));
    return true;
  });
});

test("documented short bodies compile", async () => {
  const matchers = [{ name: "app" as const, value: "another" }];
  const { data: silence } = await client.POST("/api/silences", { body: { matchers, by: "ana", duration_s: 60 } });
  assert.equal(silence?.by, "ana");
  const params = { path: { name: "kept" } };
  const { data: added } = await client.POST("/api/datasets/{name}", { params, body: { app: "shop", limit: 3 } });
  assert.ok(added && added.dataset.rows > 0);
});

test("the signal of a request ends it", async () => {
  const waiting: typeof fetch = (_, init) =>
    new Promise((_resolve, reject) => {
      init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason));
    });
  const controller = new AbortController();
  const asked = createClient({ url, token, fetch: waiting }).GET("/api/alerts", { signal: controller.signal });
  setImmediate(() => controller.abort(new Error("enough")));
  await assert.rejects(asked, /enough/);
});

test("a token that no header may have is refused and not repeated", () => {
  assert.throws(
    () => createClient({ url, token: "secret\r\nvalue" }),
    (error) => error instanceof TypeError && /^token: /.test(error.message) && !/secret|value/.test(error.message),
  );
});

test("an empty path parameter and a dot segment are refused", async () => {
  for (const fingerprint of ["", ".", ".."]) {
    const asked = client.GET("/api/alerts/{fingerprint}", { params: { path: { fingerprint } } });
    await assert.rejects(asked, /^TypeError: fingerprint: expected a name/);
  }
});

test("a server that is not there is an error", async () => {
  await assert.rejects(createClient({ url: "http://127.0.0.1:1" }).GET("/api/alerts"), TypeError);
});
