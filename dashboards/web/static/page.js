// Live updates: when the server reports a change, the affected parts of the page are fetched again.
"use strict";

const MAX_PAUSE_MS = 60000;
const status = document.getElementById("live");
const waiting = new Set();
let fetching = false;
let stream = null;

function say(words) {
  if (status && status.textContent !== words) status.textContent = words;
}

function busy(part) {
  const here = document.activeElement;
  return part.contains(here) && here.matches("input, select, textarea, button");
}

function put(part, fresh) {
  const opened = [...part.querySelectorAll("details")].map((one) => one.open);
  const focus = part.contains(document.activeElement) ? document.activeElement.id || document.activeElement.getAttribute("href") : null;
  part.replaceWith(fresh);
  [...fresh.querySelectorAll("details")].forEach((one, index) => { if (opened[index]) one.open = true; });
  if (focus) [...fresh.querySelectorAll("a, [id]")].find((one) => one.id === focus || one.getAttribute("href") === focus)?.focus();
}

async function refresh() {
  if (fetching || document.hidden) return;
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
      if (wanted && fresh && !busy(part) && fresh.outerHTML !== part.outerHTML) put(part, document.importNode(fresh, true));
    }
    const read = page.querySelector("footer time");
    const shown = document.querySelector("footer time");
    if (read && shown) shown.replaceWith(document.importNode(read, true));
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
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : resume()));
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", (event) => { if (event.persisted) resume(); });
  if (!document.hidden) listen(document.body.dataset.events, 1000);
}
