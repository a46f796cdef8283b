// The status page of kvlease-exporter. The server sends one object for each event of /events
// (client/exporter/status.c says what is in it); everything on the page is drawn from the last one.
// Names of tenants and devices may be anything: they become text nodes and attributes, never markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const MATRIX_MAX = 24; // tenants in a row of the matrix
const RETRY_MSEC = 3000;
const WHOLE_SEC = 3540; // from which age on points are of an hour
const GAP_SEC = 60; // between two points: there was no daemon

// ---- building -----------------------------------------------------------------------------------

function make(namespace, name, attributes, children) {
  const element = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    element.setAttribute(key, value);
  }
  for (const child of children || []) {
    element.append(child); // a string becomes text
  }
  return element;
}

const html = (name, attributes, ...children) => make(null, name, attributes, children);
const svg = (name, attributes, ...children) => make(SVG, name, attributes, children);

function bytes(n) {
  if (n === null) {
    return "no limit";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (; n >= 1024 && i + 1 < units.length; i++) {
    n /= 1024;
  }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

const count = (n) => n.toLocaleString("en");
const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "none yet");

function duration(seconds) {
  const [days, hours] = [Math.floor(seconds / 86400), Math.floor((seconds % 86400) / 3600)];
  const minutes = Math.floor((seconds % 3600) / 60);
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${seconds} s`;
}

function time(usec) {
  return usec === null ? "none" : usec < 1000 ? `${usec} µs` : usec < 1e6 ? `${usec / 1000} ms` : `${usec / 1e6} s`;
}

// ---- bars ---------------------------------------------------------------------------------------

// Parts of `whole` beside each other, each [kind, size]; and marks, each [kind, place]. `label` says
// the same in words.
function bar(label, whole, parts, marks) {
  const picture = svg("svg", { class: "bar", viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img", "aria-label": label });
  const scale = (n) => (whole > 0 ? Math.min(1000, (1000 * n) / whole) : 0);
  let x = 0;
  picture.append(svg("title", {}, label), svg("rect", { class: "empty", x: 0, y: 0, width: 1000, height: 20 }));
  for (const [kind, size] of parts) {
    const width = Math.max(0, Math.min(scale(size), 1000 - x));
    if (width > 0) {
      picture.append(svg("rect", { class: kind, x: x.toFixed(1), y: 0, width: width.toFixed(1), height: 20 }));
    }
    x += width;
  }
  for (const [kind, place] of marks || []) {
    picture.append(svg("rect", { class: kind, x: Math.max(0, scale(place) - 4).toFixed(1), y: 0, width: 4, height: 20 }));
  }
  return picture;
}

// A table that scrolls by itself where the window is narrow, also by keyboard.
function table(caption, heads, rows) {
  return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    html("table", {},
      html("caption", {}, html("span", {}, caption)), // which stays in the window
      html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))),
      html("tbody", {}, ...rows.map(([first, ...cells]) =>
        html("tr", {}, html("th", { scope: "row" }, first), ...cells.map((cell) => html("td", {}, cell)))))));
}

// ---- parts of the page --------------------------------------------------------------------------

const TIERS = { device: "device", host: "host memory", disk: "disk" };

function tiers(data) {
  return [table("Memory of devices, and of the tiers below them",
    ["Device", "Tier", "State", "Used", "Of"],
    data.tiers.map((t) => [t.device, TIERS[t.tier] || t.tier,
      html("span", { class: t.state === "ok" ? "good" : "bad" }, t.state),
      bar(`${bytes(t.used)} used of ${bytes(t.budget)}, ${bytes(t.reserved)} reserved`, t.budget,
        [["used", t.used]], t.reserved ? [["mark", t.reserved]] : []),
      `${bytes(t.used)} of ${bytes(t.budget)}`]))];
}

function key(kinds) {
  return html("p", { class: "key" }, ...kinds.map(([kind, text]) => html("span", {},
    svg("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: kind, width: 10, height: 10 })), text)));
}

function regions(data) {
  const whole = {};
  for (const r of data.regions) {
    whole[r.device] = Math.max(whole[r.device] || 0, r.reserved, r.used + r.excess);
  }
  for (const t of data.tiers) {
    if (t.tier === "device") {
      whole[t.device] = t.budget;
    }
  }
  return [
    key([["used", "used"], ["excess", "beyond the reservation"], ["idle", "reserved, idle"], ["lent", "lent to others"]]),
    table("Memory that is reserved for each tenant, and that it uses",
      ["Tenant", "Device", "Part of the device", "Reserved", "Used", "Lent", "Missing"],
      data.regions.map((r) => {
        const idle = Math.max(0, r.reserved - r.used - r.lent);
        const label = `${bytes(r.used)} of ${bytes(r.reserved)} reserved used, ${bytes(r.excess)} beyond, ${bytes(r.lent)} lent`;
        return [r.tenant, r.device,
          bar(label, whole[r.device], [["used", r.used], ["excess", r.excess], ["lent", r.lent], ["idle", idle]]),
          bytes(r.reserved), bytes(r.used + r.excess), bytes(r.lent), bytes(r.missing)];
      })),
  ];
}

function tenants(data) {
  const most = Math.max(1, ...data.tenants.map((t) => t.cached));
  const rest = data.n_tenants - data.tenants.length;
  const parts = [key([["used", "cached on devices"], ["below", "below devices"]]), table("Cached pages and memory of each tenant, and its limit",
    ["Tenant", "Cached pages", "Pages", "Memory", "Clients", "Refused leases", "Evicted pages"],
    data.tenants.map((t) => [t.name,
      bar(`${count(t.cached)} pages cached on devices, ${count(t.below)} below`, most, [["used", t.cached - t.below], ["below", t.below]]),
      count(t.cached), `${bytes(t.used)} of ${bytes(t.limit)}`, count(t.clients), count(t.refused), count(t.evicted)]))];
  if (rest > 0) {
    parts.push(html("p", {}, `and ${count(rest)} more: kvleasectl tenants`));
  }
  return parts;
}

function evictions(data) {
  if (data.evictions.length === 0) {
    return [html("p", {}, "No page was evicted since kvleased started.")];
  }
  const weight = {};
  for (const e of data.evictions) {
    weight[e.victim] = (weight[e.victim] || 0) + e.pages;
    weight[e.by] = (weight[e.by] || 0) + e.pages;
  }
  const names = Object.keys(weight).sort((a, b) => weight[b] - weight[a] || (a < b ? -1 : 1)).slice(0, MATRIX_MAX);
  const most = Math.max(...data.evictions.map((e) => e.pages));
  const cell = (victim, by) => {
    const pages = data.evictions.filter((e) => e.victim === victim && e.by === by).reduce((sum, e) => sum + e.pages, 0);
    const square = svg("svg", { class: "square", viewBox: "0 0 10 10", "aria-hidden": "true" },
      svg("rect", { class: "taken", width: 10, height: 10, opacity: (pages / most).toFixed(2) }));
    return html("span", { class: "cell" }, square, pages ? count(pages) : "0");
  };
  const short = (name) => (name === "" ? "(no tenant)" : name);
  return [table("Evicted pages of the tenant in the row, for leases of the tenant in the column",
    ["Lost by \\ for", ...names.map(short)],
    names.filter((name) => name !== "").map((victim) => [victim, ...names.map((by) => cell(victim, by))]))];
}

// ---- the last hour ------------------------------------------------------------------------------

// Lines through points [age in seconds, value or null]; a null is a gap.
function chart(label, lines, highest) {
  const picture = svg("svg", { class: "chart", viewBox: "0 0 600 130", preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("title", {}, label));
  for (const y of [10, 65, 120]) {
    picture.append(svg("line", { class: "grid", x1: 0, x2: 600, y1: y, y2: y }));
  }
  for (const [kind, points] of lines) {
    let path = "", pen = "M", before = null;
    for (const [age, value] of points) {
      if (value === null || (before !== null && before - age > GAP_SEC)) {
        pen = "M";
      }
      before = age;
      if (value === null) {
        continue;
      }
      path += `${pen}${(600 - age / 6).toFixed(1)} ${(120 - (110 * Math.min(value, highest)) / highest).toFixed(1)}`;
      pen = "L";
    }
    picture.append(svg("path", { class: kind, d: path }));
  }
  return html("figure", {}, html("figcaption", {}, label), picture,
    html("div", { class: "times", "aria-hidden": "true" }, html("span", {}, "an hour ago"), html("span", {}, "now")));
}

function lastHour(data) {
  const points = data.history; // [age, hits, looked up, median, 99th percentile in microseconds]
  const hits = points.reduce((sum, p) => sum + p[1], 0), keys = points.reduce((sum, p) => sum + p[2], 0);
  const since = points.length && points[0][0] >= WHOLE_SEC ? "in the last hour" : "since kvlease-exporter started";
  const ratio = `Hits ${since}: ${keys > 0 ? `${percent(hits, keys)} of ${count(keys)} pages looked up` : "no page was looked up"}`;
  const slowest = Math.max(1, ...points.map((p) => p[4] || 0)), last = points[points.length - 1] || [0, 0, 0, null, null];
  const now = last[3] === null ? "no requests just now" : `half of the requests within ${time(last[3])}, 99 of 100 within ${time(last[4])}`;
  const slow = `Times of requests: ${now}${slowest > 1 ? `; the height is ${time(slowest)}` : ""}`;
  return [
    chart(ratio, [["line", points.map((p) => [p[0], p[2] > 0 ? p[1] / p[2] : null])]], 1),
    chart(slow, [["line second", points.map((p) => [p[0], p[4]])], ["line", points.map((p) => [p[0], p[3]])]], slowest),
  ];
}

// ---- the page -----------------------------------------------------------------------------------

function summary(data) {
  const facts = [["kvleased", data.version], ["up for", duration(data.uptime)], ["clients", count(data.clients)],
    ["tenants", count(data.n_tenants)], ["namespaces", count(data.namespaces)], ["sessions", count(data.sessions)],
    ["pages cached", count(data.cached)], ["pages found", percent(data.hits, data.keys)]];
  return [html("dl", {}, ...facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))))];
}

const SECTIONS = [["summary", "At a glance", summary], ["hour", "The last hour", lastHour], ["tiers", "Tiers", tiers],
  ["tenants", "Tenants", tenants], ["regions", "Regions", regions], ["evictions", "Evictions between tenants", evictions]];

// Where the keyboard is, and how far tables are scrolled, outlives an update.
function replace(section, parts) {
  const old = section.querySelector(".scroll"), had = old && document.activeElement === old, left = old ? old.scrollLeft : 0;
  section.replaceChildren(section.querySelector("h2"), ...parts);
  const now = section.querySelector(".scroll");
  if (now) {
    now.scrollLeft = left;
    if (had) {
      now.focus({ preventScroll: true });
    }
  }
}

function say(state, text) {
  const line = document.getElementById("state");
  document.documentElement.dataset.state = state;
  if (line.textContent !== text) { // or it would be read out each time
    line.textContent = text;
  }
}

function show(data) {
  const live = document.getElementById("live");
  document.getElementById("still").hidden = data.up;
  live.hidden = !data.up;
  if (!data.up) {
    document.getElementById("still").replaceChildren(html("p", {}, `kvleased can't be asked: ${data.why}`));
    say("away", "kvleased doesn't answer.");
    return;
  }
  for (const [id, title, draw] of SECTIONS) {
    let section = document.getElementById(id);
    if (!section) {
      section = html("section", { id, "aria-labelledby": `${id}-title` }, html("h2", { id: `${id}-title` }, title));
      live.append(section);
    }
    replace(section, draw(data));
  }
  say("live", data.draining ? "Live. kvleased is draining: nothing new is granted." : "Live.");
}

function listen() {
  const events = new EventSource("/events");
  events.onmessage = (event) => show(JSON.parse(event.data));
  events.onerror = () => {
    say("lost", "The exporter doesn't answer: these figures are old.");
    if (events.readyState === EventSource.CLOSED) {
      setTimeout(listen, RETRY_MSEC);
    }
  };
}

listen();
