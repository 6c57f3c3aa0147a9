// The steps tick by themselves: the parts that say what was seen are fetched again every two seconds.
"use strict";

{
  const EVERY_MS = 2000;

  const look = async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html", prefer: "wait" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-fresh]")) {
      const fresh = page.getElementById(part.id);
      if (fresh && !part.isEqualNode(fresh) && !part.contains(document.activeElement)) {
        part.replaceWith(document.importNode(fresh, true));
      }
    }
  };

  const again = () => setTimeout(() => look().catch(() => {}).finally(again), EVERY_MS);
  again();
}
