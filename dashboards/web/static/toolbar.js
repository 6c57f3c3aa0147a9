// The toolbar: local time or UTC, copy link, pause, app filter, and the keyboard's shortcuts.

const said = document.getElementById("toolbar-said");

function announce(words) {
  if (said) said.textContent = words;
}

// What is remembered may be unavailable: private windows, or storage that is full.
function remembered(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

function remember(storage, name, value) {
  try {
    window[storage].setItem(name, value);
  } catch {
    // it then holds for this page only
  }
}

// Time zone. Texts come from the server in UTC; `data-utc` keeps them.
const ZONE = "gaugeway-zone";
const SHAPE = /^(?:(\d{4}-)?(\d\d-\d\d))?[ T]?(\d\d:\d\d)?(:\d\d)?(?: ?UTC|Z)?$/;
const NAMED = /^(?:([A-Z][a-z]{2})|\d\d [A-Z][a-z]{2}) \d\d:\d\d$/;
let local = remembered("localStorage", ZONE) === "local";

function two(number) {
  return String(number).padStart(2, "0");
}

function zoneName(at) {
  const parts = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(at);
  return parts.find((one) => one.type === "timeZoneName")?.value ?? "local";
}

// The same parts of the time as the server's text has, in the local zone; null for a text of another shape.
function inZone(text, at) {
  const named = NAMED.exec(text.trim());
  if (named) return `${at.toLocaleDateString("en-GB", named[1] ? { weekday: "short" } : { day: "2-digit", month: "short" })} ${two(at.getHours())}:${two(at.getMinutes())}`;
  const shape = SHAPE.exec(text.trim());
  if (!shape || !shape[3] || Number.isNaN(at.getTime())) return null;
  const [, year, day, , seconds] = shape;
  const date = day ? `${year ? `${at.getFullYear()}-` : ""}${two(at.getMonth() + 1)}-${two(at.getDate())} ` : "";
  const time = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
  return `${date}${time}${/UTC|Z/.test(text) ? ` ${zoneName(at)}` : ""}`;
}

function showTime(element, at) {
  if (element.dataset.shown !== element.textContent) element.dataset.utc = element.textContent;
  const utc = element.dataset.utc;
  const words = local ? inZone(utc, new Date(at)) ?? utc : utc;
  if (element.textContent !== words) element.textContent = words;
  element.dataset.shown = words;
}

function showZone() {
  for (const one of document.querySelectorAll("time[datetime]")) showTime(one, one.dateTime);
  for (const one of document.querySelectorAll("svg text[data-at]")) showTime(one, one.dataset.at);
  const note = document.getElementById("zone");
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (note) note.textContent = local ? `Times are local (${name}).` : "Times are UTC.";
  const button = document.getElementById("zone-switch");
  button?.setAttribute("aria-pressed", String(local));
  document.documentElement.dataset.zone = local ? "local" : "utc";
}

document.getElementById("zone-switch")?.addEventListener("click", () => {
  local = !local;
  remember("localStorage", ZONE, local ? "local" : "utc");
  showZone();
  document.dispatchEvent(new CustomEvent("gaugeway:zone"));
  announce(local ? "Times are local." : "Times are UTC.");
});
for (const name of ["refreshed", "times"]) document.addEventListener(`gaugeway:${name}`, showZone);
showZone();

// Copy link. Without a clipboard (plain HTTP) the link is followed, and the address bar has it.
document.getElementById("copy-link")?.addEventListener("click", async (event) => {
  if (!navigator.clipboard) return;
  event.preventDefault();
  const link = event.currentTarget;
  try {
    await navigator.clipboard.writeText(link.href);
    link.textContent = "Copied";
    announce("Link copied.");
    setTimeout(() => { link.textContent = "Copy link"; }, 2000);
  } catch {
    location.assign(link.href);
  }
});

// Pause. It lasts for this tab.
const PAUSED = "gaugeway-paused";
const pause = document.getElementById("pause");

function setPaused(value) {
  pause.textContent = value ? "Resume" : "Pause";
  pause.setAttribute("aria-pressed", String(value));
  pause.title = value ? "Follow the data again" : "Stop updates, to read in peace";
  document.documentElement.dataset.paused = String(value);
  document.dispatchEvent(new CustomEvent("gaugeway:pause", { detail: value }));
}

const updating = document.getElementById("live")?.dataset.fixed === undefined;
if (pause && updating && document.querySelector("main :is([data-live], [data-series])")) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    const value = document.documentElement.dataset.paused !== "true";
    remember("sessionStorage", PAUSED, String(value));
    setPaused(value);
  });
  if (remembered("sessionStorage", PAUSED) === "true") setPaused(true);
}

// App picker.
const typed = document.getElementById("picked-app");
typed?.addEventListener("input", () => {
  const wanted = typed.value.trim().toLowerCase();
  for (const one of document.querySelectorAll("#apps-listed [data-app]")) {
    one.hidden = !one.dataset.app.toLowerCase().includes(wanted);
  }
});

for (const one of document.querySelectorAll(".picker, .action")) {
  one.addEventListener("toggle", () => {
    if (one.open) one.querySelector("input:not([type=hidden]), select")?.focus();
  });
  one.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !one.open) return;
    one.open = false;
    one.querySelector("summary").focus();
  });
}
document.addEventListener("click", (event) => {
  for (const one of document.querySelectorAll(":is(.picker, .action)[open]")) if (!one.contains(event.target)) one.open = false;
});

// Shortcuts.
const help = document.getElementById("help");
const WAIT_MS = 1500;
let goUntil = 0;

function openHelp() {
  if (help && !help.open) help.showModal();
}

const helpButton = document.getElementById("help-open");
helpButton?.addEventListener("click", openHelp);

function step(by) {
  const table = document.querySelector("main table.main") ?? document.querySelector("main table:has(tbody a)");
  const rows = [...(table?.tBodies ?? [])].flatMap((one) => [...one.rows]).filter((row) => row.querySelector("a"));
  if (!rows.length) return;
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + by));
  rows[next].querySelector("a").focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

// On a narrow screen the search is in the menu.
function focusSearch() {
  const search = document.getElementById("search");
  if (search && !search.checkVisibility()) document.getElementById("main-menu")?.showPopover?.();
  search?.focus();
}

const ACTIONS = {
  "/": focusSearch,
  "?": openHelp,
  j: () => step(1),
  k: () => step(-1),
  g: () => { goUntil = Date.now() + WAIT_MS; },
};

function typing(target) {
  return target.isContentEditable || target.matches?.("input, select, textarea, [role=textbox]");
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || typing(event.target)) return;
  if (help?.open) return;
  if (Date.now() < goUntil) {
    goUntil = 0;
    const link = help?.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      location.assign(link.href);
      return;
    }
  }
  const action = Object.hasOwn(ACTIONS, event.key) ? ACTIONS[event.key] : null;
  if (action) {
    event.preventDefault();
    action();
  }
});

for (const one of document.querySelectorAll("[data-js]")) if (one !== pause) one.hidden = false;
