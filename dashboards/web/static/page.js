// Live updates: when the server reports a change, the affected parts of the page are fetched again.
"use strict";

const MAX_PAUSE_MS = 60000;
const SHARED = "gaugeway-events";
const EVENTS = ["overview", "alerts", "queue"];
const status = document.getElementById("live");
const waiting = new Set();
let fetching = false;
let paused = false;

// A fixed time range does not move on, and many views show a reading: those say how to read again.
function follows() {
  return status?.dataset.fixed === undefined && document.querySelector("main :is([data-live], [data-fresh], [data-series])") !== null;
}

function say(words) {
  if (follows() && status.textContent !== words) status.textContent = words;
}

function sayLive() {
  const charts = document.querySelector("main [data-series]") !== null;
  say(charts ? "Charts and alerts update automatically; reload for the rest." : "Updates automatically.");
}

function busy(part) {
  const here = document.activeElement;
  return part.contains(here) && here.matches("input, select, textarea, button");
}

// Changes only what differs, so that scroll positions, selected text and open details stay.
// A part that a script draws keeps what it has drawn: charts read their own data.
function patch(shown, fresh) {
  if (shown.isEqualNode(fresh) || shown.dataset?.drawn !== undefined) return;
  if (shown.nodeType !== fresh.nodeType || shown.nodeName !== fresh.nodeName || shown.id !== fresh.id) {
    shown.replaceWith(document.importNode(fresh, true));
    return;
  }
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    if (shown.data !== fresh.data) shown.data = fresh.data;
    return;
  }
  for (const { name } of [...shown.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") shown.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (shown.getAttribute(name) !== value && name !== "open") shown.setAttribute(name, value);
  }
  const old = [...shown.childNodes];
  const young = [...fresh.childNodes];
  young.forEach((one, index) => (old[index] ? patch(old[index], one) : shown.append(document.importNode(one, true))));
  old.slice(young.length).forEach((one) => one.remove());
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
let ahead_ms = 0;

// The clock here may differ from the server's.
function setClock() {
  const read = Date.parse(document.querySelector("footer time")?.dateTime);
  if (!Number.isNaN(read)) ahead_ms = Date.now() - read;
}

function tick() {
  if (document.hidden) return;
  for (const words of document.querySelectorAll(".ago")) {
    const seconds = (Date.now() - ahead_ms - Date.parse(words.previousElementSibling?.dateTime)) / 1000;
    if (Number.isNaN(seconds)) continue;
    const unit = UNITS.find(([size]) => Math.abs(seconds) >= size);
    const apart = unit && `${Math.floor(Math.abs(seconds) / unit[0])} ${unit[1]}`;
    const said = unit ? (seconds >= 0 ? `(${apart} ago)` : `(in ${apart})`) : "(just now)";
    if (words.textContent !== said) words.textContent = said;
  }
}

// On a narrow screen the navigation scrolls: the view that is open is in sight.
for (const one of document.querySelectorAll(".toolbar nav [aria-current]")) one.scrollIntoView({ block: "nearest", inline: "center" });

setClock();
setInterval(tick, 1000);

async function refresh() {
  if (fetching || paused || document.hidden) return;
  fetching = true;
  const names = new Set(waiting);
  waiting.clear();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html", prefer: "wait" } });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      const wanted = part.dataset.live.split(" ").some((one) => names.has(one));
      if (wanted && fresh && !busy(part)) patch(part, fresh);
    }
    const read = page.querySelector("footer time");
    const shown = document.querySelector("footer time");
    if (read && shown && document.querySelector("main [data-live]")) {
      shown.replaceWith(document.importNode(read, true));
      setClock();
      tick();
    }
    document.dispatchEvent(new CustomEvent("gaugeway:refreshed"));
  } catch {
    say("Not up to date: the server did not respond.");
  } finally {
    fetching = false;
    if (waiting.size) setTimeout(refresh, 1000);
  }
}

function shows(name) {
  return [...document.querySelectorAll("[data-live]")].some((part) => part.dataset.live.split(" ").includes(name));
}

function want(names) {
  for (const name of names) if (shows(name)) waiting.add(name);
  if (waiting.size) refresh();
}

// What happened before the stream was open, or while it was not, is fetched when it opens.
let connected = false;
let missed = false;

function hear(news) {
  if (EVENTS.includes(news.event)) {
    want([news.event]);
  } else if (news.state === "open") {
    if (missed) want(EVENTS);
    [connected, missed] = [true, false];
    sayLive();
  } else if (news.state) {
    missed ||= connected;
    connected = false;
    if (news.state === "lost") say("Not up to date: reconnecting to the server.");
  }
}

function listen(address, signal, tell) {
  let pause = 1000;
  function connect() {
    if (signal.aborted) return;
    const events = new EventSource(address);
    signal.addEventListener("abort", () => events.close());
    events.addEventListener("open", () => { pause = 1000; tell({ state: "open" }); });
    for (const event of EVENTS) events.addEventListener(event, () => tell({ event }));
    events.addEventListener("error", () => {
      if (signal.aborted) return;
      tell({ state: "lost" });
      if (events.readyState !== EventSource.CLOSED) return;
      setTimeout(connect, pause);
      pause = Math.min(2 * pause, MAX_PAUSE_MS);
    });
  }
  connect();
}

// Browsers open at most six connections to a server that speaks HTTP/1.1, for all of their tabs. Only visible tabs
// listen, and of these the one that holds the lock has the stream and passes the news on. Where the browser has no
// locks (they need HTTPS or localhost), each visible tab has its own stream.
let leaving = null;

function lead(address, signal, channel) {
  let state = "changing";
  function tell(news) {
    if (signal.aborted) return;
    state = news.state ?? state;
    channel.postMessage(news);
    hear(news);
  }
  channel.addEventListener("message", ({ data }) => { if (data.asks && !signal.aborted) channel.postMessage({ state }); });
  tell({ state });
  listen(address, signal, tell);
  return new Promise((done) => { signal.addEventListener("abort", done); });
}

function start() {
  stop();
  const address = document.body.dataset.events;
  leaving = new AbortController();
  const { signal } = leaving;
  if (!navigator.locks || !window.BroadcastChannel) {
    listen(address, signal, hear);
    return;
  }
  const channel = new BroadcastChannel(SHARED);
  signal.addEventListener("abort", () => channel.close());
  channel.addEventListener("message", ({ data }) => { if (!signal.aborted) hear(data); });
  channel.postMessage({ asks: "state" });
  navigator.locks.request(SHARED, { signal }, () => (signal.aborted ? null : lead(address, signal, channel))).catch(() => {
    if (!signal.aborted) listen(address, signal, hear); // locks are refused, in a sandboxed frame for example
  });
}

function stop() {
  leaving?.abort();
  leaving = null;
  [connected, missed] = [false, false];
}

function resume() {
  start();
  want(EVENTS);
}

// The text of a `title` also on focus, at once, and where the browser shows none: in one popover, which nothing cuts off.
const TIP_MS = 250;
const tip = document.createElement("div");
let tipped = null;
let tipSoon = 0;

function hideTip() {
  clearTimeout(tipSoon);
  if (tipped && !tipped.title) tipped.title = tipped.dataset.tip;
  tipped?.removeAttribute("aria-describedby");
  if (tip.matches(":popover-open")) tip.hidePopover();
  tipped = null;
}

function showTip(owner) {
  hideTip();
  if (!owner.title || !owner.isConnected) return;
  tipped = owner;
  owner.dataset.tip = tip.textContent = owner.title;
  owner.title = ""; // else the browser shows its own as well
  if (owner.matches("a, button, input, [tabindex]")) owner.setAttribute("aria-describedby", "tip");
  tip.showPopover();
  const [at, own] = [owner.getBoundingClientRect(), tip.getBoundingClientRect()];
  const below = at.bottom + 6 + own.height < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - own.width - 8))}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - own.height - 6)}px`;
}

if (tip.showPopover) {
  Object.assign(tip, { id: "tip", popover: "manual", role: "tooltip" });
  document.body.append(tip);
  const ownerOf = (event) => event.target.closest?.("main [title], header [title], .toolbar [title]");
  document.addEventListener("pointerover", (event) => {
    const owner = ownerOf(event);
    if (owner && owner !== tipped) { clearTimeout(tipSoon); tipSoon = setTimeout(showTip, TIP_MS, owner); }
  });
  document.addEventListener("pointerout", (event) => {
    if (!(tipped ?? ownerOf(event))?.contains(event.relatedTarget)) hideTip();
  });
  document.addEventListener("focusin", (event) => {
    const owner = ownerOf(event);
    if (owner && event.target.matches(":focus-visible")) showTip(owner);
  });
  document.addEventListener("focusout", hideTip);
  document.addEventListener("click", (event) => { if (event.target.closest?.("button.tip")) showTip(event.target.closest("button.tip")); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  document.addEventListener("scroll", hideTip, { capture: true, passive: true });
}

for (const box of document.querySelectorAll(".snippet")) {
  if (!navigator.clipboard) break;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy: ${box.querySelector("figcaption").textContent.trim()}`);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(box.querySelector("code").textContent);
    button.textContent = "Copied";
  });
  box.querySelector("figcaption").append(button);
}

for (const part of navigator.clipboard ? document.querySelectorAll("[data-copy]") : []) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: "Copy" });
  button.setAttribute("aria-label", `Copy the id ${part.dataset.copy}`);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(part.dataset.copy);
    button.textContent = "Copied";
  });
  part.append(button);
}

if (document.body.dataset.events && document.querySelector("[data-live]") && window.EventSource) {
  document.addEventListener("visibilitychange", () => (document.hidden || paused ? stop() : resume()));
  document.addEventListener("gaugeway:pause", (event) => {
    paused = event.detail;
    if (!paused) resume();
    else {
      stop();
      say("Paused: shows the data of the time above.");
    }
  });
  window.addEventListener("pagehide", stop);
  document.querySelector('form[action="/logout"]')?.addEventListener("submit", stop); // the session ends before the page
  window.addEventListener("pageshow", (event) => { if (event.persisted && !paused) resume(); });
  if (!document.hidden && !paused) start();
} else if (document.querySelector("main [data-fresh]")) {
  sayLive();
}
