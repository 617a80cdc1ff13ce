// The page works without this: it shows times in the zone of the browser, copies code and begins at the latest entry.
"use strict";

const today = new Date().toDateString();
for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.dateTime);
  if (Number.isNaN(at.getTime())) continue;
  const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  time.textContent = at.toDateString() === today ? clock : `${at.toLocaleDateString()} ${clock}`;
  time.title = at.toLocaleString();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-do]");
  if (button?.dataset.do !== "copy-code") return;
  await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => button.setAttribute("aria-label", "Copy code"), 2000);
});

const conversation = document.getElementById("conversation");
if (conversation && !location.hash) conversation.scrollTop = conversation.scrollHeight;
