// Asks again for what is still being read: `data-pending` names the parts of the page to replace, or "reload".
// The server answers when the view is read.
"use strict";

(() => {
  const TRIES = 20;
  const PAUSE_MS = 1500;

  async function look(left) {
    const part = document.querySelector("[data-pending]");
    if (!part || !left) return;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html", prefer: "wait" } });
      if (part.dataset.pending === "reload") { location.reload(); return; }
      if (answer.ok && !answer.redirected) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const id of part.dataset.pending.split(" ")) {
          const fresh = page.getElementById(id);
          if (fresh) document.getElementById(id)?.replaceWith(document.importNode(fresh, true));
        }
      }
    } catch { /* the next try may succeed */ }
    setTimeout(look, PAUSE_MS, left - 1);
  }

  setTimeout(look, document.querySelector("[data-pending=reload]") ? 0 : PAUSE_MS, TRIES);
})();
