// What makes the page live. Without it everything is there, and nothing moves. The server renders all text; this
// script puts what it sends in the place of what is shown.
"use strict";
(function () {
  const body = document.body;
  const banner = document.getElementById("banner");
  let paused = false;

  // found shows how many findings the doctor has.
  function found(n) {
    const badge = document.getElementById("found");
    badge.textContent = n;
    badge.hidden = !n;
  }

  function say(text) {
    if (banner.textContent !== text) banner.textContent = text;
    banner.hidden = !text;
    body.classList.toggle("stale", !!text);
  }

  // put replaces the content of the live part, and keeps what is open and what has the focus.
  function put(nodes) {
    const live = document.getElementById("live");
    if (!live) return;
    const open = new Set();
    live.querySelectorAll("details[open] > summary[data-key]").forEach((s) => open.add(s.dataset.key));
    const focus = live.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    live.replaceChildren(...nodes);
    live.querySelectorAll("details > summary[data-key]").forEach((s) => {
      if (open.has(s.dataset.key)) s.parentElement.open = true;
    });
    if (focus !== undefined) {
      for (const e of live.querySelectorAll("[data-key]")) {
        if (e.dataset.key === focus) {
          e.focus({ preventScroll: true });
          break;
        }
      }
    }
  }

  function parse(html) {
    return new DOMParser().parseFromString(html, "text/html");
  }

  // refresh reads the page once more, and takes its live part.
  let refreshing = false;
  async function refresh() {
    if (refreshing || paused || document.hidden) return;
    refreshing = true;
    try {
      const reply = await fetch(location.href.split("#")[0].replace(/([?&])again=1&?/, "$1"), { cache: "no-store" });
      const page = parse(await reply.text());
      const live = page.getElementById("live");
      if (live && !paused && !selecting()) {
        put([...live.childNodes]);
        body.dataset.refresh = page.body.dataset.refresh;
        found(Number(page.getElementById("found").textContent));
      }
    } catch (e) {
      // What asks how things stand says whether the server is there.
    } finally {
      refreshing = false;
    }
  }

  // selecting reports whether somebody is selecting text, which a replacement would undo.
  function selecting() {
    const s = getSelection();
    const live = document.getElementById("live");
    return s && !s.isCollapsed && live && live.contains(s.anchorNode);
  }

  // ask asks how things stand, once a second. No connection is kept meanwhile, of which a browser has six for all its tabs, and
  // a page that nobody sees asks for nothing.
  let asking = false;
  let missed = 0; // how often in a row there was no reply
  let next;
  async function ask() {
    clearTimeout(next);
    if (asking || document.hidden) return;
    asking = true;
    try {
      const reply = await fetch(body.dataset.state, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!reply.ok) throw new Error(reply.statusText);
      const state = await reply.json();
      if (missed > 1) refresh();
      missed = 0;
      say(state.down || "");
      found(state.found);
      if (state.live && !paused && !selecting()) {
        put([...parse(state.live).body.childNodes]);
        body.dataset.live = String(1 + Number(body.dataset.live || 0));
      }
    } catch (e) {
      if (++missed > 1) say(body.dataset.gone); // one may be lost on the way, or as the page is left
    } finally {
      asking = false;
      next = setTimeout(ask, 1000);
    }
  }

  // The list and the doctor are read again: often while they look, else every few seconds.
  const moves = document.getElementById("pause");
  let turn;
  async function again() {
    clearTimeout(turn);
    await refresh();
    clearTimeout(turn);
    turn = setTimeout(again, Number(body.dataset.refresh) || 5000);
  }
  if (!moves) turn = setTimeout(again, Number(body.dataset.refresh) || 5000);
  if (body.dataset.state) {
    ask();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return;
      ask();
      if (!moves) again();
    });
  }

  function pause(to) {
    paused = to;
    moves.setAttribute("aria-pressed", String(paused));
    moves.textContent = paused ? moves.dataset.resume : moves.dataset.pause;
  }
  if (moves) {
    moves.hidden = false;
    moves.addEventListener("click", () => pause(!paused));
  }

  // Commands are copied. Where the browser has no clipboard for a page, as without TLS, it copies what is selected.
  async function copy(code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch (e) {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
      getSelection().removeAllRanges();
    }
  }
  body.classList.add("copies");
  document.addEventListener("click", async (e) => {
    const button = e.target.closest(".copy");
    if (!button) return;
    await copy(button.previousElementSibling);
    const text = button.textContent;
    if (text === button.dataset.done) return;
    button.textContent = button.dataset.done;
    setTimeout(() => (button.textContent = text), 1500);
  });

  // A change is sent once.
  document.querySelectorAll("form.write").forEach((form) => {
    form.addEventListener("submit", () => {
      form.querySelectorAll("button").forEach((b) => (b.disabled = true));
    });
  });
  addEventListener("pageshow", () => {
    document.querySelectorAll("form.write button").forEach((b) => (b.disabled = false));
  });

  // The keyboard.
  document.querySelectorAll(".keys").forEach((e) => (e.hidden = false));
  function row(step) {
    const rows = [...document.querySelectorAll("#live tbody th a, #live .who a")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    const to = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + step));
    rows[to].focus();
    rows[to].scrollIntoView({ block: "nearest" });
  }
  function follow(selector) {
    const link = document.querySelector(selector);
    if (link) link.click();
  }
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target.matches("input, textarea, select");
    if (typing) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const filter = document.getElementById("q");
    switch (e.key) {
      case "/":
        if (!filter) return;
        filter.focus();
        filter.select();
        break;
      case "j":
      case "ArrowDown":
        if (e.key === "ArrowDown" && !document.activeElement.closest("#live tbody")) return;
        row(1);
        break;
      case "k":
      case "ArrowUp":
        if (e.key === "ArrowUp" && !document.activeElement.closest("#live tbody")) return;
        row(-1);
        break;
      case "n":
        follow("a[rel=next]");
        break;
      case "b":
        follow("a[rel=prev]");
        break;
      case "u":
        follow("a.brand");
        break;
      case " ":
        if (!moves || e.target.matches("button, a, summary")) return;
        pause(!paused);
        break;
      default:
        return;
    }
    e.preventDefault();
  });
})();
