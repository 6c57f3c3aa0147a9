// Live updates: when the server reports a change, the affected parts of the page are fetched again.
"use strict";

const MAX_PAUSE_MS = 60000;
const status = document.getElementById("live");
const waiting = new Set();
let fetching = false;
let paused = false;
let stream = null;

function say(words) {
  if (status && status.textContent !== words) status.textContent = words;
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

setClock();
setInterval(tick, 1000);

async function refresh() {
  if (fetching || paused || document.hidden) return;
  fetching = true;
  const names = new Set(waiting);
  waiting.clear();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      const wanted = part.dataset.live.split(" ").some((one) => names.has(one));
      if (wanted && fresh && !busy(part)) patch(part, fresh);
    }
    const read = page.querySelector("footer time");
    const shown = document.querySelector("footer time");
    if (read && shown) {
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

// Browsers open at most six connections to a server, so only a visible page holds one.
function listen(address, pause) {
  const events = new EventSource(address);
  stream = events;
  events.addEventListener("open", () => { pause = 1000; say("Updates automatically."); });
  for (const name of ["overview", "alerts", "queue"]) {
    events.addEventListener(name, () => {
      if (!shows(name)) return;
      waiting.add(name);
      refresh();
    });
  }
  events.addEventListener("error", () => {
    say("Not up to date: reconnecting to the server.");
    if (events.readyState !== EventSource.CLOSED || stream !== events) return;
    setTimeout(() => { if (stream === events) listen(address, Math.min(2 * pause, MAX_PAUSE_MS)); }, pause);
  });
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

function stop() {
  stream?.close();
  stream = null;
}

function resume() {
  stop();
  for (const part of document.querySelectorAll("[data-live]")) part.dataset.live.split(" ").forEach((one) => waiting.add(one));
  refresh();
  listen(document.body.dataset.events, 1000);
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
  window.addEventListener("pageshow", (event) => { if (event.persisted && !paused) resume(); });
  if (!document.hidden && !paused) listen(document.body.dataset.events, 1000);
}
