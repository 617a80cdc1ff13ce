// Lists: search while typing, completion of directories, and the inbox.
{
  const byId = (id) => document.getElementById(id);

  const side = document.querySelector(".side");

  // The answers of a slow server must not replace those of a later query.
  const latest = (load, show) => {
    let number = 0;
    let timer;
    return (value) => {
      clearTimeout(timer);
      const mine = ++number;
      timer = setTimeout(async () => {
        const result = await load(value).catch(() => null);
        if (mine === number && result !== null) show(result, value);
      }, 150);
    };
  };

  const query = byId("q");
  let shownHits = null;
  const showHits = (html) => {
    const hits = byId("hits");
    // What is the same stays: somebody may be about to click it.
    if (!hits || html === shownHits) return;
    shownHits = html;
    // The style sheet hides the list beside hits.
    hits.outerHTML = html || '<div id="hits" hidden></div>';
  };
  const search = latest(async (text) => {
    if (!text.trim()) return "";
    const response = await fetch(`/search?part=hits&q=${encodeURIComponent(text)}`);
    return response.ok ? response.text() : null;
  }, showHits);
  query?.addEventListener("input", () => search(query.value));
  query?.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && query.value) {
      query.value = "";
      search("");
      event.preventDefault();
    } else if (event.key === "ArrowDown") {
      document.querySelector("#hits a, #sessions a")?.focus();
      event.preventDefault();
    }
  });
  side?.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...side.querySelectorAll(".scroll a")].filter((link) => link.offsetParent);
    const at = links.indexOf(document.activeElement);
    if (at < 0) return;
    const next = links[at + (event.key === "ArrowDown" ? 1 : -1)];
    (next ?? query)?.focus();
    event.preventDefault();
  });

  const directory = byId("dir");
  const complete = latest(async (text) => {
    const response = await fetch(`/complete?dir=${encodeURIComponent(text)}`);
    return response.ok ? response.json() : null;
  }, (found) => {
    byId("dirs")?.replaceChildren(...found.map((path) => {
      const option = document.createElement("option");
      option.value = path;
      return option;
    }));
  });
  directory?.addEventListener("input", () => complete(directory.value));
  directory?.addEventListener("focus", () => complete(directory.value));
  byId("fp")?.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    event.target.form.requestSubmit();
  });

  // The inbox. A card that has just come or moved accepts nothing: a second click would answer another request.
  const items = () => [...document.querySelectorAll("#inbox .item")];
  const names = () => items().map((item) => item.id).join(" ");
  let shown = names();
  let movedTimer;
  const inboxView = byId("inbox")?.parentElement;
  const onMoved = () => {
    inboxView.dataset.moved = "";
    clearTimeout(movedTimer);
    movedTimer = setTimeout(() => { delete inboxView.dataset.moved; }, 500);
  };
  if (inboxView) {
    onMoved();
    new MutationObserver(() => {
      if (names() === shown) return;
      shown = names();
      onMoved();
    }).observe(inboxView, { childList: true, subtree: true });
  }
  for (const kind of ["click", "submit"]) {
    document.addEventListener(kind, (event) => {
      if (inboxView?.dataset.moved === undefined || !event.target.closest?.("#inbox .req")) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    }, true);
  }
  document.addEventListener("focusin", (event) => {
    const current = event.target.closest?.("#inbox .item");
    if (current) for (const item of items()) item.classList.toggle("cur", item === current);
  });
  document.addEventListener("keydown", (event) => {
    if (!inboxView || event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, textarea, select")) return;
    const step = { j: 1, k: -1, p: 0 }[event.key];
    if (step === undefined) return;
    const all = items();
    const at = all.findIndex((item) => item.contains(document.activeElement));
    const next = all[at < 0 ? 0 : Math.min(Math.max(at + step, 0), all.length - 1)];
    next?.querySelector(".opts .btn")?.focus();
    if (next) event.preventDefault();
  });
}
