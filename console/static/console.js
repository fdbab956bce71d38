// What the pages of the console do besides showing what the server sent. Every page works without it, except live ones.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function say(text) {
  const toast = $("#toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.classList.remove("shown"), 2500);
}

// Markup from this server, in which every value of a record is escaped.
function fragment(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// Light and dark

const themeButton = $("#theme");
if (themeButton) {
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    const root = document.documentElement;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    root.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // The browser stores nothing; the choice is that of this page.
    }
  });
}

// In narrow windows, the screens do not fit beside each other; the present one is visible

const present = $(".top nav [aria-current]");
if (present) present.parentElement.scrollLeft = present.offsetLeft - (innerWidth - present.offsetWidth) / 2;

// The details of a record, below its row

async function toggleRecord(button) {
  const body = button.closest("tbody");
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  $("tr.expanded", body)?.remove();
  if (isOpen) return;
  const row = document.createElement("tr");
  row.className = "expanded";
  const cell = row.insertCell();
  cell.colSpan = 6;
  cell.textContent = "Loading…";
  body.append(row);
  try {
    const response = await fetch(button.dataset.open);
    const text = await response.text();
    if (response.ok) cell.replaceChildren(fragment(text));
    else cell.replaceChildren(problemIn(text));
  } catch {
    cell.textContent = "The console does not respond. Is `moldau console` still running?";
  }
}

// The problem that a whole page reports
function problemIn(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  return $(".problem", page) || document.createTextNode(page.body.textContent);
}

async function copy(button) {
  const text = $("pre", button.closest(".part")).textContent;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say("The browser does not allow copying; select the text instead");
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.open) toggleRecord(button);
  else if (button && "copy" in button.dataset) copy(button);
});

// Forms: a choice that submits, and fields that belong to one choice

document.addEventListener("change", (event) => {
  if ("submit" in event.target.dataset) event.target.form.requestSubmit();
  if ("reveals" in event.target.dataset) reveal(event.target);
});

function reveal(select) {
  for (const field of $$("[data-for]", select.form)) {
    if (field.dataset.of && field.dataset.of !== select.name) continue;
    const isUsed = field.dataset.for.split(",").includes(select.value.replaceAll(" ", "-"));
    field.hidden = !isUsed;
    for (const input of $$("input, select", field)) input.disabled = !isUsed;
  }
}
$$("[data-reveals]").forEach(reveal);

// Empty fields do not become part of an address.
document.addEventListener("formdata", (event) => {
  if (event.target.method !== "get") return;
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});

// Keys: "/" goes to the search field

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const field = $('[data-shortcut="/"]');
  if (field) {
    event.preventDefault();
    field.focus();
  }
});

// Streams of the server

const count = (number) => number.toLocaleString("en").replaceAll(",", "\u202f");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

function report(stream, text) {
  const box = $("[data-problem]", stream);
  box.hidden = !text;
  $("p", box).textContent = text || "";
}

function startSearch(stream) {
  const [status, bar, stop] = [$("[data-status]", stream), $("progress", stream), $("[data-stop]", stream)];
  const table = $("table", stream);
  const source = new EventSource(stream.dataset.search);
  let last = { found: 0, scanned: 0, total: 0 };
  const end = (text) => {
    source.close();
    stop.hidden = true;
    stream.dataset.state = "ended";
    status.textContent = text;
  };
  const so = () => `${plural(last.found, "record")} found, ${count(last.scanned)} of ${plural(last.total, "offset")} searched`;
  source.addEventListener("step", (event) => {
    last = JSON.parse(event.data);
    if (last.html) {
      table.append(fragment(last.html));
      $("[data-results]", stream).hidden = false;
    }
    bar.value = last.total ? last.scanned / last.total : 1;
    status.textContent = so();
    if (last.done) end(`${so()}. ${last.scanned < last.total ? "There may be more." : "Done."}`);
  });
  source.addEventListener("problem", (event) => {
    report(stream, JSON.parse(event.data).text);
    end(`${so()}. Ended by a problem.`);
  });
  source.onerror = () => {
    if (stream.dataset.state === "ended") return;
    report(stream, "The console does not respond. Is `moldau console` still running?");
    end(so());
  };
  stop.addEventListener("click", () => end(`${so()}. Stopped.`));
}

const MAX_LIVE_ROWS = 200;

function startLive(stream) {
  const [status, pause, table] = [$("[data-status]", stream), $("[data-pause]", stream), $("table", stream)];
  let [source, shown, omitted, position, state] = [null, 0, 0, "", "Connecting…"];
  const update = () => {
    const left = omitted ? `, ${plural(omitted, "record")} omitted because they came too fast` : "";
    status.textContent = `${state} ${plural(shown, "record")} shown${left}.`;
  };
  const become = (text, lamp) => {
    state = text;
    stream.dataset.state = lamp;
    update();
  };
  const connect = () => {
    const address = new URL(stream.dataset.live, location.href);
    if (position) address.searchParams.set("from", position);
    source = new EventSource(address);
    source.addEventListener("open", (event) => {
      if (event.lastEventId) position = event.lastEventId;
      if (event.lastEventId === undefined) return; // the browser's own event of this name
      report(stream, "");
      become("Live.", "on");
    });
    source.addEventListener("records", (event) => {
      const data = JSON.parse(event.data);
      position = event.lastEventId;
      shown += data.shown;
      omitted += data.omitted;
      const arrived = fragment(data.html);
      if (!data.omitted) for (const body of arrived.querySelectorAll("tbody")) body.classList.add("new");
      $("thead", table).after(arrived);
      const bodies = table.tBodies;
      while (bodies.length > MAX_LIVE_ROWS) bodies[bodies.length - 1].remove();
      $("[data-waiting]", stream).hidden = true;
      $("[data-results]", stream).hidden = false;
      update();
    });
    source.addEventListener("problem", (event) => {
      report(stream, `${JSON.parse(event.data).text} The page tries again by itself.`);
      become("Not connected.", "off");
    });
    source.onerror = () => become("Not connected.", "off");
  };
  pause.addEventListener("click", () => {
    if (source) {
      source.close();
      source = null;
      become("Paused.", "paused");
      pause.textContent = "Continue";
    } else {
      pause.textContent = "Pause";
      become("Connecting…", "");
      connect();
    }
  });
  $("[data-clear]", stream).addEventListener("click", () => {
    for (const body of [...table.tBodies]) body.remove();
    shown = omitted = 0;
    update();
  });
  connect();
}

$$("[data-search]").forEach(startSearch);
$$("[data-live]").forEach(startLive);

// Sending: a null has no text, and a dropped file becomes lines

function showNull(select) {
  const area = $(`[name="${select.dataset.nulls.replace("_form", "")}"]`, select.form);
  area.disabled = select.value === "null";
}
for (const select of $$("[data-nulls]")) {
  showNull(select);
  select.addEventListener("change", () => showNull(select));
}

for (const area of $$("[data-drop]")) {
  area.addEventListener("dragover", (event) => {
    event.preventDefault();
    area.classList.add("over");
  });
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", async (event) => {
    area.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    area.value = await file.text();
  });
}

// What was typed into a form, except passwords
function summaryOf(form) {
  const list = document.createElement("dl");
  list.className = "facts";
  for (const field of $$("input:not([type=hidden]), select", form)) {
    if (field.disabled || !field.value) continue;
    const [row, name, value] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
    const words = [...field.labels[0].childNodes].filter((node) => node !== field).map((node) => node.textContent);
    name.textContent = words.join(" ").trim();
    value.textContent = field.type === "password" ? "••••" : field.selectedOptions?.[0].textContent || field.value;
    row.append(name, value);
    list.append(row);
  }
  return list;
}

// What cannot be undone, or concerns other users, is confirmed first

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.confirm || form.dataset.confirmed) return;
  event.preventDefault();
  const dialog = document.createElement("dialog");
  const text = document.createElement("p");
  text.id = "confirm-text";
  text.textContent = form.dataset.confirm;
  dialog.setAttribute("aria-labelledby", text.id);
  const actions = document.createElement("p");
  actions.className = "actions";
  const cancel = document.createElement("button");
  cancel.textContent = "Cancel";
  const confirm = document.createElement("button");
  confirm.className = "danger";
  confirm.textContent = $("button", form).textContent;
  actions.append(cancel, confirm);
  dialog.append(text);
  if ("summary" in form.dataset) dialog.append(summaryOf(form));
  dialog.append(actions);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  cancel.addEventListener("click", () => dialog.close());
  confirm.addEventListener("click", () => {
    dialog.close();
    form.dataset.confirmed = "1";
    form.requestSubmit();
  });
  dialog.showModal();
});

// In narrow windows, the cells of a row are below each other, with the names of their columns

for (const table of $$("table:not(.records, .plain)")) {
  const names = $$("thead th", table).map((head) => ($(".hidden", head) ? "" : head.textContent.trim()));
  for (const row of $$("tbody tr", table)) {
    for (const cell of row.cells) if (cell.tagName === "TD") cell.dataset.label = names[cell.cellIndex] || "";
  }
  table.classList.add("labeled");
}
