// Explore: a preview beside the list, and saved views. Everything else are plain links and forms.
"use strict";

(() => {
  const panel = document.getElementById("preview");
  const frame = document.getElementById("with-preview");
  let opened = null;
  let asked = 0;

  function element(name, fields = {}, ...inside) {
    const made = Object.assign(document.createElement(name), fields);
    made.append(...inside);
    return made;
  }

  function close() {
    if (!opened) return;
    const button = opened;
    mark(null);
    panel.hidden = true;
    frame.classList.remove("open");
    button.focus();
  }

  function mark(button) {
    if (opened) {
      opened.setAttribute("aria-expanded", "false");
      opened.closest("tr").classList.remove("shown");
    }
    opened = button;
    if (button) {
      button.setAttribute("aria-expanded", "true");
      button.closest("tr").classList.add("shown");
    }
  }

  async function open(button, link) {
    const number = ++asked;
    mark(button);
    panel.hidden = false;
    frame.classList.add("open");
    panel.setAttribute("aria-busy", "true");
    let content;
    try {
      const answer = await fetch(link.dataset.preview, { headers: { accept: "text/html", prefer: "wait" } });
      if (answer.redirected) { location.assign(link.href); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      content = [...page.body.childNodes].map((one) => document.importNode(one, true));
    } catch {
      content = [element("p", { textContent: "The preview could not be loaded." })];
    }
    if (number !== asked) return;
    const shut = element("button", { type: "button", className: "plain", textContent: "Close" });
    shut.addEventListener("click", close);
    const whole = element("a", { href: link.href, textContent: "Open exchange" });
    panel.replaceChildren(element("div", { className: "bar-of-preview" }, whole, shut), ...content);
    panel.removeAttribute("aria-busy");
    panel.scrollTop = 0;
  }

  function step(button, by) {
    const every = [...document.querySelectorAll("button.peek")].filter((other) => other.checkVisibility());
    const next = every[every.indexOf(button) + by];
    if (!next) return;
    next.focus();
    if (opened) next.click();
  }

  // A click beside the links of a row opens its preview; the arrow keys go to the next row.
  if (panel && frame) {
    for (const link of document.querySelectorAll("a[data-preview]")) {
      const button = element("button", { type: "button", className: "plain peek", textContent: "Preview" });
      button.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-controls", "preview");
      button.setAttribute("aria-label", `Preview: ${link.textContent.trim()}`);
      button.addEventListener("click", () => open(button, link));
      link.after(" ", button);
    }
    for (const row of document.querySelectorAll("#exchanges tbody tr")) {
      row.addEventListener("click", (event) => {
        const button = row.querySelector("button.peek");
        if (!button || event.target.closest("a, button, summary, details, input") || getSelection().toString()) return;
        button.focus({ preventScroll: true });
        button.click();
      });
    }
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const here = document.activeElement?.closest("button.peek") ?? (document.activeElement === document.body ? opened : null);
      if (!by || !here) return;
      event.preventDefault();
      step(here, by);
    });
  }

  // The values known for the chosen field are suggested.
  const chosen = document.getElementById("filter-field");
  const typed = document.getElementById("filter-value");
  function suggest() {
    typed.setAttribute("list", chosen.selectedOptions[0]?.dataset.list ?? "");
  }
  chosen?.addEventListener("change", () => { suggest(); typed.value = ""; typed.focus(); });
  if (chosen && typed) suggest();

  // Saved views stay in this browser: a view is an address, which can be shared as it is.
  const KEY = "gaugeway-explore-views";
  const MAX_VIEWS = 30;
  const MAX_NAME = 60;
  const box = document.getElementById("saved");

  function stored() {
    try {
      const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
      if (!Array.isArray(found)) return [];
      const valid = (one) => typeof one?.name === "string" && typeof one?.query === "string";
      return found.filter(valid).slice(0, MAX_VIEWS);
    } catch {
      return [];
    }
  }

  function keep(views) {
    try {
      localStorage.setItem(KEY, JSON.stringify(views.slice(0, MAX_VIEWS)));
    } catch { /* the browser keeps nothing: the views last until the page is left */ }
    show(views);
  }

  function show(views) {
    const list = element("ul");
    list.setAttribute("aria-label", "Saved views");
    for (const one of views) {
      const query = new URLSearchParams(one.query).toString();
      const link = element("a", { href: query ? `/explore?${query}` : "/explore", textContent: one.name });
      if (query === current()) link.setAttribute("aria-current", "page");
      const remove = element("button", { type: "button", className: "plain", textContent: "×" });
      remove.setAttribute("aria-label", `Remove view ${one.name}`);
      remove.addEventListener("click", () => { keep(stored().filter((other) => other.name !== one.name)); field.focus(); });
      list.append(element("li", {}, link, remove));
    }
    const field = element("input", { id: "view-name", maxLength: MAX_NAME, required: true, autocomplete: "off" });
    const label = element("label", { htmlFor: "view-name", textContent: "Save this view as" });
    const form = element("form", {}, label, field, element("button", { className: "plain", textContent: "Save" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const name = field.value.trim().slice(0, MAX_NAME);
      if (!name) return;
      const others = stored().filter((one) => one.name !== name);
      keep([{ name, query: current() }, ...others]);
      document.getElementById("view-name").focus();
    });
    box.replaceChildren(...(views.length ? [list] : []), form);
    box.hidden = false;
  }

  function current() {
    const query = new URLSearchParams(location.search);
    query.delete("after");
    query.delete("thorough");
    return query.toString();
  }

  if (box) show(stored());
})();
