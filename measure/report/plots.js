// Draws plots as SVG text from plain numbers; knows nothing about reports.
const MARGIN = { left: 54, right: 10, top: 8, bottom: 32 };
const NARROWEST = 220;

// An array that `measure.report.packing` packed, its numbers rounded to the digits that they are exact to.
function unpack({ lo, step, q, f }) {
  const bytes = Uint8Array.from(atob(f ?? q), (one) => one.charCodeAt(0));
  if (f !== undefined) return Float64Array.from(new Float32Array(bytes.buffer), (one) => Number(one.toPrecision(7)));
  const exponent = step ? Math.floor(Math.log10(step)) : 0, power = 10 ** Math.abs(exponent);
  const rounded = (value) => exponent < 0 ? Math.round(value * power) / power : Math.round(value / power) * power;
  return Float64Array.from(new Uint16Array(bytes.buffer),
    (steps) => steps === 65535 ? NaN : step ? rounded(lo + step * steps) : lo);
}

function escapeText(text) {
  return String(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);
}

function shown(value, digits = 3) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return Number.isInteger(value) ? String(value) : value.toPrecision(digits);
}

function decimals(step) {
  return Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(step || 1))));
}

// `step`: between neighbouring labels, which must differ.
function axisLabel(value, step) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((value / unit).toFixed(decimals(step / unit)))}${letter}`;
  }
  return String(Number(value.toFixed(decimals(step))));
}

// At most `most` round numbers from `low` to `high`, at least `least` apart.
function ticks(low, high, most, least = 0) {
  const rough = Math.max(least, (high - low) / most);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

function quantile(sorted, fraction) {
  return sorted[Math.min(sorted.length - 1, Math.round(fraction * (sorted.length - 1)))];
}

// Limits that show the bulk of the values: a start-up phase or a single spike may run out of the picture. All values
// where the bulk is one value, as of events that only happen now and then: they would all be cut off.
function bulk(values) {
  const sorted = Float64Array.from(values).filter(Number.isFinite).sort();
  if (!sorted.length) return [0, 1];
  const low = quantile(sorted, 0.1), high = quantile(sorted, 0.9);
  const least = sorted[0], most = sorted[sorted.length - 1];
  if (high === low && most > least) return [least, most + 0.05 * (most - least)];
  const margin = 0.8 * (high - low) || Math.max(1, 0.1 * Math.abs(high));
  return [least >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
}

function movingMedian(values, width) {
  const half = width >> 1;
  return Float64Array.from(values, (_, n) => {
    const near = values.slice(Math.max(0, n - half), n + half + 1).sort();
    return near[near.length >> 1];
  });
}

let clips = 0;

// Replaces what `host` shows by axes and `body(x, y)`, SVG text; returns the scales and the svg element. Without an
// `xLabel` the horizontal axis has no text; `integers`: only whole numbers beside the vertical axis, `wholeX`: below
// the horizontal one.
function drawPlot(host, { title, label, x, y, xLabel = "", yLabel = "", height = 150, integers = false, wholeX = false, body }) {
  const width = Math.max(NARROWEST, Math.round(host.clientWidth || 480));
  const right = width - MARGIN.right, bottom = height - (xLabel ? MARGIN.bottom : MARGIN.top);
  const px = (value) => MARGIN.left + ((value - x[0]) / (x[1] - x[0] || 1)) * (right - MARGIN.left);
  const py = (value) => bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (bottom - MARGIN.top);
  const clip = `clip-${clips++}`;
  const heights = ticks(y[0], y[1], 4, integers ? 1 : 0);
  const vertical = heights.map((at) =>
    `<line class="axis" x1="${MARGIN.left}" x2="${right}" y1="${py(at).toFixed(1)}" y2="${py(at).toFixed(1)}"/>` +
    `<text x="${MARGIN.left - 5}" y="${(py(at) + 4).toFixed(1)}" text-anchor="end">${axisLabel(at, heights[1] - heights[0])}</text>`);
  const places = xLabel ? ticks(x[0], x[1], width / 90, wholeX ? 1 : 0) : [];
  const horizontal = places.map((at) => {
    const text = axisLabel(at, places[1] - places[0]);
    const centred = px(at) + 3.6 * text.length <= width;  // half the text; beyond the edge it would be cut off
    return `<text x="${(centred ? px(at) : width).toFixed(1)}" y="${bottom + 14}" ` +
      `text-anchor="${centred ? "middle" : "end"}">${text}</text>`;
  });
  host.innerHTML =
    `${title ? `<p class="title">${escapeText(title)}</p>` : ""}<svg viewBox="0 0 ${width} ${height}" role="img" ` +
    `aria-label="${escapeText(label)}"><clipPath id="${clip}"><rect x="${MARGIN.left}" y="${MARGIN.top}" ` +
    `width="${right - MARGIN.left}" height="${bottom - MARGIN.top}"/></clipPath>${vertical.join("")}` +
    `${horizontal.join("")}<text x="${(MARGIN.left + right) / 2}" y="${height - 3}" text-anchor="middle">` +
    `${escapeText(xLabel)}</text>${yLabel ? `<text x="4" y="${MARGIN.top + 8}">${escapeText(yLabel)}</text>` : ""}` +
    `<g clip-path="url(#${clip})">${body(px, py)}<g class="over"></g></g></svg>`;
  const svg = host.querySelector("svg");
  return {
    svg, px, py, top: MARGIN.top, bottom,
    valueAt(event) {  // of the horizontal axis, under the pointer
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * width;
      return x[0] + ((Math.min(right, Math.max(MARGIN.left, at)) - MARGIN.left) / (right - MARGIN.left)) * (x[1] - x[0]);
    },
  };
}

// Tells `hover(at, brush)` of the pointer over a plot: values of the horizontal axis, null where there is none; and
// `zoom(ends)` of a stretch that it was dragged across, null after a double click.
function followPointer(plot, hover, zoom) {
  let from = null;
  plot.svg.addEventListener("pointerdown", (event) => {
    from = plot.valueAt(event);
    plot.svg.setPointerCapture(event.pointerId);
  });
  plot.svg.addEventListener("pointermove", (event) => {
    const at = plot.valueAt(event);
    hover(at, from === null ? null : [from, at]);
  });
  plot.svg.addEventListener("pointerup", (event) => {
    const ends = [from, plot.valueAt(event)];
    const wide = from !== null && Math.abs(plot.px(ends[0]) - plot.px(ends[1])) > 6;
    from = null;
    if (wide) zoom(ends);
  });
  plot.svg.addEventListener("pointercancel", () => { from = null; hover(null, null); });
  plot.svg.addEventListener("pointerleave", () => { if (from === null) hover(null, null); });
  plot.svg.addEventListener("dblclick", () => zoom(null));
}

// Marks a value of the horizontal axis in a plot, and the stretch that is dragged across; null: no mark.
function markPlot(plot, at, brush) {
  const x = at === null ? 0 : plot.px(at).toFixed(1), ends = brush?.map(plot.px).sort((a, b) => a - b);
  plot.svg.querySelector(".over").innerHTML = at === null ? "" :
    `<line class="cross" x1="${x}" x2="${x}" y1="${plot.top}" y2="${plot.bottom}"/>` + (ends ? `<rect class="brush" ` +
    `x="${ends[0].toFixed(1)}" width="${(ends[1] - ends[0]).toFixed(1)}" y="${plot.top}" height="${plot.bottom - plot.top}"/>` : "");
}

// What is shown after a button of the zoom; `zoomInto` keeps it within the whole.
function zoomedBy(button, [low, high]) {
  const width = high - low;
  return { in: [low + width / 4, high - width / 4], out: [low - width / 2, high + width / 2],
    earlier: [low - width / 2, high - width / 2], later: [low + width / 2, high + width / 2], all: [-Infinity, Infinity] }[button];
}

// `ends` moved and cut to lie within `whole`, at least `least` wide.
function zoomInto([first, last], [low, high], least) {
  if (!(Number.isFinite(low) && Number.isFinite(high))) return [first, last];
  const width = Math.min(last - first, Math.max(least, high - low));
  const start = Math.max(first, Math.min(last - width, (low + high - width) / 2));
  return [start, start + width];
}

function linePath(xs, ys, px, py) {
  let path = "", open = false;
  for (let n = 0; n < xs.length; n++) {
    if (!Number.isFinite(ys[n])) { open = false; continue; }
    path += `${open ? "L" : "M"}${px(xs[n]).toFixed(1)} ${py(ys[n]).toFixed(1)}`;
    open = true;
  }
  return path;
}

function rangePath(xs, lows, highs, px, py) {
  const there = Array.from(xs, (at, n) => `${px(at).toFixed(1)} ${py(highs[n]).toFixed(1)}`);
  const back = Array.from(xs, (at, n) => `${px(at).toFixed(1)} ${py(lows[n]).toFixed(1)}`).reverse();
  return xs.length ? `M${[...there, ...back].join("L")}Z` : "";
}

// The lower triangle of a matrix of `names`, `values` row by row; returns the svg element.
function drawHeatMap(host, { title, label, names, values, limit, chosen }) {
  const m = names.length, labelled = m <= 16;
  const width = Math.max(NARROWEST, Math.round(host.clientWidth || 300));
  const room = labelled ? Math.min(110, 8 + 7.5 * Math.max(...names.map((one) => one.length))) : 6;
  const size = (width - room - 4) / (m - 1), height = size * (m - 1) + (labelled ? room * 0.8 : 6) + 6;
  const cells = [];
  let n = 0;
  for (let i = 1; i < m; i++) {
    for (let j = 0; j < i; j++, n++) {
      const value = values[n], strength = Math.min(1, Math.abs(value) / limit) * 0.85;
      const x = room + j * size, y = 4 + (i - 1) * size;
      cells.push(`<rect data-row="${i}" data-column="${j}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" ` +
        `width="${size.toFixed(1)}" height="${size.toFixed(1)}" fill="${value < 0 ? "#3d87d6" : "#e0533d"}" ` +
        `fill-opacity="${Number.isFinite(value) ? strength.toFixed(2) : 0}"/>`);
      if (labelled && size >= 24) {
        const text = Number.isFinite(value) ? value.toFixed(2).replace("0.", ".").replace("-.00", ".00") : "–";
        cells.push(`<text class="strong" pointer-events="none" text-anchor="middle" x="${(x + size / 2).toFixed(1)}" ` +
          `y="${(y + size / 2 + 4).toFixed(1)}">${text}</text>`);
      }
    }
  }
  if (labelled) {
    for (let i = 1; i < m; i++) {
      cells.push(`<text x="${room - 4}" y="${(4 + (i - 0.5) * size + 4).toFixed(1)}" text-anchor="end">${escapeText(names[i])}</text>`);
      const x = room + (i - 0.5) * size, y = 4 + (m - 1) * size + 12;
      cells.push(`<text transform="translate(${(x + 3).toFixed(1)} ${y.toFixed(1)}) rotate(-45)" text-anchor="end">${escapeText(names[i - 1])}</text>`);
    }
  }
  const [row, column] = chosen[0] === chosen[1] ? [-1, -1] : [Math.max(...chosen), Math.min(...chosen)];
  const mark = row < 0 ? "" : `<rect class="chosen" pointer-events="none" x="${(room + column * size).toFixed(1)}" ` +
    `y="${(4 + (row - 1) * size).toFixed(1)}" width="${size.toFixed(1)}" height="${size.toFixed(1)}"/>`;
  host.innerHTML = `<p class="title">${escapeText(title)}</p><svg viewBox="0 0 ${width} ${height.toFixed(0)}" role="img" ` +
    `aria-label="${escapeText(label)}">${cells.join("")}${mark}</svg>`;
  return host.querySelector("svg");
}

function downloadCsv(name, columns, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value).replace("Infinity", "inf");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const text = [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
