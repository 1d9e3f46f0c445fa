"use strict";
// Draws the report from the data in the page. Text reaches the page by textContent and attributes only, never as HTML:
// a run's name is whatever somebody called it.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = 10;
  const DASHES = ["", "6 4", "2 3", "9 3 2 3"];
  const PAGE = 40;

  // --- elements and numbers ---------------------------------------------------------------------------------------

  function make(parent, tag, text, properties = {}) {
    const element = document.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = text;
    for (const [name, value] of Object.entries(properties)) {
      if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    parent.append(element);
    return element;
  }

  function draw(parent, tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  const unbroken = (text) => (text.length < 16 ? text.replace(/-/g, "\u2011").replace(/ /g, "\u00a0") : text);
  const whole = (x) => x.toLocaleString("en-GB");

  function digitsOf(x) {  // the rule of numbers.py
    const size = Math.abs(x);
    return size >= 1000 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  }

  function number(x, decimals) {
    if (x === null || x === undefined) return "–";
    if (Math.abs(x) >= 1e15) return x.toPrecision(6).replace("-", "−");
    const text = Math.abs(x).toFixed(decimals ?? digitsOf(x));
    return (x < 0 && Number(text) !== 0 ? "−" : "") + text;
  }

  function unitOf(seconds) {
    return seconds < 90 ? ["seconds", 1] : seconds < 5400 ? ["minutes", 60] : ["hours", 3600];
  }

  function duration(seconds) {
    if (!seconds) return "–";
    if (seconds < 90) return `${seconds.toFixed(0)} s`;
    if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }

  function ticks(low, high, wanted) {
    const raw = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
    const marks = [];
    for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) marks.push(i * step);
    return marks;
  }

  function tickNames(marks) {  // as many digits as it takes that no two are alike
    const size = Math.max(...marks.map(Math.abs)), step = marks.length > 1 ? marks[1] - marks[0] : size || 1;
    return marks.map((mark) => {
      const far = Math.abs(mark);
      const [unit, suffix] = size < 1e4 || far < 1e3 ? [1, ""] : far >= 1e6 ? [1e6, "M"] : [1e3, "k"];
      const digits = Math.min(20, Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9)));
      const text = Number((far / unit).toFixed(digits)).toLocaleString("en-GB", { maximumFractionDigits: digits });
      return (mark < 0 && far > 0 ? "−" : "") + text + suffix;
    });
  }

  // --- line charts ------------------------------------------------------------------------------------------------

  const BANDS = {
    interval: { name: "95 % interval of the mean", of: (c, i) => [c.low[i], c.high[i]] },
    half: { name: "half a standard deviation", of: (c, i) => [c.mean[i] - c.std[i] / 2, c.mean[i] + c.std[i] / 2] },
    none: { name: "no band", of: (c, i) => [c.mean[i], c.mean[i]] },
  };

  function unpack(curve, band, window) {
    const x = curve.x ?? data.grids[curve.grid];
    const edges = x.map((_, i) => BANDS[band].of(curve, i));
    return {
      x, runs: curve.runs, std: curve.std,
      mean: smooth(curve.mean, window), low: smooth(edges.map((e) => e[0]), window), high: smooth(edges.map((e) => e[1]), window),
    };
  }

  function smooth(values, window) {  // centred moving average, narrower at the ends
    if (window <= 1) return values;
    return values.map((_, i) => {
      const reach = Math.min(Math.floor(window / 2), i, values.length - 1 - i);
      let sum = 0;
      for (let j = i - reach; j <= i + reach; j++) sum += values[j];
      return sum / (2 * reach + 1);
    });
  }

  // lines: [{label, style, curve, on, seeds: [{x, y}]}]; returns a function that draws again.
  function lineChart(parent, { xLabel, yLabel, height, lines, options }) {
    const frame = make(parent, "div", null, { className: "chart" });
    const tip = make(frame, "div", null, { className: "tip", hidden: true });
    let svg = null, at = null, scale = null, shown = [], known = [];

    function redraw() {
      const width = Math.max(frame.clientWidth, 220);
      const tall = height ? height(width) : Math.round(Math.min(430, Math.max(270, width * 0.5)));
      const { band, window } = options();
      shown = lines().filter((line) => line.on).map((line) => ({ ...line, ...unpack(line.curve, band, window) }));
      if (svg) svg.remove();
      svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("height", tall);
      svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${yLabel} against ${xLabel}: ${shown.map((l) => l.label).join(", ")}`);
      frame.prepend(svg);
      known = [...new Set(shown.flatMap((line) => line.x))].sort((a, b) => a - b);
      tip.hidden = true;
      at = null;
      if (!shown.length) {
        draw(svg, "text", { x: width / 2, y: tall / 2, "text-anchor": "middle" }, "no line is switched on");
        return;
      }
      const seeds = shown.flatMap((l) => (l.seeds ?? []).map((s) => ({ ...s, style: l.style, y: smooth(s.y, window) })));
      let low = Math.min(...[...shown.map((l) => l.low), ...seeds.map((s) => s.y)].map((ys) => Math.min(...ys)));
      let high = Math.max(...[...shown.map((l) => l.high), ...seeds.map((s) => s.y)].map((ys) => Math.max(...ys)));
      const spans = [...shown, ...seeds].map((l) => l.x);
      const first = Math.min(...spans.map((xs) => xs[0])), last = Math.max(...spans.map((xs) => xs[xs.length - 1]));
      const room = (high - low || Math.abs(high) || 1) * 0.05;
      low -= room;
      high += room;
      const marks = ticks(low, high, tall / 55);
      const names = tickNames(marks);
      const box = { left: 12 + 6.6 * Math.max(...names.map((n) => n.length)), right: width - 12, top: 20, bottom: tall - 36 };
      // From nought where that is near, or where there is but one place: an axis without a length tells nothing.
      const start = first > 0 && (first < last * 0.2 || first === last) ? 0 : first === last ? first - 1 : first;
      const sx = (x) => box.left + ((x - start) / (last - start || 1)) * (box.right - box.left);
      const sy = (y) => box.bottom - ((y - low) / (high - low)) * (box.bottom - box.top);
      const back = (px) => start + ((px - box.left) / (box.right - box.left)) * (last - start);
      scale = { box, sx, sy, back, width };
      marks.forEach((m, i) => {
        draw(svg, "line", { class: "grid", x1: box.left, x2: box.right, y1: sy(m), y2: sy(m) });
        draw(svg, "text", { x: box.left - 6, y: sy(m) + 4, "text-anchor": "end" }, names[i]);
      });
      const along = ticks(start, last, (box.right - box.left) / 75);
      tickNames(along).forEach((name, i) => {
        draw(svg, "text", { class: "x", x: sx(along[i]), y: box.bottom + 16, "text-anchor": "middle" }, name);
      });
      draw(svg, "text", { x: box.right, y: tall - 4, "text-anchor": "end" }, xLabel);
      draw(svg, "text", { x: 0, y: 11 }, yLabel);
      for (const l of shown) {
        if (band !== "none" && l.x.length > 1) {
          const upper = l.x.map((x, i) => `${sx(x).toFixed(1)},${sy(l.high[i]).toFixed(1)}`);
          const lower = l.x.map((x, i) => `${sx(x).toFixed(1)},${sy(l.low[i]).toFixed(1)}`).reverse();
          draw(svg, "polygon", { points: [...upper, ...lower].join(" "), fill: `var(--c${l.style.colour})`, opacity: 0.14 });
        }
      }
      for (const s of seeds) {
        const stroke = `var(--c${s.style.colour})`;
        const points = s.x.map((x, i) => `${sx(x).toFixed(1)},${sy(s.y[i]).toFixed(1)}`).join(" ");
        draw(svg, "polyline", { class: "seed", points, fill: "none", stroke, "stroke-width": 0.9, opacity: 0.55 });
      }
      for (const l of shown) {
        const stroke = `var(--c${l.style.colour})`;
        if (l.x.length === 1) draw(svg, "circle", { cx: sx(l.x[0]), cy: sy(l.mean[0]), r: 4, fill: stroke, class: "line" });
        else {
          const points = l.x.map((x, i) => `${sx(x).toFixed(1)},${sy(l.mean[i]).toFixed(1)}`).join(" ");
          draw(svg, "polyline", { class: "line", points, fill: "none", stroke, "stroke-width": 1.9, "stroke-linejoin": "round", "stroke-dasharray": l.style.dash });
        }
      }
    }

    function nearest(xs, x) {
      let a = 0, b = xs.length - 1;
      while (b - a > 1) {
        const c = (a + b) >> 1;
        if (xs[c] <= x) a = c;
        else b = c;
      }
      return x - xs[a] <= xs[b] - x ? a : b;
    }

    function point(x) {
      svg.querySelectorAll(".hover").forEach((e) => e.remove());
      if (!shown.length) return;
      at = x;
      const { sx, sy, box, width } = scale;
      // Only lines that have begun here and have not ended.
      const near = shown.filter((l) => l.x[0] <= x && x <= l.x[l.x.length - 1]).map((l) => ({ l, i: nearest(l.x, x) }));
      const px = sx(x);
      draw(svg, "line", { class: "hover cross", x1: px, x2: px, y1: box.top, y2: box.bottom });
      for (const { l, i } of near) draw(svg, "circle", { class: "hover", cx: sx(l.x[i]), cy: sy(l.mean[i]), r: 3.5, fill: `var(--c${l.style.colour})` });
      tip.replaceChildren();
      make(tip, "div", `${xLabel}: ${Number.isInteger(x) ? whole(x) : number(x)}`, { className: "soft" });
      const table = make(tip, "table");
      near.sort((p, q) => q.l.mean[q.i] - p.l.mean[p.i]);
      for (const { l, i } of near.slice(0, 14)) {
        const row = make(table, "tr");
        const dot = make(row, "td");
        const key = draw(dot, "svg", { width: 10, height: 10 });
        draw(key, "circle", { cx: 5, cy: 5, r: 4.5, fill: `var(--c${l.style.colour})` });
        make(row, "td", l.label, { className: "name" });
        make(row, "td", number(l.mean[i]), { className: "value" });
        const spread = options().band === "none" || l.runs[i] < 2 ? "" : `${number(l.low[i])} … ${number(l.high[i])}`;
        make(row, "td", spread, { className: "soft" });
        const other = l.x[i] === x ? "" : `, at ${Number.isInteger(l.x[i]) ? whole(l.x[i]) : number(l.x[i])}`;
        make(row, "td", `n ${l.runs[i]}${other}`, { className: "soft" });
      }
      if (near.length > 14) make(tip, "div", `and ${near.length - 14} more`, { className: "soft" });
      tip.hidden = false;
      const wide = tip.offsetWidth, right = px + 14 + wide <= width;
      tip.style.left = `${right ? px + 14 : Math.max(0, px - 14 - wide)}px`;
    }

    function leave() {
      if (svg) svg.querySelectorAll(".hover").forEach((e) => e.remove());
      tip.hidden = true;
      at = null;
    }

    function track(event) {
      if (!scale || !shown.length) return;
      const bounds = svg.getBoundingClientRect();
      const x = ((event.clientX - bounds.left) / bounds.width) * scale.width;
      point(known[nearest(known, scale.back(x))]);
    }

    frame.addEventListener("pointermove", track);
    frame.addEventListener("pointerdown", track);
    frame.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
    document.addEventListener("pointerdown", (event) => { if (!frame.contains(event.target)) leave(); });
    frame.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") leave();
      if (!move || !shown.length) return;
      event.preventDefault();
      const i = at === null ? (move > 0 ? -1 : known.length) : nearest(known, at);
      point(known[Math.min(Math.max(i + move, 0), known.length - 1)]);
    });
    let width = frame.clientWidth;
    redraw();
    new ResizeObserver(() => {
      if (frame.clientWidth !== width) {
        width = frame.clientWidth;
        redraw();
      }
    }).observe(frame);
    return redraw;
  }

  function styles(labels) {  // ours takes the first colours, so that it looks the same everywhere; beyond ten, dashes
    const ours = (label) => label.includes("CaRe-BN");
    const ordered = [...labels.filter(ours), ...labels.filter((label) => !ours(label))];
    return new Map(ordered.map((label, i) => [label, { colour: i % COLOURS, dash: DASHES[Math.floor(i / COLOURS) % DASHES.length] }]));
  }

  function legend(parent, labels, look, off, changed) {
    const box = make(parent, "div", null, { className: "legend" });
    for (const label of labels) {
      const button = make(box, "button", null, { type: "button", title: "Click: on and off. Double-click: this one alone." });
      const key = draw(button, "svg", { width: 22, height: 10 });
      const { colour, dash } = look.get(label);
      draw(key, "line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: `var(--c${colour})`, "stroke-width": 3, "stroke-dasharray": dash });
      make(button, "span", label);
      button.dataset.label = label;
      button.addEventListener("click", () => {
        if (!off.delete(label)) off.add(label);
        refresh();
      });
      button.addEventListener("dblclick", () => {
        const alone = labels.every((other) => other === label || off.has(other));
        off.clear();
        if (!alone) for (const other of labels) if (other !== label) off.add(other);
        refresh();
      });
    }
    function refresh() {
      for (const button of box.children) button.setAttribute("aria-pressed", String(!off.has(button.dataset.label)));
      changed();
    }
    for (const button of box.children) button.setAttribute("aria-pressed", String(!off.has(button.dataset.label)));
    return box;
  }

  function choice(parent, name, values, chosen, changed) {
    const label = make(parent, "label", name);
    const select = make(label, "select");
    for (const [value, text] of values) make(select, "option", text, { value });
    select.value = chosen;
    select.addEventListener("change", () => changed(select.value));
    return select;
  }

  function table(parent, heads, left = [0]) {
    const scroll = make(parent, "div", null, { className: "scroll" });
    const element = make(scroll, "table", null, { className: "data" });
    const row = make(make(element, "thead"), "tr");
    heads.forEach((head, i) => make(row, "th", head, { scope: "col", className: left.includes(i) ? "left" : "" }));
    return make(element, "tbody");
  }

  function plusMinus(pair, decimals) {  // both with the digits that suit the mean
    if (!pair) return "–";
    const digits = decimals ?? digitsOf(pair[0]);
    return number(pair[0], digits) + (pair[1] === null ? "" : ` ± ${number(pair[1], digits)}`);
  }

  // --- the head of the page ---------------------------------------------------------------------------------------

  const state = { band: "interval", window: 1 };
  const redraws = [];

  function head() {
    document.getElementById("made").textContent = `Made by carebn ${data.version} from the runs below. Everything is in this one file.`;
    const facts = document.getElementById("facts");
    for (const [value, name] of data.facts) {
      const item = make(facts, "li");
      make(item, "b", value);
      item.append(name);
    }
    if (data.problems.length) {
      const box = make(document.getElementById("problems"), "details", null, { className: "notice", open: data.problems.length < 6 });
      make(box, "summary", data.problems.length === 1 ? "One directory was left out" : `${data.problems.length} directories were left out`);
      const list = make(box, "ul");
      for (const problem of data.problems.slice(0, 200)) make(list, "li", problem);
    }
    for (const gap of data.gaps) make(document.getElementById("problems"), "p", gap, { className: "notice small" });
  }

  // --- all runs, by environment -----------------------------------------------------------------------------------

  function explorer() {
    const section = document.getElementById("explorer");
    make(section, "h2", "Learning curves", { id: "curves" });
    make(section, "p", "All runs found, by environment: the mean over seeds. Hover or tap for values; click a method to switch it off and on, double-click to see it alone.", { className: "soft" });
    const card = make(section, "div", null, { className: "card" });
    const controls = make(card, "div", null, { className: "controls" });
    const body = make(card, "div");
    const off = new Set();
    let env = data.opens, what = "evaluation", against = "steps", everySeed = false;
    const everything = [...new Set(data.environments.flatMap((e) => e.lines.map((l) => l.label)))];
    const look = styles(everything);

    choice(controls, "environment", data.environments.map((e) => [e.id, e.id]), env, (value) => { env = value; show(); }).id = "environment";
    choice(controls, "returns", [["evaluation", "in evaluations"], ["exploration", "while exploring"]], what, (value) => { what = value; show(); }).id = "what";
    choice(controls, "band", Object.entries(BANDS).map(([k, v]) => [k, v.name]), state.band, (value) => { state.band = value; redraws.forEach((f) => f()); }).id = "band";
    const axis = choice(controls, "against", [["steps", "environment steps"], ["time", "time of training"]], against, (value) => { against = value; show(); });
    axis.id = "against";
    const toggle = make(controls, "label", "every seed");
    const box = make(toggle, "input", null, { type: "checkbox", id: "seeds" });
    box.addEventListener("change", () => { everySeed = box.checked; current(); });
    const slider = make(controls, "label", "smoothing");
    const range = make(slider, "input", null, { type: "range", min: 1, max: 31, step: 2, value: 1, id: "smoothing" });
    range.addEventListener("input", () => { state.window = Number(range.value); redraws.forEach((f) => f()); });

    let current = () => {};
    redraws.push(() => current());
    function show() {
      body.replaceChildren();
      const lines = data.environments.find((e) => e.id === env).lines;
      const evaluated = what === "evaluation", timed = evaluated && against === "time";
      axis.disabled = box.disabled = !evaluated;  // of exploration there are means over seeds and steps only
      const drawn = lines.filter((l) => l[what] && (!timed || l.seconds));
      if (drawn.length) {
        const [unit, size] = timed ? unitOf(Math.max(...drawn.map((l) => l.seconds[l.seconds.length - 1]))) : ["", 1];
        const scaled = (seconds) => seconds.map((x) => x / size);
        const seedsOf = (l) => l.bySeed.filter((s) => !timed || s.seconds)
          .map((s) => ({ x: timed ? scaled(s.seconds) : data.grids[s.grid], y: s.returns }));
        current = lineChart(body, {
          xLabel: timed ? `${unit} of training` : "environment steps",
          yLabel: evaluated ? "return" : "return while exploring", options: () => state,
          lines: () => drawn.map((l) => ({
            label: l.label, style: look.get(l.label), on: !off.has(l.label), seeds: evaluated && everySeed ? seedsOf(l) : [],
            curve: timed ? { ...l.evaluation, x: scaled(l.seconds) } : l[what],
          })),
        });
        legend(body, drawn.map((l) => l.label), look, off, () => current());
        const notes = [];
        if (evaluated) {
          const first = Math.min(...drawn.map((l) => data.grids[l.evaluation.grid][0]));
          notes.push(`Curves begin at the first evaluation, after ${whole(first)} steps.`);
        }
        if (timed) notes.push("Time is the wall clock of training, averaged over seeds; other programs on the machine count too.");
        const untimed = timed ? lines.filter((l) => l.evaluation && !l.seconds).map((l) => l.label) : [];
        if (untimed.length) notes.push(`Without recorded times: ${untimed.join(", ")}.`);
        if (notes.length) make(body, "p", notes.join(" "), { className: "soft small", id: "curve-notes" });
      } else {
        current = () => {};
        make(body, "p", timed ? "No run here has recorded its times." : "There is nothing to draw yet.", { className: "soft" });
      }
      const last = lines.every((l) => l.hasTen) ? "last ten evaluations" : "last evaluations (ten, or all there are)";
      const rows = table(body, ["method", "max average return", last, "seeds", "complete"]);
      for (const l of [...lines].sort((a, b) => (b.best ? b.best[0] : -Infinity) - (a.best ? a.best[0] : -Infinity))) {
        const row = make(rows, "tr");
        make(row, "td", l.label);
        make(row, "td", plusMinus(l.best));
        make(row, "td", plusMinus(l.last));
        make(row, "td", l.seeds);
        make(row, "td", l.complete === l.begun ? "yes" : `${l.complete} of ${l.begun}`);
      }
      make(body, "p", "± is one standard deviation over seeds. Unfinished runs count here with the evaluations they have.", { className: "soft small" });
    }
    show();
  }

  // --- the paper's tables and figures -----------------------------------------------------------------------------

  function returnsTable(card, view) {
    const { columns, rows, rowsBegun, columnsBegun } = view.table;
    make(card, "p", "Ours in bold, with the number of seeds; the paper's below. ▲ and ▼ mark a difference larger than both standard deviations together, which takes two seeds.", { className: "soft small" });
    const place = make(card, "div"), every = (list) => list.map((_, i) => i);
    const left = [[rows.length - rowsBegun.length, "row"], [columns.length - columnsBegun.length, "column"]];
    const hidden = left.filter(([n]) => n).map(([n, name]) => `${n} ${name}${n > 1 ? "s" : ""}`).join(" and ");
    drawTable(place, view.table, rowsBegun, columnsBegun);
    if (!hidden) return;
    const more = `Without a run here: ${hidden}. Show the whole table`;
    const button = make(card, "button", more, { type: "button", className: "whole small" });
    let full = false;
    button.addEventListener("click", () => {
      full = !full;
      place.replaceChildren();
      drawTable(place, view.table, full ? every(rows) : rowsBegun, full ? every(columns) : columnsBegun);
      button.textContent = full ? "Show only what there are runs of" : more;
    });
  }

  function drawTable(parent, { columns, summaries, rows, decimals }, theseRows, theseColumns) {
    const names = theseColumns.map((i) => columns[i].replace("InvertedDoublePendulum", "IDP"));
    const body = table(parent, ["", ...names, ...summaries]);
    for (const line of theseRows.map((i) => rows[i])) {
      const row = make(body, "tr");
      make(row, "td", unbroken(line.label));
      for (const n of theseColumns.map((i) => line.numbers[i])) {
        const cell = make(row, "td");
        if (n.ours) {
          make(cell, "span", plusMinus(n.ours, decimals), { className: "ours" });
          make(cell, "span", `(${n.seeds})`, { className: "seeds" });
        }
        else make(cell, "span", n.unfinished ? `unfinished (${n.unfinished})` : n.published ? "missing" : "–", { className: "missing" });
        if (n.published) make(cell, "span", `paper ${plusMinus(n.published, decimals)}`, { className: "paper" });
        if (n.difference) {
          const sign = { above: "▲ ", below: "▼ " }[n.mark] || "";
          make(cell, "span", sign + n.difference, { className: `mark ${n.mark || "soft"}` });
        }
      }
      for (const [ours, paper] of line.summaries) {
        const cell = make(row, "td");
        make(cell, "span", ours === null ? "–" : number(ours, 2), { className: ours === null ? "missing" : "ours" });
        if (paper !== null) make(cell, "span", `paper ${number(paper, 2)}`, { className: "paper" });
      }
    }
  }

  function bars(card, view) {
    make(card, "p", `${view.barLabel}. A red line is the paper's number, where it prints one.`, { className: "soft small" });
    const box = make(card, "div", null, { className: "bars" });
    const top = Math.max(...view.bars.flatMap((b) => [b.value, b.published, b.interval && b.interval[1]]).filter((x) => x !== null), 0) || 1;
    const absent = view.bars.filter((b) => b.value === null && b.published === null).map((b) => b.label);
    if (absent.length) make(card, "p", `missing: ${absent.join(", ")}`, { className: "soft small" });
    for (const bar of view.bars.filter((b) => !absent.includes(b.label))) {
      make(box, "div", bar.label);
      const svg = draw(box, "svg", { role: "img", "aria-label": `${bar.label}: ${number(bar.value)}` });
      const at = (x) => `${(Math.max(x, 0) / top) * 78}%`;
      if (bar.value === null) draw(svg, "text", { x: 0, y: 17, class: "missing" }, "missing");
      else {
        draw(svg, "rect", { class: "fill", x: 0, y: 4, height: 18, width: at(bar.value), rx: 3 });
        const end = Math.max(bar.value, bar.interval ? bar.interval[1] : 0, bar.published || 0);
        draw(svg, "text", { x: at(end), y: 17, dx: 8 }, number(bar.value));
      }
      if (bar.interval) {
        draw(svg, "line", { class: "whisker", x1: at(bar.interval[0]), x2: at(bar.interval[1]), y1: 13, y2: 13 });
        for (const edge of bar.interval) draw(svg, "line", { class: "whisker", x1: at(edge), x2: at(edge), y1: 8, y2: 18 });
      }
      if (bar.published !== null) draw(svg, "line", { class: "published", x1: at(bar.published), x2: at(bar.published), y1: 2, y2: 24 });
    }
  }

  function panels(card, view) {
    const labels = [...new Set(view.panels.flatMap((p) => p.lines.map((l) => l.label)))];
    const look = styles(labels), off = new Set(), mine = [];
    const grid = make(card, "div", null, { className: view.panels.length > 1 ? "panels" : "" });
    for (const panel of view.panels) {
      const box = make(grid, "div", null, { className: "panel" });
      make(box, "h4", panel.title);
      const again = lineChart(box, {
        xLabel: panel.xLabel, yLabel: panel.yLabel, options: () => state,
        height: view.panels.length > 1 ? (width) => Math.round(Math.min(260, Math.max(190, width * 0.62))) : undefined,
        lines: () => panel.lines.map((l) => ({ label: l.label, style: look.get(l.label), curve: l.curve, on: !off.has(l.label) })),
      });
      mine.push(again);
      redraws.push(again);
      if (panel.missing.length) make(box, "p", `missing: ${panel.missing.join(", ")}`, { className: "soft small" });
    }
    legend(card, labels, look, off, () => mine.forEach((f) => f()));
  }

  function studies() {
    const section = document.getElementById("studies");
    make(section, "h2", "Beside the paper", { id: "paper" });
    if (!data.studies.length) make(section, "p", "None of the complete runs belongs to a table or figure of the paper.", { className: "soft" });
    data.studies.forEach((view, i) => {
      // Where there is nothing to compare yet, a line is enough; but one study is always open.
      const open = i === 0 || view.labels.length > 1;
      const card = make(section, "details", null, { className: "card", id: `study-${view.name}`, open });
      const line = make(card, "summary");
      make(line, "h3", `${view.where}: ${view.title}`);
      if (view.labels.length === 1) make(line, "span", ` ${view.labels[0]} alone`, { className: "soft small" });
      const made = `${view.made[0].toUpperCase()}${view.made.slice(1)}.`;
      if (view.reduced) make(card, "p", `${made} The paper's runs have ${whole(data.paperSteps)} steps, so numbers are not expected to agree.`, { className: "notice small" });
      else make(card, "p", made, { className: "soft small" });
      if (view.note) make(card, "p", view.note, { className: "soft small" });
      if (view.table) returnsTable(card, view);
      if (view.bars.length) bars(card, view);
      if (view.panels.length) panels(card, view);
      for (const problem of view.problems) make(card, "p", problem, { className: "notice small" });
    });
    if (data.absent.length) {
      const box = make(section, "details", null, { id: "absent" });
      const all = data.absent.length;
      make(box, "summary", all === 1 ? "One table or figure of the paper has nothing to show here" : `${all} tables and figures of the paper have nothing to show here`);
      const list = make(box, "ul", null, { className: "plain" });
      for (const study of data.absent) {
        const item = make(list, "li", `${study.where}: ${study.title} `);
        make(item, "code", study.command);
        if (study.why) make(item, "div", study.why, { className: "soft small" });
      }
    }
  }

  // --- how each run was made --------------------------------------------------------------------------------------

  function runs() {
    const section = document.getElementById("how");
    make(section, "h2", "How each run was made", { id: "runs" });
    const card = make(section, "div", null, { className: "card" });
    const controls = make(card, "div", null, { className: "controls" });
    const label = make(controls, "label", "find");
    const search = make(label, "input", null, { type: "search", placeholder: "method, environment, seed …", id: "find" });
    const body = table(card, ["run", "environment", "method", "seed", "steps", "best return", "time", "steps/s"], [0, 1, 2]);
    const paging = make(card, "div", null, { className: "paging" });
    const back = make(paging, "button", "‹ before", { type: "button" });
    const where = make(paging, "span", null, { className: "soft small" });
    const next = make(paging, "button", "next ›", { type: "button" });
    let page = 0, found = data.runs;

    function show() {
      body.replaceChildren();
      const pages = Math.max(1, Math.ceil(found.length / PAGE));
      page = Math.min(Math.max(page, 0), pages - 1);
      for (const run of found.slice(page * PAGE, (page + 1) * PAGE)) {
        const row = make(body, "tr");
        const name = make(make(row, "td"), "button", run.name, { type: "button", className: "open" });
        name.setAttribute("aria-expanded", "false");
        make(row, "td", run.env, { className: "left" });
        make(row, "td", run.method, { className: "left" });
        make(row, "td", run.seed);
        const unsaved = run.step === run.total ? ", not saved" : ` of ${whole(run.total)}`;
        make(row, "td", whole(run.step) + (run.complete ? "" : unsaved));
        make(row, "td", number(run.best));
        make(row, "td", duration(run.seconds));
        make(row, "td", run.speed === null ? "–" : number(run.speed, 0));
        let detail = null;
        name.addEventListener("click", () => {
          name.setAttribute("aria-expanded", String(!detail));
          if (detail) {
            detail.remove();
            detail = null;
            return;
          }
          detail = document.createElement("tr");
          const cell = make(detail, "td", null, { colSpan: 8, className: "left wrap" });
          make(cell, "pre", run.command || "its command was not recorded");
          const used = [run.processor, run.processorSeconds === null ? "" : `${duration(run.processorSeconds)} of processor time`, run.mebibytes === null ? "" : `${number(run.mebibytes, 0)} MiB at most`];
          if (used.some(Boolean)) make(cell, "div", used.filter(Boolean).join(" · "), { className: "soft small" });
          make(cell, "div", Object.entries(data.versions[run.versions]).map(([k, v]) => `${k} ${v}`).join(" · "), { className: "soft small" });
          row.after(detail);
        });
      }
      const all = found.length === 1 ? "1 run" : `${whole(found.length)} runs`;
      where.textContent = !found.length ? "no run matches" : pages === 1 ? all : `${page * PAGE + 1} to ${Math.min(found.length, (page + 1) * PAGE)} of ${all}`;
      back.disabled = page === 0;
      next.disabled = page === pages - 1;
      back.hidden = next.hidden = pages === 1;
    }
    back.addEventListener("click", () => { page--; show(); });
    next.addEventListener("click", () => { page++; show(); });
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      found = data.runs.filter((run) => {
        const text = `${run.name} ${run.env} ${run.method} seed ${run.seed}`.toLowerCase();
        return words.every((word) => text.includes(word));
      });
      page = 0;
      show();
    });
    show();
  }

  head();
  explorer();
  studies();
  runs();
})();
