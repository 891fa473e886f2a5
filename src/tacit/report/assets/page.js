"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let page, boxes, names; // of the content that is shown
  const drawn = new Map(); // an element and the view in it
  const MOST_PANELS = 6, MOST_ROWS = 500, ERRORS = 1, EVERY = 2000; // of a layer without data Vega warns
  let round = 0, touched = false; // whether the reader has chosen runs

  const picked = () => boxes.filter((box) => box.checked).map((box) => box.dataset.run);
  const rowsOf = (figure, keys) => figure.rows.filter((row) => keys.includes(row[0]));

  // The specification of a figure with the rows of some runs; its legends name these runs only.
  function specOf(figure, keys) {
    const spec = structuredClone(figure.spec);
    const rows = rowsOf(figure, keys);
    spec.datasets = { rows: rows.map((row) => Object.fromEntries(figure.columns.map((name, i) => [name, row[i]]))) };
    const shown = new Set(rows.map((row) => row[figure.columns.indexOf("name")]));
    const restrict = (node) => {
      if (!node || typeof node !== "object") return;
      if (node.field === "name" && node.scale && node.scale.domain) {
        const kept = node.scale.domain.map((name, i) => [name, node.scale.range[i]]).filter(([name]) => shown.has(name));
        node.scale = { ...node.scale, domain: kept.map((one) => one[0]), range: kept.map((one) => one[1]) };
      }
      Object.values(node).forEach(restrict);
    };
    restrict(spec);
    return spec;
  }

  // A theme whose legends fit: as many columns as the longest name leaves room for, at most three.
  function themed(theme, figure, keys, width) {
    const place = figure.columns.indexOf("name");
    const longest = Math.max(8, ...rowsOf(figure, keys).map((row) => (place < 0 ? 0 : row[place].length)));
    const columns = Math.max(1, Math.min(3, Math.floor((width - 50) / (7 * longest + 45))));
    const config = structuredClone(theme);
    Object.assign(config.legend, { columns, labelLimit: Math.max(60, (width - 50) / columns - 45) });
    return config;
  }

  async function draw(element, figure, keys) {
    const before = drawn.get(element);
    if (before) before.finalize();
    drawn.delete(element);
    const empty = !rowsOf(figure, keys).length;
    element.replaceChildren(...(empty ? [Object.assign(document.createElement("p"), { className: "quiet", textContent: "None of the picked runs has data for this chart." })] : []));
    if (empty) return;
    const config = themed(dark.matches ? page.themes.dark : page.themes.light, figure, keys, element.clientWidth);
    const options = { actions: false, renderer: "svg", logLevel: ERRORS, config };
    drawn.set(element, await vegaEmbed(element, specOf(figure, keys), options));
  }

  function panel(kind, figure, key) {
    const made = document.createElement("div");
    made.className = "panel";
    const title = Object.assign(document.createElement("h4"), { className: "clip", dir: "auto", textContent: names.get(key) });
    const chart = Object.assign(document.createElement("div"), { className: "chart" });
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", `${figure.title}: ${names.get(key).slice(0, 80)}. The data are in the table below the charts.`);
    const tools = Object.assign(document.createElement("div"), { className: "tools" });
    for (const type of ["png", "svg"]) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: type.toUpperCase() });
      button.setAttribute("aria-label", `${figure.title}, ${names.get(key).slice(0, 80)}: download as ${type.toUpperCase()}`);
      button.addEventListener("click", () => save(kind, type, [key]));
      tools.append(button);
    }
    made.append(title, chart, tools);
    return [made, chart];
  }

  async function refresh() {
    const mine = ++round;
    const keys = picked();
    const status = document.getElementById("picked");
    if (status) status.textContent = `${keys.length} of ${boxes.length} runs in the charts`;
    for (const element of all("figure[data-kind]")) {
      if (mine !== round) return; // another choice was made meanwhile
      const kind = element.dataset.kind, figure = page.figures[kind];
      const table = element.querySelector("details.data");
      if (table.open) fill(table, figure, keys);
      if (!figure.panels) {
        await draw(element.querySelector(".chart"), figure, keys);
        continue;
      }
      const place = element.querySelector(".panels");
      all(".chart", place).forEach((chart) => { drawn.get(chart)?.finalize(); drawn.delete(chart); });
      place.replaceChildren();
      const having = keys.filter((key) => rowsOf(figure, [key]).length);
      for (const key of having.slice(0, MOST_PANELS)) {
        const [made, chart] = panel(kind, figure, key);
        place.append(made);
        await draw(chart, figure, [key]);
        if (mine !== round) return;
      }
      if (having.length > MOST_PANELS || !having.length) {
        const more = having.length ? `The first ${MOST_PANELS} of ${having.length} picked runs are shown.` : "None of the picked runs has data for this chart.";
        place.append(Object.assign(document.createElement("p"), { className: "quiet small", textContent: more }));
      }
    }
    document.body.dataset.drawn = String(mine);
  }

  // Tables of the charts' data, made when they are opened.
  function fill(details, figure, keys) {
    const rows = rowsOf(figure, keys);
    const skip = figure.columns.indexOf("name");
    const table = document.createElement("table");
    table.createCaption().textContent = rows.length > MOST_ROWS ? `${figure.title}: the first ${MOST_ROWS} of ${rows.length} rows; the CSV has all` : figure.title;
    const head = table.createTHead().insertRow();
    figure.headings.forEach((name, i) => {
      if (i === skip) return;
      const cell = Object.assign(document.createElement("th"), { scope: "col", textContent: name });
      head.append(cell);
    });
    const body = table.createTBody();
    for (const row of rows.slice(0, MOST_ROWS)) {
      const line = body.insertRow();
      row.forEach((value, i) => {
        if (i === skip) return;
        const cell = i ? line.insertCell() : Object.assign(document.createElement("th"), { scope: "row", dir: "auto", className: "name" });
        cell.textContent = i ? (value === null ? "–" : String(value)) : names.get(value);
        if (!i) line.append(cell);
      });
    }
    details.querySelector(".scroll").replaceChildren(table);
  }

  function offer(url, name) {
    const link = Object.assign(document.createElement("a"), { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
  }

  // Downloads are on white, at a width of their own, whatever the screen is.
  async function save(kind, type, keys) {
    const figure = page.figures[kind];
    const width = figure.panels ? 320 : 560;
    const spec = { ...specOf(figure, keys), width };
    const { view } = await vegaEmbed(document.createElement("div"), spec, { actions: false, renderer: "svg", logLevel: ERRORS, config: themed(page.themes.light, figure, keys, width) });
    if (type === "png") {
      offer(await view.toImageURL("png", 3), `${kind}.png`);
    } else {
      const url = URL.createObjectURL(new Blob([await view.toSVG()], { type: "image/svg+xml" }));
      offer(url, `${kind}.svg`);
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    }
    view.finalize();
  }

  function sort(column, header) {
    const body = document.querySelector("#table tbody");
    const up = header.getAttribute("aria-sort") === "none" ? column === 0 || column === 2 : header.getAttribute("aria-sort") !== "ascending";
    all("#table thead th").forEach((one) => one.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.children[column].dataset.value;
    const order = (a, b) => {
      const [one, two] = [value(a), value(b)];
      if (one === "" || two === "") return (one === "") - (two === ""); // without a number, last
      const difference = column ? Number(one) - Number(two) : one.localeCompare(two);
      return up ? difference : -difference;
    };
    body.append(...[...body.rows].sort(order));
  }

  function pick(which) {
    touched = true;
    boxes.forEach((box) => { box.checked = which === "all" || (which === "best" && page.best.includes(box.dataset.run)); });
    refresh();
  }

  // Makes the content work: the runs of `data`, and the choices of the reader before it was replaced.
  function start(data, before = { picked: new Map() }) {
    page = data;
    boxes = all("input[data-run]");
    names = new Map(page.runs.map((run) => [run.key, run.name]));
    boxes.forEach((box) => {
      const best = boxes.length <= page.best.length || page.best.includes(box.dataset.run);
      box.checked = touched ? before.picked.get(names.get(box.dataset.run)) ?? best : best;
      box.addEventListener("change", () => { touched = true; refresh(); });
    });
    all("[data-pick]").forEach((button) => button.addEventListener("click", () => pick(button.dataset.pick)));
    all("[data-sort]").forEach((button) => button.addEventListener("click", () => sort(Number(button.dataset.sort), button.closest("th"))));
    all("[data-save]").forEach((button) => button.addEventListener("click", () => save(button.closest("figure").dataset.kind, button.dataset.save, picked())));
    all("[data-download]").forEach((button) => button.addEventListener("click", () => {
      const file = page.downloads[button.dataset.download];
      const url = URL.createObjectURL(new Blob([file.text], { type: "text/plain;charset=utf-8" }));
      offer(url, file.name);
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    }));
    all("details.data").forEach((details) => details.addEventListener("toggle", () => {
      if (details.open) fill(details, page.figures[details.closest("figure").dataset.kind], picked());
    }));
    return refresh();
  }

  // What a reader has opened, sorted and picked, so that new content does not undo it.
  const nameOf = (details) => details.closest("figure")?.dataset.kind ?? details.closest("section").id + details.querySelector("summary").textContent;
  const selectorOf = (element) => {
    const [name, value] = Object.entries(element?.dataset ?? {}).find(([one]) => ["pick", "sort", "save", "download"].includes(one)) ?? [];
    const figure = element?.closest?.("figure")?.dataset.kind;
    return name && `${figure ? `figure[data-kind="${figure}"] ` : ""}[data-${name}="${value}"]`;
  };

  function choices() {
    const sorted = document.querySelector('th[aria-sort="ascending"], th[aria-sort="descending"]');
    return {
      picked: new Map(boxes.map((box) => [names.get(box.dataset.run), box.checked])),
      sorted: sorted && [sorted.cellIndex, sorted.getAttribute("aria-sort")],
      details: new Map(all("details").map((one) => [nameOf(one), one.open])),
      heights: new Map(all("figure[data-kind]").map((one) => [one.dataset.kind, one.offsetHeight])),
      focus: selectorOf(document.activeElement),
      focused: names.get(document.activeElement?.dataset?.run),
      scroll: [scrollX, scrollY],
    };
  }

  async function replace(next) {
    const before = choices();
    drawn.forEach((view) => view.finalize());
    drawn.clear();
    document.title = next.title;
    document.getElementById("content").innerHTML = next.content;
    const figures = all("figure[data-kind]");
    figures.forEach((one) => { one.style.minHeight = `${before.heights.get(one.dataset.kind) ?? 0}px`; }); // nothing jumps
    all("details").forEach((one) => { one.open = before.details.get(nameOf(one)) ?? one.open; });
    const ready = start(next.data, before);
    if (before.sorted) {
      const header = document.querySelectorAll("#table thead th")[before.sorted[0]];
      sort(before.sorted[0], header);
      if (header.getAttribute("aria-sort") !== before.sorted[1]) sort(before.sorted[0], header);
    }
    const box = boxes.find((one) => before.focused !== undefined && names.get(one.dataset.run) === before.focused);
    (box ?? (before.focus && document.querySelector(before.focus)))?.focus({ preventScroll: true });
    scrollTo({ left: before.scroll[0], top: before.scroll[1], behavior: "instant" });
    await ready;
    figures.forEach((one) => { one.style.minHeight = ""; });
  }

  // Asks the server on this machine for new content, again and again.
  async function follow() {
    const status = document.getElementById("live"), said = (words) => { if (status.textContent !== words) status.textContent = words; };
    let version = document.body.dataset.live;
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, EVERY));
      if (document.hidden) continue;
      try {
        const answer = await fetch("content", { cache: "no-store", headers: { "If-None-Match": version } });
        if (answer.status === 200) {
          await replace(await answer.json());
          version = answer.headers.get("ETag");
        } else if (answer.status !== 304) {
          throw new Error(answer.statusText);
        }
        said("Live: this page follows the runs.");
      } catch {
        said("The server has ended or does not answer. This is the last state it sent; tacit report --watch starts it again.");
      }
    }
  }

  dark.addEventListener("change", refresh);
  addEventListener("beforeprint", () => all("details.card").forEach((one) => { one.open = true; }));
  start(JSON.parse(document.getElementById("data").textContent));
  if ("live" in document.body.dataset) follow();
})();
