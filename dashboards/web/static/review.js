// Keyboard: p pass, f fail, s skip, u undo. The buttons do the same without JavaScript.
"use strict";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input, select, textarea, [contenteditable]")) return;
  const button = document.querySelector(`button[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!button || button.disabled) return;
  event.preventDefault();
  for (const other of document.querySelectorAll("button[data-key]")) {
    if (other !== button) other.disabled = true; // one label for one answer
  }
  button.click();
});
