"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const names = ["area", "verdict", "level", "layer"];
  const form = byId("filters"), text = byId("text"), version = byId("version");
  const cases = [...document.querySelectorAll(".case")];
  const groups = [...document.querySelectorAll(".group")];
  let exchanges = null; // many megabytes, which are parsed when the first case is opened
  let errors = {}; // names by error code
  let api = "";

  function element(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  }

  // Filters

  function filter() {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const each of cases) {
      const data = each.dataset;
      const shown = names.every((name) => !byId(name).value || byId(name).value === data[name])
        && (!api || api === data.api) && words.every((word) => data.text.includes(word));
      each.hidden = !shown;
      count += shown;
    }
    for (const group of groups) {
      const shown = group.querySelectorAll(".case:not([hidden])").length;
      group.hidden = !shown;
      group.querySelector("h3 span").textContent = shown;
    }
    version.hidden = !api;
    version.textContent = `${api} ×`;
    version.setAttribute("aria-label", `Show other versions than ${api}`);
    byId("none").hidden = count > 0;
    byId("count").textContent = count === cases.length ? `${count} cases` : `${count} of ${cases.length} cases`;
  }

  function show(values) {
    form.reset();
    for (const name of names) byId(name).value = values[name] || "";
    api = values.api || "";
    filter();
    byId("cases").scrollIntoView();
    byId("cases").focus({ preventScroll: true });
  }

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { api = ""; setTimeout(filter); });
  version.addEventListener("click", () => { api = ""; filter(); text.focus(); });
  for (const button of document.querySelectorAll(".tile, table button, .chip")) {
    button.addEventListener("click", () => show(button.dataset));
  }
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      text.focus();
      text.select();
    } else if (event.key === "Escape" && document.activeElement === text) {
      text.value = "";
      filter();
    }
  });

  // Exchanges, which are drawn when their case is opened

  function scalar(key, value) {
    const name = /(^|_)error_code$/.test(key) ? errors[value] : undefined;
    return JSON.stringify(value) + (name ? ` (${name})` : "");
  }

  function decodedLines(value, path, depth, key, marks, expected) {
    const lines = [];
    const isObject = value !== null && typeof value === "object";
    const line = element("span", `line d${Math.min(depth, 8)}`);
    if (key !== null) line.append(element("span", typeof key === "number" ? "index" : "key", typeof key === "number" ? `[${key}]` : key));
    const entries = isObject ? (Array.isArray(value) ? [...value.entries()] : Object.entries(value)) : [];
    if (!entries.length) line.append(key === null ? "" : ": ", isObject ? (Array.isArray(value) ? "[]" : "{}") : scalar(key, value));
    if (marks.has(path.join("."))) {
      lines.push(element("mark", "", line, element("em", `line d${Math.min(depth, 8)}`, `expected ${expected}`)));
    } else if (key !== null || !entries.length) {
      lines.push(line);
    }
    for (const [name, inner] of entries) {
      lines.push(...decodedLines(inner, [...path, name], key === null ? depth : depth + 1, name, marks, expected));
    }
    return lines;
  }

  function hexLines(hex, size, ranges) {
    const pre = element("pre", "code hex");
    const bytes = hex.match(/../g) || [];
    const perLine = matchMedia("(max-width: 40rem)").matches ? 8 : 16;
    const differs = (at) => ranges.some(([first, end]) => at >= first && at < end);
    for (let start = 0; start < bytes.length; start += perLine) {
      const line = bytes.slice(start, start + perLine);
      pre.append(element("span", "at", start.toString(16).padStart(4, "0")), "  ");
      for (let at = start; at < start + line.length;) {
        // A run of bytes that differ, or that do not.
        const first = at, marked = differs(at);
        while (at < start + line.length && differs(at) === marked) at++;
        const run = bytes.slice(first, at).join(" ");
        pre.append(marked ? element("mark", "", run) : run, " ");
      }
      const letters = line.map((byte) => parseInt(byte, 16)).map((n) => n >= 32 && n < 127 ? String.fromCharCode(n) : "·");
      pre.append("   ".repeat(perLine - line.length), " ", element("span", "ascii", letters.join("")), "\n");
    }
    if (bytes.length < size) pre.append(`... ${size - bytes.length} more bytes`);
    return pre;
  }

  function frameElement(frame, index, exchange) {
    const place = exchange.differs && exchange.differs.frame === index ? exchange.differs : null;
    const sent = frame.direction === "request";
    const found = element("details", place ? "frame differs" : "frame");
    const arrow = element("span", "arrow", sent ? "→" : "←");
    arrow.setAttribute("aria-hidden", "true");
    const detail = `${frame.size} bytes, ${(frame.seconds * 1000).toFixed(1)} ms, connection ${frame.connection}`;
    found.append(element("summary", "", arrow, frame.title, element("span", "size", detail)));
    if (place) found.querySelector("summary").append(element("span", "flag", "✗ differs"));
    const draw = () => {
      if (found.childElementCount > 1) return;
      frame.decoded.forEach((part, at) => {
        const marks = new Set(place && at === 1 ? place.paths.map((path) => path.join(".")) : []);
        const [name, fields] = Object.entries(part)[0];
        const pre = element("pre", "code decoded", element("span", "line d0", name));
        pre.append(...decodedLines(fields, [], 1, null, marks, exchange.expected));
        found.append(pre);
      });
      if (frame.decoded.length < 2) found.append(element("pre", "code decoded", "The rest cannot be decoded."));
      found.append(hexLines(frame.hex, frame.size, place ? place.bytes : []));
    };
    found.addEventListener("toggle", draw);
    if (place) {
      found.open = true;
      draw();
    }
    return found;
  }

  function drawExchange(each) {
    const target = each.querySelector(".exchange");
    if (!target || target.childElementCount) return;
    if (!exchanges) ({ errors, cases: exchanges } = JSON.parse(byId("exchanges").textContent));
    const exchange = exchanges[each.id];
    if (!exchange) return;
    target.append(element("h4", "", `Exchange: ${exchange.frames.length} frames`));
    exchange.frames.forEach((frame, index) => target.append(frameElement(frame, index, exchange)));
  }

  for (const each of cases) each.addEventListener("toggle", () => { if (each.open) drawExchange(each); });

  // A link to a case: #produce.acks.none

  function openLinked() {
    const each = byId(decodeURIComponent(location.hash.slice(1)));
    if (!each || !each.classList.contains("case")) return;
    each.hidden = false;
    each.open = true;
    drawExchange(each);
    each.scrollIntoView();
  }
  addEventListener("hashchange", openLinked);
  openLinked();
})();
