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
  const { data: ack } = await client.POST("/api/alerts/{fingerprint}/ack", { params: { path }, body: { by: "ana", comment: "" } });
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

test("a server that is not there is an error", async () => {
  await assert.rejects(createClient({ url: "http://127.0.0.1:1" }).GET("/api/alerts"), TypeError);
});
