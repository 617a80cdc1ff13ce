// The script of the page: puts HTML that the server sends into place, and sends what people do.
// Markup needs no script of its own: a button, form or field with `data-do` sends that action with its `data-` attributes and the
// fields of its form.
"use strict";

const $ = (id) => document.getElementById(id);
const root = document.documentElement;
const log = $("log"), view = $("conversation"), prompt = $("p");
const session = log?.dataset.session ?? null;
const store = (area, key, value) => {
  try {
    if (value === undefined) return area.getItem(key);
    if (value === null) area.removeItem(key); else area.setItem(key, value);
  } catch { /* Without storage, nothing is kept. */ }
  return null;
};
const MAX_ENTRIES = 500;

// Theme: that of the system, unless a person chose one.
const theme = store(localStorage, "theme");
if (theme) root.dataset.theme = theme;
function changeTheme() {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  store(localStorage, "theme", root.dataset.theme);
}

// Diffs unified or side by side, as a person chose.
const markLayout = (within) => {
  for (const button of within.querySelectorAll("[data-do=split]")) button.setAttribute("aria-pressed", root.dataset.diff === "split");
};
root.dataset.diff = store(localStorage, "diff") ?? "";
function changeLayout() {
  root.dataset.diff = root.dataset.diff ? "" : "split";
  store(localStorage, "diff", root.dataset.diff || null);
  markLayout(document);
}

// Times in the zone of the browser.
const today = new Date().toDateString();
// As the list, which the server renders.
const clockOf = (at) => at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
// When a session was active, as the server renders it in its own zone.
function whenOf(at) {
  const now = new Date(), dayOf = (time) => new Date(time.getFullYear(), time.getMonth(), time.getDate());
  const days = Math.round((dayOf(now) - dayOf(at)) / 86400000), seconds = Math.floor((now - at) / 1000);
  if (days <= 0) return seconds < 60 ? "now" : seconds < 3600 ? `${Math.floor(seconds / 60)}m` : `${Math.floor(seconds / 3600)}h`;
  if (days === 1) return clockOf(at);
  if (days < 7) return at.toLocaleDateString("en", { weekday: "short" });
  if (at.getFullYear() === now.getFullYear()) return `${at.getDate()} ${at.toLocaleDateString("en", { month: "short" })}`;
  return at.toLocaleDateString("sv");
}
function localTimes(within) {
  for (const time of within.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = at.toLocaleString();
    if (time.matches(".ago, .since, .left, .when")) continue;
    time.textContent = time.matches(".at") || at.toDateString() === today ? clockOf(at) : `${at.toLocaleDateString()} ${clockOf(at)}`;
  }
  count(within);
}
// Times that pass: how long ago a request was opened, how long a turn has been running, and how long a deletion can be undone.
function count(within) {
  for (const time of within.querySelectorAll("time.when")) time.textContent = whenOf(new Date(time.dateTime));
  for (const time of within.querySelectorAll("time.left")) {
    const seconds = Math.max(0, Math.ceil((new Date(time.dateTime) - Date.now()) / 1000));
    time.textContent = seconds === 1 ? "1 second" : `${seconds} seconds`;
  }
  for (const time of within.querySelectorAll("time.ago, time.since")) {
    const seconds = Math.max(0, Math.floor((Date.now() - new Date(time.dateTime)) / 1000));
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
    const two = (number) => String(number).padStart(2, "0");
    time.textContent = time.matches(".since") ? `${hours ? `${hours}:${two(minutes % 60)}` : minutes}:${two(seconds % 60)}`
      : seconds < 60 ? `${seconds} s ago` : hours < 1 ? `${minutes} min ago` : hours < 24 ? `${hours} h ago` : new Date(time.dateTime).toLocaleString();
  }
}
setInterval(() => { if (!lostAt && !document.hidden) count(document); }, 1000);

// The server renders the clients of a session once for all of them; each browser knows which one it is.
const listed = new Intl.ListFormat("en", { type: "conjunction" });
function markOwn(within) {
  for (const name of within.querySelectorAll("dt [data-browser]")) {
    if (name.dataset.browser !== root.dataset.browser) continue;
    name.textContent = "This browser";
    const row = name.parentElement;
    row.parentElement.prepend(row, row.nextElementSibling);
  }
  for (const also of within.querySelectorAll(".also")) {
    const names = [...also.children].map((place) => {
      if (place.dataset.browser !== root.dataset.browser) return place.textContent;
      const others = place.dataset.tabs - 1;
      return others < 1 ? null : others === 1 ? "another tab" : `${others} other tabs`;
    }).filter(Boolean);
    also.textContent = `Also shown in ${listed.format(names)}. `;
    also.hidden = !names.length;
  }
}

// Near the composer, or at the foot of a page without one.
function note(text, isError) {
  const box = $("note") ?? $("toast");
  box.replaceChildren();
  if (!text) return;
  const line = document.createElement("div");
  line.className = isError ? "note bad" : "note";
  const words = document.createElement("span");
  words.className = "grow";
  // Sentences of the server have commands in backticks.
  words.append(...text.split("`").map((part, index) => {
    if (index % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  }));
  const close = document.createElement("button");
  close.className = "btn quiet small";
  close.type = "button";
  close.textContent = "Close";
  close.onclick = () => note("");
  line.append(words, close);
  box.append(line);
}

let announcing;
function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("live").textContent = text; }, 100);
}

// ---- The connection ----

let socket = null, attempts = 0, retryTimer, watchdog, lostAt = null, retryAt = 0, isFirstConnection = true;

function send(message) {
  if (socket?.readyState === WebSocket.OPEN) { socket.send(JSON.stringify(message)); return true; }
  return false;
}
// Sends what a person does now, or says that it was not sent.
function sendNow(message) {
  const isSent = send(message);
  if (!isSent) note("The page is not connected; nothing was sent.", true);
  return isSent;
}

async function connect() {
  clearTimeout(retryTimer);
  if (socket && socket.readyState < WebSocket.CLOSING) return;
  try {
    const response = await fetch("/ticket", { method: "POST" });
    if (response.status === 401) { location.reload(); return; }
    if (!response.ok) throw new Error(String(response.status));
    const address = `${location.origin.replace(/^http/, "ws")}/live?ticket=${await response.text()}`;
    const opened = socket = new WebSocket(address);
    opened.onopen = onOpen;
    opened.onmessage = (event) => { if (opened === socket) onMessage(event.data); };
    opened.onclose = () => { if (opened === socket) onLost(); };
  } catch { onLost(); }
}

function onOpen() {
  attempts = 0;
  lostAt = null;
  $("offline").hidden = true;
  document.body.classList.remove("offline");
  $("connection").textContent = "Connected";
  beat();
  const revision = log ? Number(log.dataset.revision) : null;
  send({ do: "show", session, epoch: log?.dataset.epoch ?? null, revision });
  resend(isFirstConnection);
  if (session && !document.hidden) send({ do: "seen" });
  // A person who has read on meanwhile is not taken back.
  if (isFirstConnection && log && location.hash && !$(hashId())) findTarget();
  isFirstConnection = false;
  document.dispatchEvent(new CustomEvent("connected"));
}

function beat() {
  clearTimeout(watchdog);
  watchdog = setTimeout(() => { socket?.close(); onLost(); }, 45000);
}

function onLost() {
  socket = null;
  wantsLatest = false;
  clearTimeout(watchdog);
  lostAt ??= new Date();
  awaited = place = null;
  enableForms();
  const pause = [300, 500, 1000, 2000, 4000, 8000][Math.min(attempts, 5)];
  attempts += 1;
  retryAt = Date.now() + pause;
  retryTimer = setTimeout(connect, pause);
  setTimeout(showOffline, 600);
}

function showOffline() {
  if (!lostAt) return;
  $("offline").hidden = false;
  document.body.classList.add("offline");
  const left = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  const since = clockOf(lostAt);
  $("connection").textContent = `Offline since ${since}`;
  const badge = document.querySelector(".as-of");
  if (badge) badge.textContent = `as of ${since}`;
  $("offline-when").textContent = left > 0 ? `Trying again in ${left} s.` : "Connecting.";
  setTimeout(showOffline, 1000);
}

addEventListener("online", connect);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  if (!socket) connect(); else if (session) send({ do: "seen" });
});

// ---- Patches ----

function onMessage(data) {
  beat();
  const message = JSON.parse(data);
  if (!message.patch) return;
  const isAtEnd = log && following();
  for (const patch of message.patch) {
    const [kind] = Object.keys(patch);
    patches[kind]?.(patch[kind]);
  }
  if (log && message.revision !== undefined) log.dataset.revision = message.revision;
  if (isAtEnd) { trimTop(); toEnd(); }
  updateLatest();
}

function elements(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  localTimes(template.content);
  markLayout(template.content);
  markOwn(template.content);
  for (const one of template.content.querySelectorAll(".entry")) decorate(one);
  return template.content;
}

// The element that stands for another one after `old` is replaced by `fresh`: the one at the same place among those that a selector
// matches, within the nearest part that has an id. Another card of the inbox does not take the place of the one that a person uses.
function counterpart(element, selector, old, fresh) {
  const parent = element === old ? null : element.parentElement.closest("[id]");
  const isWhole = !parent || parent === old || !old.contains(parent);
  const within = isWhole ? fresh : fresh.querySelector(`#${CSS.escape(parent.id)}`);
  const of = (whole) => [...(whole.matches(selector) ? [whole] : []), ...whole.querySelectorAll(selector)];
  return within ? of(within)[of(isWhole ? old : parent).indexOf(element)] ?? null : null;
}
// Replaces an element, and keeps which parts of it are open, the focus and the scroll positions.
function swap(old, fresh) {
  if (!fresh) { old.remove(); return; }
  releaseTools(old);
  const open = [...old.querySelectorAll("details")].map((details) => details.open);
  const before = old.matches("details") ? [old.open, ...open] : open;
  const after = [...(fresh.matches("details") ? [fresh] : []), ...fresh.querySelectorAll("details")];
  if (old.matches(".call")) {
    // A call that fails opens, unless a person has opened or closed it.
    after.forEach((details, index) => { if (index < before.length) details.open = before[index] || (details.open && !old.dataset.toggled); });
    if (old.dataset.toggled) fresh.dataset.toggled = "1";
  } else if (before.length === after.length) after.forEach((details, index) => { details.open = before[index]; });
  const scrolls = ["", ".scroll", ".term", ".diffbox", "pre"].flatMap((selector) => {
    const of = (element) => selector ? [...element.querySelectorAll(selector)] : [element];
    return of(old).map((element, index) => [selector, index, element.scrollTop, element.scrollLeft]);
  }).filter(([, , top, left]) => top || left);
  const active = old.contains(document.activeElement) ? document.activeElement : null;
  const path = active && (active.id ? `#${CSS.escape(active.id)}` : active.getAttribute("href") ? `[href="${CSS.escape(active.getAttribute("href"))}"]`
    : active.dataset.do ? `[data-do="${active.dataset.do}"]` : active.tagName.toLowerCase());
  const focused = active && counterpart(active, path, old, fresh);
  for (const field of old.querySelectorAll("input[name], textarea[name], select[name]")) {
    const same = counterpart(field, `[name="${CSS.escape(field.name)}"]${field.type === "radio" || field.type === "checkbox" ? `[value="${CSS.escape(field.value)}"]` : ""}`, old, fresh);
    if (!same) continue;
    if (field.type === "radio" || field.type === "checkbox") same.checked = field.checked;
    else if (field.type !== "file") same.value = field.value;
  }
  for (const attribute of ["data-page", "data-before", "tabindex"]) {
    if (old.hasAttribute(attribute)) fresh.setAttribute(attribute, old.getAttribute(attribute));
  }
  old.replaceWith(fresh);
  if (old === selected) select(fresh, false);
  for (const [selector, index, top, left] of scrolls) {
    const element = selector ? fresh.querySelectorAll(selector)[index] : fresh;
    element?.scrollTo({ top, left });
  }
  focused?.focus({ preventScroll: true });
}

// Replaces only the parts that differ: an open list of models stays open while the use of the context changes.
function replaceParts(old, fresh) {
  const rest = [...old.children];
  for (const part of [...fresh.children]) {
    const same = rest.findIndex((one) => one.isEqualNode(part));
    if (same < 0) { old.insertBefore(part, rest[0] ?? null); continue; }
    for (const gone of rest.splice(0, same)) gone.remove();
    rest.shift();
  }
  for (const gone of rest) gone.remove();
}

const patches = {
  put({ id, after, html }) {
    const old = $(id);
    if (old) { swap(old, elements(html).firstElementChild); return; }
    if (below.length) return;
    const previous = after === null ? null : $(after);
    const content = elements(html);
    if (previous) previous.after(content);
    else if (after === null && !log.firstElementChild) log.append(content);
    else if (after === null) log.prepend(content);
  },
  blocks({ id, from, html }) {
    const parent = $(id);
    if (!parent) return;
    // With the white space between the blocks, which would pile up.
    const last = from ? parent.children[from - 1] : null;
    while (parent.lastChild && parent.lastChild !== last) parent.lastChild.remove();
    parent.append(elements(html));
  },
  remove({ id }) { const old = $(id); if (old) removeEntry(old); },
  replace({ id, html }) {
    const old = $(id);
    if (!old) return;
    // What is the same stays: somebody may be about to click it.
    const fresh = elements(html).firstElementChild;
    if (fresh) markCurrent(fresh);
    if (fresh && id === "inbox") keepCard(old, fresh);
    count(old);
    if (fresh?.isEqualNode(old)) return;
    if (id === "request") { replaceRequest(old, fresh); return; }
    if (id === "composer-bar") { replaceParts(old, fresh); return; }
    swap(old, fresh);
    if (id === "head") onHead();
    else if (id === "inbox") { readRest(); restoreDrafts(); }
    else markCurrent();
  },
  // The latest entries: those that are shown already stay, and the others are replaced.
  tail({ epoch, html, before }) {
    log.dataset.epoch = epoch;
    const fresh = [...elements(html).children];
    const known = fresh.findIndex((element) => $(element.id));
    // The cursor of an entry that the tab has is unknown to a feed that does not have the entry.
    const isStale = known > -1 && $(fresh[known].id).previousElementSibling && log.dataset.before?.startsWith("e:");
    if (known < 0 || below.length || isStale) {
      // A connection that was lost does not take a person away from what is read. If the latest entries do not have that, its page is
      // requested, because the cursors of the pages around it may be unknown by now.
      const read = wantsLatest || following() ? null : placeOfReader();
      const isLatest = fresh.some((element) => element.id === read?.id);
      if (read && !isLatest && find(read.id)) {
        place = read;
        // What is shown misses entries, also if that page never arrives.
        below = [""];
        return;
      }
      wantsLatest = false;
      awaited = place = null;
      releaseTools(log);
      log.replaceChildren(...fresh);
      below = [];
      setBefore(before);
      mark(fresh[0], "", before);
      if (isLatest) returnTo(read); else toEnd();
      return;
    }
    const first = $(fresh[known].id);
    const isFirst = !first.previousElementSibling;
    const old = new Map();
    for (let element = first; element; element = element.nextElementSibling) old.set(element.id, element);
    let last = first.previousElementSibling;
    for (const element of fresh.slice(isFirst ? 0 : known)) {
      const same = old.get(element.id);
      old.delete(element.id);
      if (same) {
        swap(same, element);
        last = element;
      } else {
        if (last) last.after(element); else log.prepend(element);
        last = element;
      }
    }
    for (const element of old.values()) removeEntry(element);
    if (isFirst) { setBefore(before); mark(log.firstElementChild, "", before); }
  },
  page({ key, html, before, is_last: isLast, below: under }) { onPage(key, html, before, isLast, under); },
  announce,
  no_page({ key, text }) {
    const isAwaited = awaited === key, read = place;
    if (isAwaited) awaited = place = null;
    // The entry that a person reads is gone: nothing that is shown can be continued.
    if (isAwaited && read) showLatest(); else { note(text, true); announce(text); }
  },
  error(text) { note(text, true); announce(text); enableForms(); },
  note(text) { note(text, false); announce(text); },
  go(address) {
    // What was written has become a session.
    for (const form of document.querySelectorAll("form.start, .edit-form")) drafts(draftKeyOf(form), null);
    if (address.startsWith("/") && !address.startsWith("//")) location.assign(address);
  },
  sent({ key }) { outbox(outbox().filter((one) => one.key !== key)); forgetFiles(key); },
  unsent({ key }) {
    const one = outbox().find((sent) => sent.key === key);
    outbox(outbox().filter((sent) => sent.key !== key));
    if (one && prompt) { prompt.value = [one.text, prompt.value].filter(Boolean).join("\n\n"); keepDraft(); }
    attached.push(...files.get(key) ?? []);
    forgetFiles(key);
    showAttached();
  },
  source({ message, to, text, files: names }) {
    if (to === "copy") copy(text, "Message copied"); else openEditor(message, text, names);
  },
  new_error(text) { const box = $("new-error"); if (box) { box.textContent = text; enableForms(); } },
  notice({ tag, title, text, address }) {
    if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted" || !store(localStorage, "notify")) return;
    const shown = new Notification(title, { body: text, tag });
    shown.onclick = () => { focus(); location.assign(address); };
  },
  completions: ({ word, items }) => showCompletions(word, items),
};

// The keys act on the card that a person reads, which the server does not know: it marks the first one.
function keepCard(old, fresh) {
  const current = old.querySelector(".item.cur")?.id, items = [...fresh.querySelectorAll(".item")];
  if (items.some(({ id }) => id === current)) for (const item of items) item.classList.toggle("cur", item.id === current);
}

// The list is the same for all tabs.
function markCurrent(within = document) {
  const links = [...within.querySelectorAll(".sess"), ...(within.matches?.(".sess") ? [within] : [])];
  for (const link of links) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// ---- Entries: the end, older ones, and how many there are ----

// The newest edit and the newest command are open when a session is opened.
function openNewest() {
  for (const content of [".diff", ".term"]) [...log.querySelectorAll(`.call > .tool:not([data-s=you]):has(${content})`)].at(-1)?.setAttribute("open", "");
}

// The key of the page that was requested: another one is of no use by now.
let awaited = null;
// The keys of pages that are not shown below those that are, the next one last.
let below = [];

// A person wants to see the latest entries.
let wantsLatest = false;
function showLatest() {
  awaited = place = null;
  if (sendNow({ do: "latest" })) wantsLatest = true;
}
// The entry that a person reads, and where it is in the view, while its page is requested again.
let place = null;
function placeOfReader() {
  const top = view.getBoundingClientRect().top;
  const entry = [...log.children].find((one) => /^[mt]-/.test(one.id) && one.getBoundingClientRect().bottom > top);
  return entry ? { id: entry.id, top: entry.getBoundingClientRect().top } : null;
}
function returnTo({ id, top }) {
  view.scrollTop += $(id).getBoundingClientRect().top - top;
  requestAnimationFrame(onScroll);
}

const following = () => !view || (below.length === 0 && view.scrollHeight - view.scrollTop - view.clientHeight < 48);
function toEnd() { if (view) view.scrollTop = view.scrollHeight; }
function updateLatest() {
  const latest = document.querySelector(".latest");
  if (latest) latest.hidden = following();
}
function setBefore(before) { if (before) log.dataset.before = before; else delete log.dataset.before; }
function mark(element, key, before) {
  if (!element) return;
  element.dataset.page = key;
  if (before) element.dataset.before = before; else delete element.dataset.before;
}

function onScroll() {
  updateLatest();
  if (awaited !== null || !socket) return;
  const older = (key) => { if (send({ do: "older", before: key })) awaited = key; };
  if (view.scrollTop < 1200 && log.dataset.before) {
    older(log.dataset.before);
  } else if (below.length && view.scrollHeight - view.scrollTop - view.clientHeight < 1200) {
    const after = log.lastElementChild?.id ?? "";
    if (below.at(-1)) older(below.at(-1)); else if (send({ do: "newer", after })) awaited = `after:${after}`;
  }
}

function onPage(key, html, before, isLast, under) {
  if (awaited !== (under ? "find" : key)) return;
  awaited = null;
  if (under) { // A page that has a message which was searched for.
    releaseTools(log);
    const fresh = [...elements(html).children];
    log.replaceChildren(...fresh);
    mark(fresh[0], key, before);
    setBefore(before);
    // The first of them is the one next to the latest entries.
    below = ["", ...under];
    const read = place;
    place = null;
    if (read && $(read.id)) { returnTo(read); return; }
    document.dispatchEvent(new CustomEvent("target"));
    return;
  }
  const fresh = [...elements(html).children].filter((element) => !$(element.id));
  if (key === log.dataset.before) {
    const fromEnd = view.scrollHeight - view.scrollTop;
    log.prepend(...fresh);
    mark(fresh[0], key, before);
    setBefore(before);
    view.scrollTop = view.scrollHeight - fromEnd;
    trimBottom();
  } else if (below.length) {
    below.pop();
    log.append(...fresh);
    mark(fresh[0], key.startsWith("after:") ? "" : key, before);
    if (key.startsWith("after:") && !isLast) below.push("");
    const fromEnd = view.scrollHeight - view.scrollTop;
    trimTop();
    view.scrollTop = view.scrollHeight - fromEnd;
  }
  // No scroll event asks for the next page if this one has nothing new, or if a person has moved back to the same place before the
  // browser paints: it compares the places of two frames only.
  requestAnimationFrame(onScroll);
}

// Removes whole pages at the end while there are too many entries.
function trimBottom() {
  while (log.children.length > MAX_ENTRIES) {
    const pages = log.querySelectorAll(":scope > [data-page]");
    if (pages.length < 2) return;
    const last = pages[pages.length - 1];
    while (last.nextElementSibling) removeEntry(last.nextElementSibling);
    below.push(last.dataset.page);
    removeEntry(last);
  }
}

function trimTop() {
  if (!log || log.children.length <= MAX_ENTRIES + 100) return;
  while (log.children.length > MAX_ENTRIES) {
    const pages = log.querySelectorAll(":scope > [data-page]");
    if (pages.length > 1) {
      while (log.firstElementChild !== pages[1]) removeEntry(log.firstElementChild);
      setBefore(pages[1].dataset.before);
    } else {
      removeEntry(log.firstElementChild);
      mark(log.firstElementChild, "", `e:${log.firstElementChild.id}`);
      setBefore(`e:${log.firstElementChild.id}`);
    }
  }
}

const hashId = () => location.hash.slice(1);
function find(id) {
  if (!send({ do: "find", message: id })) return false;
  awaited = "find";
  return true;
}
function findTarget() { find(hashId()); }
function showTarget() {
  const target = $(hashId());
  if (!target) return false;
  for (let parent = target; parent; parent = parent.parentElement?.closest("details")) if (parent.tagName === "DETAILS") parent.open = true;
  target.querySelector("details")?.setAttribute("open", "");
  target.scrollIntoView({ block: "start" });
  target.classList.add("at");
  setTimeout(() => target.classList.remove("at"), 3000);
  select(target, false);
  return true;
}
document.addEventListener("target", showTarget);
addEventListener("hashchange", () => { if (log && location.hash && !showTarget()) findTarget(); });

// ---- The composer ----

const draftKey = `draft:${session}`, outKey = `out:${session}`;
// The field that takes files: the composer, or the first prompt of a new session.
const field = prompt ?? $("fp");
const attached = [];
const files = new Map();

function outbox(list) {
  if (list) { store(localStorage, outKey, list.length ? JSON.stringify(list) : null); return list; }
  try { return JSON.parse(store(localStorage, outKey) ?? "[]"); } catch { return []; }
}
function keepDraft() { store(localStorage, draftKey, prompt.value || null); grow(); }
function grow() {
  if (CSS.supports("field-sizing", "content")) return;
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}
// The files of a prompt are kept until the server has it. The storage of the outbox is too small for them.
function keptFiles(mode, run) {
  return new Promise((done) => {
    try {
      const opening = indexedDB.open("parlor", 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("files");
      opening.onerror = () => done(undefined);
      opening.onsuccess = () => {
        const transaction = opening.result.transaction("files", mode), request = run(transaction.objectStore("files"));
        transaction.oncomplete = transaction.onabort = () => { opening.result.close(); done(request.result); };
      };
    } catch { done(undefined); }
  });
}
const filesOf = async (key) => files.get(key) ?? await keptFiles("readonly", (kept) => kept.get(key)) ?? [];
function forgetFiles(key) { if (files.delete(key)) keptFiles("readwrite", (kept) => kept.delete(key)); }
async function resend(isFirst) {
  if (!prompt) return;
  for (const { key, text, now, fileCount = 0, tab } of outbox()) {
    const own = fileCount ? await filesOf(key) : [];
    // The server has accepted the prompt meanwhile.
    if (!outbox().some((one) => one.key === key)) continue;
    if (own.length === fileCount) {
      files.set(key, own);
      send({ do: "prompt", key, text, now, files: own });
    } else if (isFirst || tab === tabId) {
      // Another tab may be about to keep the files of its prompt.
      patches.unsent({ key });
      note("The files of a prompt that was not sent are lost.", true);
    }
  }
}

const newKey = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
const tabId = newKey();
function submitPrompt(now = false) {
  const text = prompt.value;
  if (!text.trim() && !attached.length) return;
  const key = newKey();
  const own = attached.splice(0);
  if (own.length) { files.set(key, own); keptFiles("readwrite", (kept) => kept.put(own, key)); }
  outbox([...outbox(), { key, text, now, fileCount: own.length, tab: tabId }]);
  prompt.value = "";
  keepDraft();
  showAttached();
  hideCompletions();
  note("");
  if (!send({ do: "prompt", key, text, now, files: own })) note("This is sent when the page is connected again.");
  toEnd();
}

function showAttached() {
  const box = $("attached");
  box?.replaceChildren(...attached.map((file, index) => chipOf(file.name, () => { attached.splice(index, 1); showAttached(); field.focus(); })));
}
function chipOf(name, onRemove) {
  const chip = document.createElement("span");
  chip.className = "chip";
  chip.textContent = name;
  const remove = document.createElement("button");
  remove.className = "btn quiet small";
  remove.type = "button";
  remove.textContent = "Remove";
  remove.setAttribute("aria-label", `Remove ${name}`);
  remove.onclick = onRemove;
  chip.append(remove);
  return chip;
}

async function attach(list) {
  // The list of a field is emptied meanwhile.
  for (const file of [...list]) {
    const total = attached.reduce((sum, one) => sum + one.data.length, 0);
    if (attached.length >= 20 || total + file.size * 1.4 > 20e6) { note("Attached files can have 15 MB in all, and there can be 20.", true); break; }
    const data = await new Promise((done, failed) => {
      const reader = new FileReader();
      reader.onload = () => done(String(reader.result).replace(/^[^,]*,/, ""));
      reader.onerror = failed;
      reader.readAsDataURL(file);
    }).catch(() => null);
    if (data === null) note(`${file.name} cannot be read.`, true);
    else attached.push({ name: file.name || "pasted", type: file.type, data });
  }
  showAttached();
}

// Commands after `/` at the beginning, files after `@`.
let completing = null, completeTimer;
function wordAtCaret() {
  const before = prompt.value.slice(0, prompt.selectionStart);
  return /^\/[^\s/]*$/.exec(before)?.[0] ?? /(?:^|\s)(@[^\s]*)$/.exec(before)?.[1] ?? null;
}
function requestCompletions() {
  clearTimeout(completeTimer);
  const word = wordAtCaret();
  if (!word) { hideCompletions(); return; }
  completeTimer = setTimeout(() => send({ do: "complete", word }), 60);
}
function showCompletions(word, items) {
  if (word !== wordAtCaret() || !items.length || document.activeElement !== prompt) { hideCompletions(); return; }
  completing = { word, items, at: 0 };
  const list = $("completions");
  list.hidden = false;
  list.replaceChildren(...items.map((item, index) => {
    const row = document.createElement("li");
    row.id = `completion-${index}`;
    row.setAttribute("role", "option");
    const text = document.createElement("code");
    text.textContent = item.text;
    const about = document.createElement("span");
    about.className = "muted cut";
    about.textContent = item.about;
    row.append(text, about);
    row.onmousedown = (event) => { event.preventDefault(); complete(index); };
    return row;
  }));
  moveCompletion(0);
}
function moveCompletion(by) {
  completing.at = (completing.at + by + completing.items.length) % completing.items.length;
  [...$("completions").children].forEach((row, index) => row.setAttribute("aria-selected", index === completing.at));
  prompt.setAttribute("aria-activedescendant", `completion-${completing.at}`);
  $(`completion-${completing.at}`).scrollIntoView({ block: "nearest" });
}
function complete(index) {
  const { word, items } = completing;
  const start = prompt.selectionStart - word.length;
  prompt.setRangeText(`${items[index].text} `, start, prompt.selectionStart, "end");
  hideCompletions();
  keepDraft();
}
function hideCompletions() {
  completing = null;
  if (!prompt) return;
  $("completions").hidden = true;
  prompt.removeAttribute("aria-activedescendant");
}

// What a person writes elsewhere is kept for the tab: the first prompt of a session, an edited message, the values of a form.
const drafts = (key, value) => {
  const kept = store(sessionStorage, key, value === undefined ? undefined : value && JSON.stringify(value));
  try { return JSON.parse(kept); } catch { return null; }
};
function draftKeyOf(form) {
  if (form?.matches(".start")) return "draft:new";
  if (form?.matches(".edit-form")) return `draft:edit:${session}:${form.dataset.message}`;
  return form?.matches(".req") ? `draft:form:${requestName(form)}` : null;
}
function restoreDraft(form) {
  const key = draftKeyOf(form), draft = form.dataset.restored ? null : drafts(key);
  form.dataset.restored = "1";
  if (!draft) return;
  for (const field of form.elements) {
    if (!field.name || ["file", "hidden"].includes(field.type)) continue;
    const values = [draft[field.name] ?? []].flat();
    if (field.type === "radio" || field.type === "checkbox") field.checked = values.includes(field.value);
    else if (values.length) field.value = values[0];
  }
}
const restoreDrafts = () => { for (const form of document.querySelectorAll("form.req, form.start")) restoreDraft(form); };
document.addEventListener("input", (event) => {
  const form = event.target.form, key = draftKeyOf(form);
  // A secret is kept nowhere.
  const secrets = key ? [...form.querySelectorAll("[type=password]")].map(({ name }) => [name, undefined]) : [];
  if (key) drafts(key, { ...fieldsOf(form), ...Object.fromEntries(secrets) });
});

if (prompt) {
  prompt.value = store(localStorage, draftKey) ?? "";
  grow();
  prompt.addEventListener("input", () => { keepDraft(); requestCompletions(); });
  prompt.addEventListener("blur", () => { hideCompletions(); setTimeout(placeRequest, 300); });
  prompt.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (completing) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); moveCompletion(step); return; }
      if (event.key === "Tab" || event.key === "Enter") { event.preventDefault(); complete(completing.at); return; }
      if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); hideCompletions(); return; }
    }
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      submitPrompt(event.ctrlKey && Boolean(document.querySelector("[data-do=send_now]")));
    }
  });
  addEventListener("storage", (event) => {
    if (event.key === draftKey && document.activeElement !== prompt) { prompt.value = event.newValue ?? ""; grow(); }
  });
}

if (field) {
  field.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) { event.preventDefault(); attach(event.clipboardData.files); }
  });
  $("files").addEventListener("change", (event) => { attach(event.target.files); event.target.value = ""; });
  const main = $("main");
  main.addEventListener("dragover", (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); });
  main.addEventListener("drop", (event) => {
    if (event.dataTransfer?.files.length) { event.preventDefault(); attach(event.dataTransfer.files); field.focus(); }
  });
}

// ---- Requests ----

let requestSince = 0;
const requestName = (card) => card ? `${card.dataset.request} ${card.dataset.opened ?? ""}` : "";
function replaceRequest(old, fresh) {
  const before = requestName(old.querySelector(".req"));
  swap(old, fresh);
  const card = $("request").querySelector(".req");
  if (card && requestName(card) !== before) requestSince = performance.now();
  placeRequest();
}
// A request takes the place of the composer, but not of one in which a person writes.
function placeRequest() {
  restoreDrafts();
  const card = $("request")?.querySelector(".req"), composer = $("composer");
  if (composer) composer.hidden = Boolean(card) && !composer.contains(document.activeElement);
  readRest();
}
// Content is hidden or shown without a scroll as well: by the size of the window, in details that open, with diffs side by side.
const watchedSizes = new WeakSet(), cardSizes = new ResizeObserver(() => readRest());
function readRest() {
  for (const rest of document.querySelectorAll(".rest[data-end]")) {
    const box = rest.parentElement;
    for (const part of [box, ...box.children]) {
      if (part === rest || watchedSizes.has(part)) continue;
      watchedSizes.add(part);
      cardSizes.observe(part);
    }
    rest.textContent = box.scrollHeight - box.scrollTop - box.clientHeight < 4 ? rest.dataset.end : "More below";
  }
}
document.addEventListener("scroll", (event) => { if (event.target.querySelector?.(":scope > .rest")) readRest(); }, { capture: true, passive: true });
function toRequest() {
  const card = $("request")?.querySelector(".req");
  if (card) card.querySelector(".opts .btn").focus(); else if ($("request")?.firstElementChild) location.assign("/inbox");
}

function onHead() {
  const title = $("title")?.textContent;
  if (title) document.title = `${title} · parlor`;
  const before = root.dataset.state;
  root.dataset.state = $("head")?.dataset.state ?? "";
  markDetails();
  // A turn that ends before a person's eyes is not unread.
  if (before && before !== root.dataset.state && !document.hidden) send({ do: "seen" });
}

// ---- Messages: selection and actions ----

let selected = null;
function decorate(entry) {
  const who = entry.querySelector(":scope > .who");
  if (who && !who.querySelector(".more") && $("more")) who.append($("more").content.cloneNode(true));
}
const actionable = (element) => element?.closest("#log > .user, #log > .agent");
function select(entry, focus = true) {
  selected?.classList.remove("cur");
  selected = entry;
  if (!entry) return;
  entry.classList.add("cur");
  if (focus) {
    entry.tabIndex = -1;
    entry.focus({ preventScroll: true });
    entry.scrollIntoView({ block: "nearest" });
  }
  showTools(entry);
}
// The actions are one element that is moved to the message they are for.
function showTools(entry) {
  const tools = $("acts"), message = actionable(entry);
  if (!tools || !message || tools.parentElement === message) return;
  message.append(tools);
  tools.hidden = false;
}
function releaseTools(element) {
  for (const id of ["acts", "message-menu"]) {
    const tools = $(id);
    if (tools && element.contains(tools)) { tools.hidden = true; view.after(tools); }
  }
}
function removeEntry(entry) { releaseTools(entry); entry.remove(); }
function closeMenus() {
  const menu = $("message-menu");
  let closed = false;
  if (menu && !menu.hidden) { menu.hidden = true; closed = true; }
  for (const open of document.querySelectorAll("details.drop[open]")) { open.open = false; closed = true; }
  return closed;
}
const promptOf = (entry) => {
  for (let one = entry; one; one = one.previousElementSibling) if (one.matches(".user")) return one;
  return null;
};
function act(name, entry, button) {
  // A page that may not do something has no button for it.
  if (!entry || !document.querySelector(`#acts [data-act="${name}"]`)) return;
  const menu = $("message-menu");
  if (name === "menu") {
    entry.append(menu);
    menu.hidden = !menu.hidden;
    menu.classList.remove("up");
    if (!menu.hidden) {
      menu.classList.toggle("up", menu.getBoundingClientRect().bottom > view.getBoundingClientRect().bottom);
      menu.querySelector("button").focus();
    }
    return;
  }
  if (menu && !menu.hidden) { menu.hidden = true; entry.focus({ preventScroll: true }); }
  if (name === "copy") sendNow({ do: "source", message: entry.id, to: "copy" });
  else if (name === "link") copy(`${location.origin}${location.pathname}#${entry.id}`, "Link copied");
  else if (name === "fork") sendNow({ do: "fork", message: entry.id, ...(button?.dataset.agent ? { agent: button.dataset.agent } : {}) });
  else {
    const own = promptOf(entry);
    if (!own) { note("The prompt of this message is not shown: scroll up to it.", true); return; }
    if (name === "regenerate") sendNow({ do: "regenerate", message: own.id });
    else if (name === "edit") sendNow({ do: "source", message: own.id, to: "edit" });
  }
}
function openEditor(id, text, names) {
  const entry = $(id);
  if (!entry || entry.querySelector(".edit-form")) return;
  entry.append($("edit-form").content.cloneNode(true));
  const form = entry.querySelector(".edit-form");
  form.dataset.message = id;
  entry.classList.add("edit");
  const field = form.querySelector("textarea");
  field.value = text;
  const dropped = [drafts(draftKeyOf(form))?.dropped ?? []].flat();
  const markOf = (index) => Object.assign(document.createElement("input"), { type: "hidden", name: "dropped", value: index });
  // What is attached stays, unless a person removes it.
  form.querySelector(".chips").replaceChildren(...names.map((name, index) => {
    if (dropped.includes(String(index))) return markOf(index);
    const chip = chipOf(name, () => {
      chip.replaceWith(markOf(index));
      // The draft has it as well.
      field.dispatchEvent(new Event("input", { bubbles: true }));
      field.focus();
    });
    return chip;
  }));
  restoreDraft(form);
  field.focus();
  entry.scrollIntoView({ block: "nearest" });
}
function closeEditor(form) {
  drafts(draftKeyOf(form), null);
  const entry = form.closest(".entry");
  form.remove();
  entry?.classList.remove("edit");
  entry?.focus();
}

async function copy(text, done) {
  try { await navigator.clipboard.writeText(text); } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "sr";
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  note(done);
  announce(done);
  setTimeout(() => { if (($("note") ?? $("toast")).textContent.startsWith(done)) note(""); }, 2500);
}

// ---- What people do ----

const local = {
  theme: changeTheme,
  split: changeLayout,
  connect,
  // A page that was requested before would take the view away from the end.
  to_end() { if (below.length) showLatest(); else { awaited = place = null; toEnd(); } },
  details() {
    closeMenus();
    root.dataset.details = isDetailsOpen() ? "closed" : "open";
    markDetails();
  },
  attach() { $("files").click(); },
  "copy-code"(button) { copy(button.closest(".part, .code")?.querySelector("pre")?.textContent ?? "", "Copied"); },
  "copy-text"(button) { closeMenus(); copy(button.dataset.text, "Copied"); },
  "cancel-edit"(button) { closeEditor(button.closest("form")); },
  prompt: () => submitPrompt(),
  send_now: () => submitPrompt(true),
};
const isDetailsOpen = () => {
  const aside = $("details");
  return Boolean(aside) && getComputedStyle(aside).display !== "none";
};
function markDetails() {
  for (const button of document.querySelectorAll("[aria-controls=details]")) button.setAttribute("aria-expanded", isDetailsOpen());
}

function fieldsOf(form) {
  const fields = {};
  for (const [name, value] of new FormData(form)) {
    if (typeof value !== "string") continue;
    if (name in fields) fields[name] = [fields[name], value].flat(); else fields[name] = value;
  }
  return fields;
}
function perform(element, more = {}) {
  const name = element.dataset.do;
  if (local[name]) { local[name](element); return; }
  const card = element.closest("#request .req");
  // A request that has just appeared takes no answer: it may be under a finger that wanted something else.
  if (card && performance.now() - requestSince < 500) return;
  const form = element.matches("form") ? element : null;
  const own = form?.matches(".start") ? { files: attached } : {};
  if (!sendNow({ ...element.dataset, ...(form ? fieldsOf(form) : {}), ...own, ...more })) return;
  closeMenus();
  if (form?.matches(".edit-form, .start")) form.querySelector(".btn.main").disabled = true;
}

// A form that is sent takes no second click, until the page has a reason for one.
function enableForms() { for (const button of document.querySelectorAll("form .btn.main:disabled")) button.disabled = false; }

document.addEventListener("click", (event) => {
  const act_ = event.target.closest("[data-act]");
  if (act_) { event.preventDefault(); act(act_.dataset.act, actionable(act_), act_); return; }
  const element = event.target.closest("[data-do]");
  if (element && !element.matches("form, select, input")) { event.preventDefault(); perform(element); return; }
  if (!event.target.closest(".drop, #message-menu")) closeMenus();
  const summary = event.target.closest(".call summary");
  if (summary) summary.closest(".call").dataset.toggled = "1";
});
document.addEventListener("submit", (event) => {
  if (!event.target.dataset.do) return;
  event.preventDefault();
  perform(event.target);
});
document.addEventListener("change", (event) => {
  const field = event.target.closest("select[data-do], input[data-do]");
  if (field) perform(field, { value: field.type === "checkbox" ? String(field.checked) : field.value });
});
document.addEventListener("toggle", (event) => {
  if (event.target.id === "session-menu" && event.target.open && $("new-title")) {
    $("new-title").value = $("title").textContent;
  }
}, true);

// ---- Keys: letters act outside of text fields only ----

const messages = () => [...log.querySelectorAll(":scope > .entry")];
function move(by) {
  const all = messages();
  if (!all.length) return;
  const visible = all.findIndex((entry) => entry.getBoundingClientRect().bottom > view.getBoundingClientRect().top + 8);
  const at = selected?.isConnected ? all.indexOf(selected) + by : by > 0 ? Math.max(visible, 0) : all.length - 1;
  select(all[Math.min(Math.max(at, 0), all.length - 1)]);
}
function moveSession(by) {
  const all = [...document.querySelectorAll("#sessions a.sess, .side a.sess")];
  const at = all.findIndex((link) => link.getAttribute("aria-current") === "page");
  all[at + by]?.click();
}
const keys = {
  "/": () => $("q")?.focus(),
  i: () => location.assign("/inbox"),
  c: () => location.assign("/new"),
  "?": () => location.assign("/keys"),
  "[": () => moveSession(-1),
  "]": () => moveSession(1),
  d: () => $("details") && local.details(),
};
const sessionKeys = {
  j: () => move(1),
  k: () => move(-1),
  o() {
    const details = (selected ?? messages().at(-1))?.querySelector("details");
    if (!details) return;
    details.open = !details.open;
    details.closest(".call")?.setAttribute("data-toggled", "1");
  },
  y: () => act("copy", actionable(selected)),
  l: () => act("link", actionable(selected)),
  f: () => act("fork", actionable(selected)),
  e: () => act("edit", actionable(selected) ?? messages().at(-1)),
  r: () => act("regenerate", actionable(selected) ?? messages().at(-1)),
  a() { const entry = actionable(selected); if (entry) { act("menu", entry); $("message-menu").querySelector("[data-agent]")?.focus(); } },
  m: () => act("menu", actionable(selected)),
  p: toRequest,
  Enter: () => prompt?.focus(),
  G: () => local.to_end(),
};
document.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const target = event.target;
  const card = target.closest?.(".req");
  // The keys of the inbox act on its current card, which shows them.
  const current = document.querySelector("#inbox .item.cur .req");
  if (event.key === "." && event.ctrlKey) { event.preventDefault(); if (log) sendNow({ do: "stop" }); return; }
  if (event.key === "Escape") {
    if (closeMenus()) return;
    const form = target.closest?.(".edit-form");
    if (form) closeEditor(form);
    else if (target.matches?.("input, textarea") && !card) { target.blur(); view?.focus(); }
    else if (card ?? current) (card ?? current).querySelector("[data-do=not_now]").click();
    else if (matchMedia("(max-width: 74.99em)").matches && root.dataset.details === "open") local.details();
    else select(null);
    return;
  }
  const editor = target.closest?.(".edit-form textarea");
  if (editor && event.key === "Enter" && !event.shiftKey) { event.preventDefault(); editor.form.requestSubmit(); return; }
  if (target.matches?.("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const menu = target.closest?.(".menu");
  if (menu && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    const items = [...menu.querySelectorAll("button, a, input")];
    items[(items.indexOf(target) + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length].focus();
    return;
  }
  if (/^[1-9]$/.test(event.key)) {
    if (card ?? current) (card ?? current).querySelectorAll(".opts [data-do=answer]")[event.key - 1]?.click();
    else if (menu?.id === "message-menu") menu.querySelectorAll("[data-agent]")[event.key - 1]?.click();
    return;
  }
  if (event.key === "Enter" && target !== document.body && target !== view && !target.matches?.(".entry")) return;
  const run = keys[event.key] ?? (log ? sessionKeys[event.key] : null);
  if (run) { event.preventDefault(); run(); }
});

// ---- Notifications. lists.js has search and directories ----

function showNotifications() {
  const button = $("notifications");
  if (!button || !("Notification" in window)) return;
  button.hidden = Notification.permission === "denied";
  button.querySelector("span").textContent = store(localStorage, "notify") ? "Turn off notifications" : "Turn on notifications";
}
local.notifications = async () => {
  if (store(localStorage, "notify")) store(localStorage, "notify", null);
  else if (await Notification.requestPermission() === "granted") store(localStorage, "notify", "1");
  showNotifications();
};

// ---- Start ----

showNotifications();

localTimes(document);
markLayout(document);
markOwn(document);
readRest();
restoreDrafts();
if (log) {
  for (const entry of log.querySelectorAll(":scope > .entry")) decorate(entry);
  mark(log.firstElementChild, "", log.dataset.before);
  openNewest();
  if (!location.hash || !showTarget()) toEnd();
  view.addEventListener("scroll", onScroll, { passive: true });
  log.addEventListener("mouseover", (event) => showTools(event.target));
  log.addEventListener("focusin", (event) => { const entry = event.target.closest("#log > .entry"); if (entry && entry !== selected) select(entry, false); });
  new ResizeObserver(() => { if (wasAtEnd) toEnd(); }).observe(view);
  var wasAtEnd = true;
  view.addEventListener("scroll", () => { wasAtEnd = following(); }, { passive: true });
  onHead();
  placeRequest();
}
connect();
