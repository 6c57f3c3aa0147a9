// Highlights what belongs together: a sentence, its claims, and the passages that support or contradict them.
"use strict";

(() => {
  const numbers = (text) => (text ?? "").split(" ").filter(Boolean);
  const parts = [...document.querySelectorAll("[data-claims]")];
  const passages = [...document.querySelectorAll("[data-passage]")];
  const claims = parts.filter((one) => one.matches("li"));
  const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
  let pinned = null;

  function related(part) {
    if (part.dataset.passage) {
      const quotes = [...part.querySelectorAll("[data-claims]")].flatMap((one) => numbers(one.dataset.claims));
      const checked = claims.filter((one) => numbers(one.dataset.passages).includes(part.dataset.passage));
      return new Set([...quotes, ...checked.flatMap((one) => numbers(one.dataset.claims))]);
    }
    return new Set(numbers(part.dataset.claims));
  }

  function light(part) {
    const wanted = part ? related(part) : new Set();
    const shares = (one) => numbers(one.dataset.claims).some((number) => wanted.has(number));
    for (const one of parts) one.classList.toggle("lit", !one.matches("a") && shares(one));
    const named = new Set(claims.filter(shares).flatMap((one) => numbers(one.dataset.passages)));
    for (const one of passages) {
      one.classList.toggle("lit", one === part || (named.has(one.dataset.passage) && !one.querySelector(".lit")));
    }
  }

  const of = (event) => event.target.closest?.("[data-claims], [data-passage]") ?? null;

  function counterpart(part) {
    const inPassage = part.closest("[data-passage]");
    return [...document.querySelectorAll(".lit")].find((one) =>
      inPassage ? one.matches("mark.claim") : one.closest("[data-passage]"));
  }

  for (const name of ["pointerover", "focusin"]) {
    document.addEventListener(name, (event) => light(of(event) ?? pinned));
  }
  document.addEventListener("focusout", () => light(pinned));
  document.addEventListener("click", (event) => {
    const part = of(event);
    if (event.target.closest("a, button, summary, input, select, textarea")) return;
    pinned = part && part !== pinned && part.matches("mark, li") ? part : null;
    light(pinned);
    if (pinned) counterpart(pinned)?.scrollIntoView({ block: "center", behavior });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { pinned = null; light(null); }
  });
})();
