// The pair that is chosen in the table: traces, alignment, heat maps, single runs.

// The chosen pair. `view`: records of the baseline's trace that are shown; `sides`: baseline and variant.
const MOST_SOFTWARE = 4;  // software metrics whose traces are shown
const pair = { row: null, view: [0, 1], sides: [], plots: [] };

function unpackedOnce(owner, key, make) {
  const cache = owner.unpacked ??= {};
  return cache[key] ??= make();
}

// A metric of a trace: x of each value, and least, middle and largest values, which are one if nothing was left out;
// `starts`: the first record of each value, and the number of records.
function seriesOf(example, metric) {
  return unpackedOnce(example, metric, () => {
    const packed = example.series[metric];
    if (!packed) return null;
    const parts = packed.map(unpack), n = example.records;
    if (parts.length === 1) {
      const width = Math.max(3, Math.floor(n / 60)) | 1;
      const starts = Float64Array.from({ length: n + 1 }, (_, k) => k);
      return { starts, x: starts.subarray(0, n), low: parts[0], high: parts[0], values: parts[0],
        middle: movingMedian(parts[0], width), whole: true };
    }
    const count = example.buckets;
    const starts = Float64Array.from({ length: count + 1 }, (_, k) => Math.ceil((k * n) / count));
    return { starts, x: Float64Array.from(parts[0], (_, k) => ((k + 0.5) * n) / count), low: parts[0], values: parts[1],
      high: parts[2], middle: parts[1], whole: false };
  });
}

function indexAt(example, series, record) {
  const at = series.whole ? Math.round(record) : Math.floor((record * example.buckets) / example.records);
  return Math.max(0, Math.min(series.x.length - 1, at));
}

// Where the records of the baseline are in the variant's trace: by the alignment, else in proportion.
function alignmentOf(row) {
  const before = DATA.baseline.example.records, after = row.variant.example.records;
  const packed = (row.kind === "outer_held_out" && row.variant.paths.heldOut[row.a]) || row.variant.paths.joint;
  const ys = packed ? unpack(packed) : Float64Array.of(0, after - 1);
  const last = ys.length - 1;
  const xs = Float64Array.from(ys, (_, k) => Math.floor((k * (before - 1)) / last));
  const mapped = (from, to, value) => {
    let low = 0, high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (from[middle] <= value) low = middle; else high = middle;
    }
    const span = from[high] - from[low];
    return to[low] + (span ? ((value - from[low]) / span) * (to[high] - to[low]) : 0);
  };
  return { xs, ys, known: Boolean(packed), heldOut: packed && packed !== row.variant.paths.joint,
    slope: (after - 1) / Math.max(1, before - 1), toAfter: (at) => mapped(xs, ys, at), toBefore: (at) => mapped(ys, xs, at) };
}

function show(row, byUser) {
  pair.row = row;
  pair.alignment = alignmentOf(row);
  const variant = row.variant;
  pair.metrics = [...row.metrics, ...variant.example.software.slice(0, MOST_SOFTWARE)];
  pair.sides = [
    { name: "baseline", example: DATA.baseline.example, style: "before", there: (at) => at, back: (at) => at },
    { name: variant.name, example: variant.example, style: "after", there: pair.alignment.toAfter, back: pair.alignment.toBefore },
  ];
  pair.view = [0, DATA.baseline.example.records - 1];
  const title = $("pair-title");
  title.textContent = `${row.name} in ${variant.name}: ${DATA.words[row.word]} ${DATA.relations[row.kind]}`;
  $("pair-facts").innerHTML = [
    ["rho", `${rhoText(row.baseline_rho)} → ${rhoText(row.run_rho)}`], ["change of z", signed(row.delta_z)],
    [`${Math.round(100 * (1 - 2 * row.comparison.alpha))}% interval`, intervalText(row.ci_low, row.ci_high)],
    ["over all pairs", intervalText(row.simultaneous_low, row.simultaneous_high)],
    ["counts as none", `±${row.comparison.delta}`], ["p (all pairs)", `${pText(row.p)}, level ${+row.comparison.level.toPrecision(3)}`],
    ["spread (sd of z)", `${plain(row.baseline_z_sd)} → ${plain(row.run_z_sd)}`],
  ].map(([what, value]) => `<li>${what} <b>${value}</b></li>`).join("");
  $("pair-note").textContent = row.note;
  document.querySelector("[data-csv=alignment]").hidden = !pair.alignment.known;
  captions(row);
  drawPair();
  showRows();
  if (byUser) {
    title.focus({ preventScroll: true });
    title.scrollIntoView({ block: "start" });
  }
}

function captions(row) {
  const variant = row.variant, software = pair.metrics.slice(row.metrics.length).map(shortName);
  const whole = pair.sides.every((side) => !side.example.buckets);
  $("caption-traces").textContent =
    `Top: ${row.metrics.map(shortName).join(" and ")} ` +
    `in a run of the baselines (left) and of ${variant.name} (right), events per record of ${DATA.interval}. ` +
    "The vertical axis shows the bulk of the values: a start-up phase and single spikes are cut off at its ends until you zoom in. " +
    (whole ? "The strong line is a moving median. "
      : "The traces are too long to be here whole: shaded, from the least to the largest value of each stretch of records; line, its mean. ") +
    (row.metrics.length > 1 ? "See whether the two metrics still rise and fall together. " : "See whether its course is the same. ") +
    (pair.alignment.known
      ? `Below: how the two runs align${pair.alignment.heldOut ? " on the other metrics" : ""}, as the record of ${variant.name} ` +
        "minus the record in proportion: level means that both advance alike, a slope that one takes longer. "
      : "These traces are too long to be aligned here, so records correspond in proportion. ") +
    (software.length ? `Last: ${software.join(", ")}, ${software.length < variant.example.software.length
      ? `the first of ${variant.example.software.length} software metrics that ${variant.name} collects`
      : `which ${variant.name} collects`}. ` : "") +
    "Drag across a trace to zoom in; the other follows by the alignment.";
  $("caption-maps").textContent = `Spearman's rho of all hardware metrics within a run, mean over runs: baselines, ${variant.name}, ` +
    "and the difference (darkest at 0.5). Red is positive, blue negative; the frame is this pair. A row that is coloured in the difference is a metric " +
    "whose relations changed. Click a cell to choose its pair.";
  $("caption-runs").textContent = `Rho of this pair in each run: baselines (grey) and ${variant.name} (orange)` +
    `${row.comparison.paired ? "; runs of the same number share their noise" : ""}. ` +
    "Lines: means. See whether the two clouds lie apart, or one is wider.";
}

function drawPair() {
  if (!pair.row) return;
  drawTraces();
  drawMaps();
  drawRuns();
}

function drawTraces() {
  $("plot-traces").replaceChildren();
  $("plot-software").replaceChildren();
  pair.plots = [];
  for (const metric of pair.metrics) {
    const compared = pair.row.metrics.includes(metric), host = $(compared ? "plot-traces" : "plot-software");
    const windows = pair.sides.map((side) => visible(side, metric));
    const seen = windows.filter(Boolean).flatMap((one) => [...one.low, ...one.high]);
    const y = bulk(seen);
    pair.sides.forEach((side, n) => {
      const one = windows[n], title = `${shortName(metric)} per record, ${side.name}`;
      if (!one) return;  // a software metric that the other run collects
      const cell = document.createElement("div");
      cell.className = "plot";
      host.append(cell);
      const style = compared ? side.style : "third";
      const plot = drawPlot(cell, {
        title, label: `Trace of ${title}`, x: one.x, y, xLabel: `record of ${side.name}`,
        body: (px, py) => (one.whole ? `<path class="line ${style}" d="${linePath(one.at, one.values, px, py)}"/>`
          : `<path class="range ${style}" d="${rangePath(one.at, one.low, one.high, px, py)}"/>`) +
          `<path class="middle ${style}" fill="none" d="${linePath(one.at, one.middle, px, py)}"/>`,
      });
      listen(plot, side);
    });
  }
  const { xs, ys, slope, known } = pair.alignment;
  const alignmentHost = $("plot-alignment");
  alignmentHost.hidden = !known;
  if (!known) return;
  const shifts = Float64Array.from(ys, (y, n) => y - slope * xs[n]);
  const inside = shifts.filter((_, n) => xs[n] >= pair.view[0] && xs[n] <= pair.view[1]);
  const reach = Math.max(2, ...inside.map(Math.abs)) * 1.15;
  const plot = drawPlot(alignmentHost, {
    title: `Alignment: record of ${pair.row.variant.name} minus record in proportion [records]`, label: "Alignment of the two runs",
    x: pair.view, y: [-reach, reach], xLabel: "record of baseline", height: 120,
    body: (px, py) => `<path class="middle third" d="${linePath(xs, shifts, px, py)}"/>`,
  });
  listen(plot, pair.sides[0]);
}

// What a side shows of a metric.
function visible(side, metric) {
  const series = seriesOf(side.example, metric);
  if (!series) return null;
  const x = pair.view.map(side.there);
  const first = Math.max(0, indexAt(side.example, series, x[0]) - 1);
  const last = indexAt(side.example, series, x[1]) + 2;
  const part = (values) => values.subarray(first, last);
  return { x, at: part(series.x), low: part(series.low), high: part(series.high), values: part(series.values),
    middle: part(series.middle), whole: series.whole };
}

function zoomTo(ends) {
  const last = DATA.baseline.example.records - 1;
  pair.view = zoomInto([0, last], ends, Math.min(last, 8));
  drawTraces();
}

function listen(plot, side) {
  pair.plots.push({ plot, side });
  followPointer(plot, (at, brush) => hover(at === null ? null : side.back(at), brush?.map(side.back)),
    (ends) => zoomTo(ends === null ? [-Infinity, Infinity] : ends.map(side.back).sort((a, b) => a - b)));
}

// Marks a record of the baseline, and the one that it corresponds to, in all plots.
function hover(record, brush) {
  for (const { plot, side } of pair.plots) {
    markPlot(plot, record === null ? null : side.there(record), brush?.map(side.there));
  }
  $("readout").textContent = record === null ? "" : pair.sides.map((side) => {
    const at = side.there(record);
    const values = pair.metrics.flatMap((metric) => {
      const series = seriesOf(side.example, metric);
      if (!series) return [];
      const n = indexAt(side.example, series, at);
      return [`${shortName(metric)} ${shown(series.values[n])}${series.whole ? "" : ` (${shown(series.low[n])} to ${shown(series.high[n])})`}`];
    });
    return `${side.name}, record ${Math.round(at)}: ${values.join(", ")}`;
  }).join("; ");
}

function matrixOf(group) {
  return unpackedOnce(group, "rho matrix", () => unpack(group.rho));
}

function drawMaps() {
  const { row } = pair, names = DATA.metrics.map(shortName), before = matrixOf(DATA.baseline), after = matrixOf(row.variant);
  const maps = [["Baselines", before, 1], [row.variant.name, after, 1], ["Difference", after.map((one, n) => one - before[n]), 0.5]];
  $("plot-maps").replaceChildren();
  if (DATA.metrics.length < 2) return;
  for (const [title, values, limit] of maps) {
    const cell = document.createElement("div");
    cell.className = "plot";
    $("plot-maps").append(cell);
    const svg = drawHeatMap(cell, { title, label: `Heat map of correlations: ${title}`, names, values, limit,
      chosen: [row.a, row.b] });
    const cellAt = (event) => event.target.dataset.row && [event.target.dataset.row, event.target.dataset.column].map(Number);
    svg.addEventListener("pointermove", (event) => {
      const at = cellAt(event);
      const n = at && (at[0] * (at[0] - 1)) / 2 + at[1];
      $("map-readout").textContent = at ? `${names[at[1]]} – ${names[at[0]]}: baselines ${shown(before[n])}, ` +
        `${row.variant.name} ${shown(after[n])}, difference ${shown(after[n] - before[n])}` : "";
    });
    svg.addEventListener("click", (event) => {
      const at = cellAt(event);
      const other = at && ROWS.find((one) => one.variant === row.variant && one.kind === "inner" &&
        Math.max(one.a, one.b) === at[0] && Math.min(one.a, one.b) === at[1]);
      if (other) location.hash = other.address;
    });
  }
}

// Rho of the chosen pair in each run, of baselines and variant; null when the page does not have it.
function runsOf(row) {
  const place = DATA.runPairs.findIndex(([a, b]) => a === row.a && b === row.b);
  if (row.kind !== "inner" || place < 0) return null;
  return [DATA.baseline, row.variant].map((group) => {
    const all = unpackedOnce(group, "runs", () => unpack(group.runs));
    return all.subarray(place * group.runs.n, (place + 1) * group.runs.n);
  });
}

function drawRuns() {
  const groups = runsOf(pair.row);
  $("figure-runs").hidden = !groups;
  if (!groups) return;
  const all = groups.flatMap((one) => [...one]).filter(Number.isFinite);
  const margin = 0.08 * (Math.max(...all) - Math.min(...all)) || 0.05;
  const most = Math.max(...groups.map((one) => one.length));
  drawPlot($("plot-runs"), {
    title: `Rho of ${pair.row.name} in each run`, label: `Correlation of ${pair.row.name} in each run`, height: 190,
    x: [-0.5, most - 0.5], wholeX: true, y: [Math.min(...all) - margin, Math.max(...all) + margin], xLabel: "run",
    body: (px, py) => groups.map((values, n) => {
      const style = ["before", "after"][n], defined = values.filter(Number.isFinite);
      const mean = Math.tanh(defined.reduce((sum, one) => sum + Math.atanh(one * 0.9999), 0) / defined.length);
      return `<line class="${style}" x1="${px(-0.5)}" x2="${px(most - 0.5)}" y1="${py(mean)}" y2="${py(mean)}"/>` +
        Array.from(values, (value, k) => Number.isFinite(value) ? n
          ? `<circle class="${style}" r="3.5" cx="${px(k).toFixed(1)}" cy="${py(value).toFixed(1)}"/>`
          : `<rect class="${style}" width="6" height="6" x="${(px(k) - 3).toFixed(1)}" y="${(py(value) - 3).toFixed(1)}"/>` : "").join("");
    }).join(""),
  });
}

const CSV = {
  traces() {
    const columns = ["run", "first_record", "last_record", ...pair.metrics.flatMap((name) => [`${name} least`, `${name} mean`, `${name} largest`])];
    return ["traces", columns, pair.sides.flatMap((side) => {
      const series = pair.metrics.map((metric) => seriesOf(side.example, metric));
      const { x, starts } = series[0];
      return Array.from(x, (_, n) => [side.name, starts[n], starts[n + 1] - 1,
        ...series.flatMap((one) => one ? [one.low[n], one.values[n], one.high[n]] : ["", "", ""])]);
    })];
  },
  alignment() {
    const { xs, ys } = pair.alignment;
    return ["alignment", ["record_of_baseline", `record_of_${pair.row.variant.name}`], Array.from(xs, (x, n) => [x, ys[n]])];
  },
  maps() {
    const before = matrixOf(DATA.baseline), after = matrixOf(pair.row.variant), rows = [];
    for (let i = 1; i < DATA.metrics.length; i++) {
      for (let j = 0; j < i; j++) {
        const n = (i * (i - 1)) / 2 + j;
        rows.push([DATA.metrics[j], DATA.metrics[i], before[n], after[n]]);
      }
    }
    return ["correlations", ["a", "b", "rho_baselines", `rho_${pair.row.variant.name}`], rows];
  },
  runs() {
    const names = ["baseline", pair.row.variant.name];
    return ["rho-in-each-run", ["variant", "run", "rho"],
      runsOf(pair.row).flatMap((values, n) => Array.from(values, (value, k) => [names[n], k, value]))];
  },
};

function setUpPair() {
  $("pair").addEventListener("click", (event) => {
    const { zoom, csv } = event.target.dataset;
    if (zoom) zoomTo(zoomedBy(zoom, pair.view));
    if (csv) downloadCsv(...CSV[csv]());
  });
  const fromAddress = (byUser) => {
    const row = ROWS.find((one) => one.address === location.hash) ?? (byUser ? null : table.rows[0] ?? ROWS[0]);
    if (row) show(row, byUser || location.hash.startsWith("#pair/"));
  };
  window.addEventListener("hashchange", () => fromAddress(true));
  // The link of the pair that is already shown changes no address.
  $("pairs").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (link && link.getAttribute("href") === location.hash) fromAddress(true);
  });
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; drawPair(); }
  });
  fromAddress(false);
}

setUpTable();
chooseRows();
if (ROWS.length) setUpPair();
