"use strict";
// What every page does: copies commands, and turns wide tables into cards on a phone.
document.documentElement.classList.add("scripted");

async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");  // a page from a disk or a plain address has no clipboard
  area.value = text;
  area.setAttribute("readonly", "");
  area.style.position = "fixed";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("the browser does not allow it");
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const label = button.dataset.label ??= button.textContent;
  try {
    await copyText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy failed: select the text";
  }
  setTimeout(() => { button.textContent = label; }, 2000);
});

// Each cell of a table gets the heading of its column, which a phone shows beside the value.
function labelCells(root) {
  for (const table of root.querySelectorAll("table.cards")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of table.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, n) => { cell.dataset.label ??= heads[n] ?? ""; });
    }
  }
}
labelCells(document);
