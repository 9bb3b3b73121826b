"use strict";
// Copyright (c) 2026, cudahub.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// Texts come from hosts: they become text nodes and attributes, never markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const string = (number) => (number === null || number === undefined ? null : data.strings[number]);
  const SIGNS = { passed: "✓", failed: "✗", warning: "!", unknown: "?", skipped: "–", simulated: "○" };
  const WORDS = {
    passed: "verified", failed: "failed", warning: "warning", unknown: "not verified", skipped: "skipped",
    simulated: "simulated", unreachable: "unreachable", none: "no GPU",
  };
  const SERIES = {
    power_watts: ["Power", "W"], temperature_celsius: ["Temperature", "°C"], sm_clock_mhz: ["SM clock", "MHz"],
    memory_clock_mhz: ["Memory clock", "MHz"],
  };
  const CHUNK = 40, ROW = 46;

  const put = (element, properties, children) => {
    for (const [name, value] of Object.entries(properties || {})) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
    return element;
  };
  const h = (tag, properties, ...children) => put(document.createElement(tag), properties, children);
  const svg = (tag, properties, ...children) =>
    put(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
  const bdi = (text) => (text ? h("bdi", null, text) : null);
  const records = (table) => table.rows.map((row) => Object.fromEntries(table.columns.map((name, at) => [name, row[at]])));
  const shown = (value) =>
    value === null || value === undefined ? "–"
      : typeof value !== "number" ? String(value)
      : Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2)
      : Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
  const percent = (share) => (share === null || share === undefined ? "" : `${(share * 100).toFixed(1)} %`);
  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

  const kinds = records(data.kinds).map((kind) => ({
    ...kind, name: string(kind.name), unit: string(kind.unit), expected: string(kind.expected), mode: string(kind.mode),
  }));
  const check = (row) => {
    const found = Object.fromEntries(data.check.map((name, at) => [name, row[at] ?? null]));
    return {
      ...found, ...kinds[found.what], passed: found.passed === null ? null : Boolean(found.passed),
      figure: Array.isArray(found.figure) ? string(found.figure[0]) : found.figure,
      message: string(found.message), gpus: (found.gpus || []).map(string),
    };
  };
  const hosts = records(data.hosts).map((host) => ({
    ...host, name: string(host.name), state: data.states[host.state], message: string(host.message),
    driver: string(host.driver), level: string(host.level), warnings: host.warnings.map(string),
    topology: host.topology === null ? null : data.topologies[host.topology], gpus: [],
  }));
  const gpus = records(data.gpus).map((gpu, number) => {
    const found = {
      ...gpu, number, host: hosts[gpu.host], label: string(gpu.label), pci: string(gpu.pci), name: string(gpu.name),
      profile: string(gpu.profile), verdict: data.states[gpu.verdict], state: data.states[gpu.state],
      kind: string(gpu.kind), message: string(gpu.message), warnings: gpu.warnings.map(string),
    };
    found.place = found.host.gpus.push(found) - 1;
    return found;
  });
  const model = (gpu) => (gpu.profile ? `${gpu.name} ${gpu.profile}` : gpu.name);
  const links = {
    host: (host) => `#host/${encodeURIComponent(host.name)}`,
    gpu: (gpu) => `#gpu/${encodeURIComponent(gpu.host.name)}/${gpu.place}`,
  };

  // Figures of all GPUs of a model, sorted, by model and check: worked out when first asked for.
  let figures = null;
  const spreads = () => {
    if (figures) return figures;
    figures = new Map();
    const rates = new Set(data.rates.map(string));
    for (const gpu of gpus) {
      for (const row of gpu.checks) {
        const kind = kinds[row[0]];
        if (!rates.has(kind.name) || typeof row[2] !== "number") continue;
        const key = `${model(gpu)}\n${kind.name}`;
        if (!figures.has(key)) figures.set(key, { model: model(gpu), kind, all: [] });
        figures.get(key).all.push({ gpu, figure: row[2], share: row[4] ?? null });
      }
    }
    for (const one of figures.values()) one.all.sort((left, right) => left.figure - right.figure);
    return figures;
  };
  const middle = (all) => all[Math.floor(all.length / 2)];
  const spreadOf = (gpu, name) => spreads().get(`${model(gpu)}\n${name}`);

  // A bar of one figure on a scale that ends at the peak, or where none is known at the best of the fleet, with the
  // range of the fleet and its median.
  const bar = (spread, own, failed) => {
    const low = spread.all[0].figure, high = spread.all.at(-1).figure, median = middle(spread.all).figure;
    const peak = spread.kind.peak, top = Math.max(peak || 0, high, own ?? 0) || 1;
    const x = (value) => Math.max(0, Math.min(200, (value / top) * 200)).toFixed(1);
    const label = [
      own === null ? null : `measured ${shown(own)}`, peak ? `peak ${shown(peak)}` : null,
      `fleet from ${shown(low)} to ${shown(high)}, median ${shown(median)} ${spread.kind.unit || ""}`,
    ].filter(Boolean).join(", ");
    const above = peak && peak < top;
    return svg("svg", { class: "spread", viewBox: "0 0 200 24", role: "img", "aria-label": label },
      svg("title", null, label),
      svg("rect", { class: "full", x: 0, y: 7, width: 200, height: 10, rx: 2 }),
      own === null ? null
        : svg("rect", { class: `own${failed ? " failed" : ""}`, x: 0, y: 7, width: x(own), height: 10, rx: 2 }),
      svg("rect", { class: "band", x: x(low), y: 2, width: Math.max(1.5, x(high) - x(low)), height: 20 }),
      svg("line", { class: "median", x1: x(median), x2: x(median), y1: 2, y2: 22 }),
      above ? svg("line", { class: "peak", x1: x(peak), x2: x(peak), y1: 0, y2: 24 }) : null);
  };

  const number = (value) => h("td", { class: "number" }, value);
  // A header that starts with # is one of numbers. On a narrow screen, the cells of a row stand below each other.
  const table = (headers, rows, stack = true) => {
    const names = headers.map((header) => header.replace("#", ""));
    if (stack) {
      for (const one of rows) {
        one.setAttribute("role", "row");
        [...one.children].forEach((cell, at) => {
          cell.setAttribute("data-label", names[at]);
          cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
        });
      }
    }
    // What is scrolled is reached by the keyboard, too.
    return h("div", stack ? { class: "scroll" } : { class: "scroll", tabindex: 0 }, h("table", stack && { class: "stack", role: "table" },
      h("thead", stack && { role: "rowgroup" }, h("tr", stack && { role: "row" }, headers.map((header, at) =>
        h("th", { scope: "col", role: stack && "columnheader", class: header.startsWith("#") && "number" }, names[at])))),
      h("tbody", stack && { role: "rowgroup" }, rows)));
  };

  // ---- the fleet
  const chip = (gpu) => {
    const said = `${SIGNS[gpu.state]} ${gpu.label}${gpu.profile ? ` ${gpu.profile}` : ""}`;
    const long = `GPU ${gpu.label} ${model(gpu)}: ${WORDS[gpu.state]}${gpu.kind ? `, ${gpu.kind}` : ""}`;
    return h("a", { class: `chip ${gpu.state}`, href: links.gpu(gpu), title: long, "aria-label": long }, said);
  };
  const models = (host) => {
    const counts = new Map();
    for (const gpu of host.gpus) counts.set(model(gpu), (counts.get(model(gpu)) || 0) + 1);
    return [...counts].map(([name, many]) => `${many} × ${name}`).join(", ");
  };
  const sentence = (host) => host.message || host.gpus.find((gpu) => gpu.message && gpu.state !== "passed")?.message
    || host.gpus.find((gpu) => gpu.warnings.length)?.warnings[0] || host.warnings[0] || models(host);
  const row = (host, at) =>
    h("tr", { role: "row", "aria-rowindex": at + 2 },
      h("th", { scope: "row", role: "rowheader" }, h("a", { href: links.host(host) }, bdi(host.name))),
      h("td", { role: "cell", class: `text-${host.state}` }, WORDS[host.state]),
      h("td", { role: "cell" }, h("div", { class: "chips" }, host.gpus.map(chip))),
      h("td", { role: "cell" }, bdi(sentence(host))));
  const search = (host) => (host.search ??= [
    host.name, WORDS[host.state], host.driver, sentence(host),
    ...host.gpus.flatMap((gpu) => [gpu.uuid, gpu.pci, model(gpu), WORDS[gpu.state], gpu.kind, gpu.message]),
  ].join("\n").toLowerCase());

  const fleet = document.getElementById("fleet");
  let waiting = new Map();
  const fill = (body) => {
    const rows = waiting.get(body);
    if (!rows) return;
    waiting.delete(body);
    seen.unobserve(body);
    body.replaceChildren(...rows.map(([host, at]) => row(host, at)));
  };
  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => fill(entry.target)),
    { rootMargin: "800px" });
  const fillAll = () => [...waiting.keys()].forEach(fill);
  window.addEventListener("beforeprint", fillAll);
  matchMedia("print").addEventListener("change", (event) => event.matches && fillAll());

  const grid = h("table", { class: "fleet", role: "table", "aria-labelledby": "hosts-title" });
  const found = h("p", { class: "soft", role: "status" });
  const filter = h("input", { type: "search", autocomplete: "off", placeholder: "host, GPU, UUID, failed, slow …" });
  const list = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = hosts.filter((host) => words.every((word) => search(host).includes(word)));
    seen.disconnect();
    waiting = new Map();
    const bodies = [];
    for (let start = 0; start < chosen.length; start += CHUNK) {
      const rows = chosen.slice(start, start + CHUNK).map((host, at) => [host, start + at]);
      const space = h("td", { colspan: 4 });
      space.style.height = `${rows.length * ROW}px`;
      const body = h("tbody", { role: "rowgroup" }, h("tr", { role: "presentation" }, space));
      waiting.set(body, rows);
      bodies.push(body);
    }
    grid.setAttribute("aria-rowcount", chosen.length + 1);
    grid.replaceChildren(
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ["Host", "State", "GPUs", "What there is to say"].map(
        (header) => h("th", { scope: "col", role: "columnheader" }, header)))),
      ...bodies);
    if (bodies.length) fill(bodies[0]);
    bodies.forEach((body) => waiting.has(body) && seen.observe(body));
    found.textContent = words.length ? `${count(chosen.length, "host")} of ${hosts.length.toLocaleString("en")}` : "";
  };
  let pause = 0;
  filter.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(list, hosts.length > 300 ? 120 : 0);
  });

  const measured = () => {
    const rows = [...spreads().values()].map(({ model: name, kind, all }) => {
      const lowest = all[0], median = middle(all);
      return h("tr", null, h("td", null, bdi(name)), h("th", { scope: "row" }, kind.name), number(all.length.toLocaleString("en")),
        h("td", { class: "number where" }, shown(lowest.figure), " ", h("a", { href: links.gpu(lowest.gpu) }, bdi(`${lowest.gpu.host.name}\u00a0${lowest.gpu.label}`))),
        number(shown(median.figure)), number(shown(all.at(-1).figure)), h("td", null, kind.unit),
        number(percent(median.share)), h("td", null, bar({ kind, all }, null)));
    });
    return rows.length && h("section", { "aria-labelledby": "measured-title" },
      h("h2", { id: "measured-title" }, "Measured in the fleet"),
      table(["Model", "Check", "#GPUs", "#Lowest", "#Median", "#Highest", "Unit", "#Median of peak", "From 0 to peak"], rows));
  };
  const startFleet = () => {
    if (!hosts.length) return;
    fleet.append(h("section", { "aria-labelledby": "hosts-title" },
      h("h2", { id: "hosts-title" }, "Hosts and GPUs"),
      h("div", { class: "bar" }, h("label", null, "Filter", filter), found), grid));
    list();
    // What is below the table may come after it is seen.
    setTimeout(() => fleet.append(...[measured()].filter(Boolean)), 0);
  };

  // ---- pictures by uPlot
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let charts = [];
  const iso = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const moments = (self, ticks, axis, space, step) => ticks.map((tick) => iso(tick).slice(step < 86400 ? 5 : 0, step < 86400 ? 16 : 10));
  // An axis around the figures, never so near that noise looks like change.
  const near = (least) => (self, low, high) => {
    if (low === null) return [0, 1];
    const middle = (low + high) / 2, half = Math.max((high - low) * 0.55, least, Math.abs(middle) * 0.05);
    return [low >= 0 ? Math.max(0, middle - half) : middle - half, middle + half];
  };
  const chart = (title, note, x, series, { time = false, unit = "", headers }) => {
    const holder = h("div", { role: "img", "aria-label": `${title}: ${note}` });
    const values = h("details", null, h("summary", null, "Values"));
    values.addEventListener("toggle", () => values.children.length > 1 || values.append(table(
      [headers, ...series.map((one) => `#${one.label}`)],
      x.map((at, row) => h("tr", null, h("th", { scope: "row" }, time ? iso(at) : at),
        series.map((one) => number(shown((one.values || one.data)[row]))))), false)));
    const draw = () => {
      const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
      return new uPlot({
        width: Math.max(200, holder.clientWidth), height: 210, scales: { x: { time }, y: { range: near(1) } },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"), legend: { show: series.length > 1 },
        axes: [time ? { ...axis, space: 90, values: moments } : axis, { ...axis, size: 62, values: (self, ticks) => ticks.map((tick) => `${tick.toLocaleString("en")}${unit}`) }],
        series: [{ label: headers, value: (self, at) => (at === null ? "–" : time ? iso(at) : at) }, ...series.map((one, at) => ({
          label: one.label, stroke: color(`--c${(at % 6) + 1}`), width: 2, dash: at > 5 ? [6, 4] : undefined,
          points: { show: x.length < 40 }, spanGaps: true, value: (self, value) => (value === null ? "–" : shown(value)),
        }))],
      }, [x, ...series.map((one) => one.data)], holder);
    };
    charts.push({ holder, draw });
    return h("figure", null, h("figcaption", null, title, h("span", null, note)), holder, values);
  };
  const redraw = () => {
    for (const one of charts) {
      one.plot?.destroy();
      one.plot = one.draw();
    }
  };
  const resized = new ResizeObserver(() => charts.forEach((one) =>
    one.plot?.setSize({ width: Math.max(200, one.holder.clientWidth), height: 210 })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("print").addEventListener("change", redraw);

  const range = (values, unit) => {
    const known = values.filter((value) => value !== null);
    const [low, high] = [shown(Math.min(...known)), shown(Math.max(...known))];
    return `${low === high ? low : `${low} to ${high}`} ${unit}`;
  };
  const curves = (samples) => {
    const at = samples.seconds;
    const series = Object.fromEntries(Object.entries(samples.series).map(([name, values]) =>
      [name, values.length === 1 ? at.map(() => values[0]) : values]));
    const of = (...names) => names.filter((name) => series[name]).map((name) => ({ label: SERIES[name][0], data: series[name], unit: SERIES[name][1] }));
    return [["Power", of("power_watts")], ["Temperature", of("temperature_celsius")], ["Clocks", of("sm_clock_mhz", "memory_clock_mhz")]]
      .filter(([, lines]) => lines.length)
      .map(([title, lines]) => chart(`${title} under load, ${lines[0].unit}`,
        lines.map((line) => `${lines.length > 1 ? `${line.label} ` : ""}${range(line.data, line.unit)}`).join(", "), at, lines, { headers: "s" }));
  };
  const trend = (gpu) => {
    const runs = data.trend.times.map((time, at) => ({ time: Date.parse(time) / 1000, row: data.trend.runs[at][gpu.number] }))
      .filter((run) => run.row);
    if (runs.length < 2) return h("p", { class: "soft" }, "This is the first report that knows this GPU: a trend needs two.");
    const lines = data.trend.checks.map((name, at) => ({ label: string(name), values: runs.map((run) => run.row[at + 1] ?? null) }))
      .filter((line) => line.values.some((value) => value !== null));
    for (const line of lines) {
      const sorted = line.values.filter((value) => value !== null).sort((left, right) => left - right);
      line.data = line.values.map((value) => (value === null ? null : (value / (middle(sorted) || 1)) * 100));
    }
    const last = lines.map((line) => line.data.at(-1)).filter((value) => value !== null);
    const bad = runs.filter((run) => data.states[run.row[0]] === "failed").length;
    const hidden = data.trend.total - data.trend.times.length;
    const note = `${runs.length} runs, ${bad ? `failed in ${bad}` : "failed in none"}`
      + (last.length ? `; the last one is at ${range(last, "%")}` : "")
      + (hidden > 0 ? `; ${hidden} older ones are in the folder history only` : "");
    if (!lines.length) return h("p", null, `${note}.`);
    return h("div", { class: "charts" },
      chart("Figures of each run, in percent of their median", note, runs.map((run) => run.time), lines, { time: true, unit: " %", headers: "run" }));
  };

  // ---- one GPU, one host
  const facts = (pairs) => h("dl", null, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", null, name), h("dd", null, typeof value === "string" ? bdi(value) : value)]));
  const verdict = (state, passed) => h("td", { class: `text-${passed === null ? state : passed ? "passed" : "failed"}` },
    passed === null ? WORDS.skipped : passed ? `${SIGNS.passed} passed` : `${SIGNS.failed} failed`);
  const checks = (all, gpu) => table(
    ["Check", "Verdict", "#Figure", "Unit", "Expected", ...(gpu ? ["#Of peak", "Against the fleet"] : ["GPUs"]), "#Time", "Remark"],
    all.map((one) => {
      const spread = gpu && typeof one.figure === "number" && spreadOf(gpu, one.name);
      const middleColumns = gpu
        ? [number(percent(one.share)), h("td", null, spread ? bar(spread, one.figure, one.passed === false) : null)]
        : [h("td", null, one.gpus.map((uuid) => labels.get(uuid) ?? uuid).join(", "))];
      return h("tr", null, h("th", { scope: "row" }, bdi(one.name)), verdict("skipped", one.passed), number(one.figure === null ? "" : shown(one.figure)),
        h("td", null, one.unit), h("td", null, bdi(one.expected)), middleColumns,
        number(one.seconds === null ? "" : `${shown(one.seconds)} s`), h("td", { class: "wide" }, bdi([one.message, one.mode].filter(Boolean).join("; "))));
    }));
  const labels = new Map(gpus.map((gpu) => [gpu.uuid, `GPU ${gpu.label}`]));
  const box = (state, text) => text && h("div", { class: `box ${state}` }, bdi(text));
  const way = (...steps) => h("nav", { "aria-label": "Way back" }, h("a", { href: "#" }, "All hosts"),
    steps.flatMap((step) => [" › ", step]));

  const topology = (host) => {
    const { labels: names, numa, switched, words, links: matrix } = host.topology;
    const many = names.length, radius = 150, middleAt = 190;
    const point = (at) => {
      const turn = (2 * Math.PI * at) / many - Math.PI / 2;
      return [middleAt + radius * Math.cos(turn), middleAt + radius * Math.sin(turn)];
    };
    const lines = [];
    const nvlinks = (word) => Number(/^NV(\d+)/.exec(word)?.[1] || 0);
    let tied = 0;
    for (let one = 0; one < many; one += 1) {
      const [x, y] = point(one);
      if (switched) {
        const most = Math.max(...matrix[one].map((word) => nvlinks(words[word])));
        tied += most ? many - 1 : 0;
        if (most) lines.push(svg("line", { class: "link", x1: x, y1: y, x2: middleAt, y2: middleAt, "stroke-width": Math.min(8, 1 + most / 3) }));
        continue;
      }
      for (let other = one + 1; other < many; other += 1) {
        const width = nvlinks(words[matrix[one][other]]);
        const [x2, y2] = point(other);
        tied += width ? 2 : 0;
        if (width) lines.push(svg("line", { class: "link", x1: x, y1: y, x2, y2, "stroke-width": Math.min(8, 1 + width / 3) }));
      }
    }
    const states = new Map(host.gpus.map((gpu) => [gpu.label, gpu.state]));
    const nodes = names.map((name, at) => {
      const [x, y] = point(at);
      return svg("g", null, svg("circle", { class: `node ${states.get(name) || ""}`, cx: x, cy: y, r: 27 }),
        svg("text", { x, y: y + (numa[at] === null ? 5 : 0), "text-anchor": "middle" }, `GPU ${name}`),
        numa[at] === null ? null : svg("text", { class: "small", x, y: y + 14, "text-anchor": "middle" }, `NUMA ${numa[at]}`));
    });
    const hub = switched && tied
      ? [svg("circle", { class: "hub", cx: middleAt, cy: middleAt, r: 38 }),
        svg("text", { class: "hub-text", x: middleAt, y: middleAt + 5, "text-anchor": "middle" }, "NVSwitch")] : [];
    const label = tied ? `${many} GPUs, ${tied / 2} of ${(many * (many - 1)) / 2} pairs connected by NVLink${switched ? " through switches" : ""}; the table has all pairs`
      : `${many} GPUs without NVLink between them; the table has all pairs`;
    return h("section", { "aria-labelledby": "topology-title" }, h("h2", { id: "topology-title" }, "Topology"),
      h("div", { class: "charts matrix" },
        svg("svg", { class: "topology", viewBox: "0 0 380 380", role: "img", "aria-label": label }, svg("title", null, label), lines, hub, nodes),
        h("div", null, h("p", null, `${label.split(";")[0]}.${tied ? " NV18 stands for 18 NVLinks." : ""}`), table(["", ...names.map((name) => `GPU ${name}`)], names.map((name, one) =>
          h("tr", null, h("th", { scope: "row" }, `GPU ${name}`), matrix[one].map((word) => h("td", null, words[word] || "–")))), false))));
  };

  const hostView = (host) => [
    way(bdi(host.name)),
    h("h2", { tabindex: -1 }, "Host ", bdi(host.name), ": ", h("span", { class: `text-${host.state}` }, WORDS[host.state])),
    box(host.state, host.message), host.warnings.map((warning) => box("warning", warning)),
    facts([["GPUs", models(host)], ["Driver", host.driver], ["Level", host.level], ["Time", host.seconds === null ? null : `${shown(host.seconds)} s`]]),
    host.gpus.length ? [h("h2", null, "GPUs"), table(["GPU", "Model", "Verdict", "PCI address", "UUID", "What there is to say"],
      host.gpus.map((gpu) => h("tr", null, h("th", { scope: "row" }, h("a", { href: links.gpu(gpu) }, `GPU ${gpu.label}`)),
        h("td", null, bdi(model(gpu))), h("td", { class: `text-${gpu.state}` }, `${SIGNS[gpu.state]} ${WORDS[gpu.state]}`),
        h("td", null, gpu.pci), h("td", { class: "wide" }, gpu.uuid), h("td", { class: "wide" }, bdi(gpu.message || gpu.warnings[0])))))] : null,
    host.checks.length ? [h("h2", null, "Checks of several GPUs together"), checks(host.checks.map(check), null)] : null,
    host.topology ? topology(host) : null,
  ];
  const gpuView = (gpu) => [
    way(h("a", { href: links.host(gpu.host) }, bdi(gpu.host.name)), `GPU ${gpu.label}`),
    h("h2", { tabindex: -1 }, `GPU ${gpu.label} of `, bdi(gpu.host.name), ": ", h("span", { class: `text-${gpu.state}` }, WORDS[gpu.state])),
    box(gpu.verdict === "failed" ? "failed" : "other", gpu.message), gpu.warnings.map((warning) => box("warning", warning)),
    facts([["Model", model(gpu)], ["UUID", gpu.uuid], ["PCI address", gpu.pci], ["Kind of failure", gpu.kind],
      ["Memory", gpu.memory === null ? null : `${(gpu.memory / 2 ** 30).toFixed(1)} GiB`], ["NUMA node", gpu.numa === null ? null : String(gpu.numa)],
      ["Time", gpu.seconds === null ? null : `${shown(gpu.seconds)} s`]]),
    gpu.checks.length ? [h("h2", null, "Checks"),
      gpu.checks.some((row) => spreadOf(gpu, kinds[row[0]].name)) && h("p", { class: "soft" },
        `Bars end at the peak, or at the best of the fleet where no peak is known. The grey band is the range of ${count(
          gpus.filter((one) => model(one) === model(gpu)).length, "GPU")} of this model, the line their median. A dotted line is a peak that was passed.`),
      checks(gpu.checks.map(check), gpu)] : null,
    gpu.samples ? [h("h2", null, "Under load"),
      h("p", null, gpu.samples.throttled.length
        ? `Clocks were held back: ${gpu.samples.throttled.map(([name, first, last]) => `${string(name)} (${first} to ${last} s)`).join(", ")}.`
        : "Nothing held the clocks back."),
      h("div", { class: "charts" }, curves(gpu.samples))] : null,
    h("h2", null, "Trend"), trend(gpu),
  ];

  const view = document.getElementById("view");
  let before = 0;
  const route = () => {
    let parts = [];
    try {
      parts = location.hash.slice(1).split("/").map(decodeURIComponent);
    } catch {
      parts = [];
    }
    const host = hosts.find((one) => one.name === parts[1]);
    const gpu = parts[0] === "gpu" ? host?.gpus[Number(parts[2])] : null;
    charts.forEach((one) => one.plot?.destroy());
    charts = [];
    resized.disconnect();
    const content = gpu ? gpuView(gpu) : parts[0] === "host" && host ? hostView(host) : null;
    if (content && !fleet.hidden) before = window.scrollY;
    view.replaceChildren(...(content || []).flat(Infinity).filter(Boolean));
    fleet.hidden = Boolean(content);
    view.hidden = !content;
    if (content) {
      redraw();
      charts.forEach((one) => resized.observe(one.holder));
      window.scrollTo(0, 0);
      view.querySelector("h2").focus({ preventScroll: true });
    } else {
      window.scrollTo(0, before);
    }
  };
  startFleet();
  window.addEventListener("hashchange", route);
  route();
  document.documentElement.dataset.ready = "true";
})();
