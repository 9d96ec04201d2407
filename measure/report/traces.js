// Draws the figures of `measure.report.traces`: values over a run, in rows. All figures of a page zoom and point together.
const TALLEST_SQUARE = 560, MANY_ROWS = 6, POINT_HEIGHT = 10;

const FIGURES = JSON.parse(document.getElementById("traces").textContent).map((data) => {
  const lengths = Array.isArray(data.edges.lengths) ? data.edges.lengths : unpack(data.edges.lengths);
  const edges = new Float64Array(lengths.length + 1);
  edges[0] = data.edges.start;
  for (let n = 0; n < lengths.length; n++) edges[n + 1] = edges[n] + lengths[n];
  const middles = Float64Array.from(lengths, (length, n) => edges[n] + length / 2);
  const rows = (data.rows ?? []).map((row) => ({ ...row, shown: !data.shown.length || data.shown.includes(row.title),
    lines: row.lines.map((line) => {
      const parts = line.parts.map(unpack);
      return { ...line, low: parts[0], values: parts.at(parts.length >> 1), high: parts.at(-1), whole: parts.length === 1 };
    }) }));
  const strip = data.strip && { ...data.strip, phases: unpack(data.strip.phases), groups: unpack(data.strip.groups) };
  const square = data.square && { ...data.square, values: unpack(data.square.values) };
  return { data, edges, middles, rows, strip, square, element: document.querySelector(`[data-traces="${data.name}"]`), plots: [] };
});
const WHOLE = [FIGURES[0].edges[0], FIGURES[0].edges.at(-1)];
let view = WHOLE;

// The number of the interval or bucket of a figure that has `at`.
function indexOf(edges, at) {
  let low = 0, high = edges.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= at) low = middle; else high = middle - 1;
  }
  return low;
}

// Limits that show all but single extremes.
function most(values) {
  const sorted = Float64Array.from(values).filter(Number.isFinite).sort();
  if (!sorted.length) return [0, 1];
  const low = quantile(sorted, 0.004), high = quantile(sorted, 0.996);
  const least = 1e-3 * Math.max(Math.abs(low), Math.abs(high));  // differences of a millionth would fill the picture
  const margin = high === low ? Math.max(1e-3, 0.1 * Math.abs(high)) : Math.max(0.08 * (high - low), (least - high + low) / 2);
  return [sorted[0] >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
}

function setUpFigure(figure) {
  const { element, rows } = figure;
  const tools = element.querySelector(".tools");
  figure.host = document.createElement("div");
  figure.host.className = "rows zoomable";
  figure.output = document.createElement("output");
  figure.output.setAttribute("aria-live", "off");
  tools.after(figure.output, figure.host);
  if (rows.length > MANY_ROWS) {
    const choice = document.createElement("fieldset");
    choice.innerHTML = "<legend>Shown</legend>" + rows.map((row, n) =>
      `<label><input type="checkbox" value="${n}"${row.shown ? " checked" : ""}> ${escapeText(row.title)}</label>`).join("");
    choice.addEventListener("change", (event) => {
      rows[event.target.value].shown = event.target.checked;
      drawFigure(figure);
    });
    tools.after(choice);
  }
  element.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.zoom) zoomTo(zoomedBy(button.dataset.zoom, view));
    if (button && "csv" in button.dataset) downloadCsv(...tableOf(figure));
  });
}

function zoomTo(ends) {
  const { edges } = FIGURES[0], least = 4 * (WHOLE[1] - WHOLE[0]) / (edges.length - 1);
  view = zoomInto(WHOLE, ends, Math.min(WHOLE[1] - WHOLE[0], least));
  FIGURES.forEach(drawFigure);
}

function drawFigure(figure) {
  const { host, data, edges, strip, square } = figure;
  const first = indexOf(edges, view[0]), last = indexOf(edges, view[1]) + 1;
  const rows = figure.rows.filter((row) => row.shown);
  figure.plots = [];
  const fragment = [...rows, ...(strip ? [strip] : []), ...(square ? [square] : [])].map(() => {
    const cell = document.createElement("div");
    cell.className = "plot";
    return cell;
  });
  host.replaceChildren(...fragment);
  rows.forEach((row, n) => {
    const label = n === rows.length - 1 ? data.unit : "";
    add(figure, fragment[n], row.title, row.lines, {
      x: view, height: label ? 128 : 104, xLabel: label,
      y: most(row.lines.flatMap((line) => [...line.low.subarray(first, last), ...line.high.subarray(first, last)])),
      body: (px, py) => zonesOf(row, px) + row.lines.map((line, n) => lineOf(figure, line, n < row.lines.length - 1, first, last, px, py)).join(""),
    }, (k) => row.lines.map((line) => line.whole ? shown(line.values[k], 4)
      : `${shown(line.values[k], 4)} (${shown(line.low[k])} to ${shown(line.high[k])})`));
  });
  if (strip) {
    const count = Math.max(...strip.phases) + 1, shown = Math.min(count, 14);
    const above = strip.points.length ? (POINT_HEIGHT * count) / (12 * shown) : 0;
    add(figure, fragment[0], strip.title, strip.names, {
      x: view, y: [-0.7, count - 0.3 + above], height: 58 + 12 * Math.max(3, shown), integers: true, xLabel: data.unit,
      body: (px, py) => marksOf(figure, first, last, px, py),
    }, (k) => [`phase ${strip.phases[k]}, ${strip.names[strip.groups[k]].label}`]);
  }
  if (square) drawSquare(figure, fragment[0]);
}

function add(figure, cell, title, lines, options, valuesAt) {
  const plot = drawPlot(cell, { ...options, title, label: `${title} over ${figure.data.unit}` });
  const heading = cell.querySelector(".title");
  const keyed = lines.length > 1 && !figure.strip, named = figure.strip ? lines : keyed ? lines : [];
  heading.innerHTML = escapeText(title) + (keyed ? "" : '<span class="at"></span>') + named.map((line) =>
    `<span class="key ${line.style}">${escapeText(line.label)}${keyed ? '<span class="at"></span>' : ""}</span>`).join(" ");
  figure.plots.push({ plot, valuesAt, places: [...heading.querySelectorAll(".at")] });
  followPointer(plot, point, (ends) => zoomTo(ends === null ? [-Infinity, Infinity] : ends.sort((a, b) => a - b)));
}

function lineOf({ middles }, line, under, first, last, px, py) {
  const from = Math.max(0, first - 1), part = (values) => values.subarray(from, last + 1), at = part(middles);
  return (line.whole ? "" : `<path class="range ${line.style}" d="${rangePath(at, part(line.low), part(line.high), px, py)}"/>`) +
    `<path class="trace ${line.style}${under ? " under" : ""}" fill="none" d="${linePath(at, part(line.values), px, py)}"/>`;
}

function zonesOf(row, px) {
  return row.zones.map(([from, to]) => `<rect class="spot" x="${px(from).toFixed(1)}" y="0" height="100%" ` +
    `width="${Math.max(2.5, px(to) - px(from)).toFixed(1)}"/>`).join("");
}

// Phases as strokes, neighbours in one; no stroke is narrower than it can be seen, and none is drawn twice.
function marksOf({ edges, strip }, first, last, px, py) {
  const paths = strip.names.map(() => []), reached = new Map();
  for (let n = first, next; n < last; n = next) {
    next = n + 1;
    while (next < last && strip.phases[next] === strip.phases[n] && strip.groups[next] === strip.groups[n]) next++;
    const from = px(edges[n]), to = Math.max(px(edges[next]), from + 1.5), key = strip.phases[n] * 64 + strip.groups[n];
    if (to - (reached.get(key) ?? -Infinity) < 0.5) continue;
    reached.set(key, to);
    paths[strip.groups[n]].push(`M${from.toFixed(1)} ${py(strip.phases[n]).toFixed(1)}H${to.toFixed(1)}`);
  }
  const points = strip.points.map(([at, phase]) => `M${(px(at) - 4).toFixed(1)} ${(py(phase) - 9).toFixed(1)}h8l-4 6z`);
  return paths.map((path, n) => `<path class="marks ${strip.names[n].style}" fill="none" d="${path.join("")}"/>`).join("") +
    `<path class="points" d="${points.join("")}"/>`;
}

function drawSquare(figure, cell) {
  const { square, edges, data } = figure, m = edges.length - 1;
  square.image ??= imageOf(square, m);
  const size = Math.min(TALLEST_SQUARE, Math.max(NARROWEST, Math.round(cell.clientWidth || 480)));
  cell.style.maxWidth = `${size}px`;
  add(figure, cell, square.title, [], {
    x: view, y: view, height: size, xLabel: data.unit,
    body: (px, py) => `<image href="${square.image}" preserveAspectRatio="none" style="image-rendering:pixelated" ` +
      `x="${px(WHOLE[0])}" y="${py(WHOLE[1])}" width="${px(WHOLE[1]) - px(WHOLE[0])}" height="${py(WHOLE[0]) - py(WHOLE[1])}"/>`,
  }, (k) => [""]);
  const { plot, places } = figure.plots.at(-1);
  plot.svg.addEventListener("pointermove", (event) => {
    const box = plot.svg.getBoundingClientRect(), y = ((event.clientY - box.top) / box.height) * size;
    const up = view[0] + ((plot.bottom - y) / (plot.bottom - plot.top)) * (view[1] - view[0]);
    const [a, b] = [plot.valueAt(event), Math.min(view[1], Math.max(view[0], up))].map((at) => indexOf(edges, at));
    places[0].textContent = `${shown(distanceOf(square, a, b))} between ${spanOf(figure, a)} and ${spanOf(figure, b)}`;
  });
}

function distanceOf({ values }, a, b) {
  const [row, column] = a > b ? [a, b] : [b, a];
  return values[(row * (row + 1)) / 2 + column];
}

// The matrix as an image: the smaller, the darker. The last row is the first of the image, since time runs upwards.
function imageOf(square, m) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = m;
  const context = canvas.getContext("2d"), image = context.createImageData(m, m);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < m; j++) {
      const share = Math.min(1, distanceOf(square, i, j) / square.largest), at = 4 * ((m - 1 - i) * m + j);
      image.data.set([28 + 227 * share, 39 + 216 * share, 51 + 204 * share, 255], at);
    }
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

// The intervals that are one value of a figure.
function spanOf({ data, edges }, k) {
  if (!data.first) return `${data.interval} ${k.toLocaleString("en")}`;
  const last = (data.first[k + 1] ?? data.intervals) - 1;
  return last > data.first[k] ? `${data.interval}s ${data.first[k].toLocaleString("en")} to ${last.toLocaleString("en")}`
    : `${data.interval} ${last.toLocaleString("en")}`;
}

function point(at, brush) {
  for (const figure of FIGURES) {
    const k = at === null ? -1 : indexOf(figure.edges, at);
    for (const { plot, valuesAt, places } of figure.plots) {
      markPlot(plot, at, brush);
      const values = k < 0 ? [] : valuesAt(k);
      places.forEach((place, n) => { place.textContent = values[n] ?? ""; });
    }
    figure.output.textContent = k < 0 ? "" : `${spanOf(figure, k)}: ${Math.round(figure.edges[k]).toLocaleString("en")} to ` +
      `${Math.round(figure.edges[k + 1]).toLocaleString("en")} ${figure.data.unit}`;
  }
}

// Name, columns and rows of the CSV file of a figure.
function tableOf({ data, edges, rows, strip, square }) {
  const places = Array.from({ length: edges.length - 1 }, (_, k) => k), first = (k) => data.first ? data.first[k] : k;
  if (square) {
    const pairs = places.flatMap((a) => places.slice(0, a + 1).map((b) => [first(b), first(a), distanceOf(square, a, b)]));
    return [data.name, [`first_${data.interval}_a`, `first_${data.interval}_b`, "distance"], pairs];
  }
  const bounds = ["begin", "end"].map((end) => `${end}_${data.unit}`);
  if (strip) {
    return [data.name, [data.interval, ...bounds, "phase", "group"], places.map((k) =>
      [first(k), edges[k], edges[k + 1], strip.phases[k], strip.names[strip.groups[k]].label])];
  }
  const lines = rows.flatMap((row) => row.lines.map((line) => ({ ...line, name: row.lines.length > 1 ? `${row.title} ${line.label}` : row.title })));
  return [data.name, [data.interval, ...bounds, ...lines.flatMap(({ name, whole }) =>
    whole ? [name] : ["least", "mean", "largest"].map((one) => `${name} ${one}`))],
  places.map((k) => [first(k), edges[k], edges[k + 1], ...lines.flatMap((line) =>
    line.whole ? [line.values[k]] : [line.low[k], line.values[k], line.high[k]])])];
}

FIGURES.forEach(setUpFigure);
FIGURES.forEach(drawFigure);
let shownWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== shownWidth) { shownWidth = window.innerWidth; FIGURES.forEach(drawFigure); }
});
