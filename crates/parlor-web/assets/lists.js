// Lists: search while typing, and completion of directories.
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
  const showHits = (html) => {
    const hits = byId("hits");
    if (!hits || hits.closest(".main")) return;
    hits.outerHTML = html || '<div id="hits" hidden></div>';
    byId("sessions")?.toggleAttribute("hidden", Boolean(html));
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
      document.querySelector("#hits a, #sessions:not([hidden]) a")?.focus();
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
}
