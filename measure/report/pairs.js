// The data of the report, and its table of pairs.
const DATA = JSON.parse(document.getElementById("data").textContent);
const FIRST_ROWS = 100, MORE_ROWS = 400;
const $ = (id) => document.getElementById(id);
const shortName = (metric) => DATA.shortNames[metric] ?? metric;
const finite = (value, otherwise) => Number.isFinite(value) ? value : otherwise;

const ROWS = DATA.variants.flatMap((variant) => Object.entries(variant.comparisons).flatMap(([kind, comparison]) => {
  const columns = Object.entries(comparison.columns).map(([field, one]) => [field, unpack(one)]);
  return Array.from(columns[0][1], (_, n) => {
    const row = Object.fromEntries(columns.map(([field, values]) => [field, Number.isNaN(values[n]) ? null : values[n]]));
    row.note = comparison.notes[row.note];
    const metrics = row.a === row.b ? [DATA.metrics[row.a]] : [DATA.metrics[row.a], DATA.metrics[row.b]];
    const names = metrics.map(shortName);
    row.verdict = DATA.words[row.word] === "changed < delta" ? "equivalent" : DATA.words[row.word];
    row.address = `#pair/${[variant.name, kind, ...names].map(encodeURIComponent).join("/")}`;
    return Object.assign(row, { variant, kind, comparison, metrics, name: names.join(" – ") });
  });
}));
const RANK = (row) => DATA.words.indexOf(row.verdict) * 1e6 - Math.min(1e5, Math.abs(row.delta_z ?? 0)) * 1e3;
const ORDERS = {
  worst: ["worst first", "verdict", (a, b) => RANK(a) - RANK(b)],
  pair: ["pair", "pair", (a, b) => a.name.localeCompare(b.name)],
  variant: ["variant", "variant", (a, b) => a.variant.name.localeCompare(b.variant.name)],
  relation: ["relation", "relation", (a, b) => a.kind.localeCompare(b.kind)],
  before: ["rho before", "rho before", (a, b) => (b.baseline_rho ?? -9) - (a.baseline_rho ?? -9)],
  after: ["rho after", "rho after", (a, b) => (b.run_rho ?? -9) - (a.run_rho ?? -9)],
  change: ["size of the change", "change of z", (a, b) => Math.abs(b.delta_z ?? 0) - Math.abs(a.delta_z ?? 0)],
  own: ["lower end of the interval of this pair", "interval (this pair)", (a, b) => finite(b.ci_low, -9) - finite(a.ci_low, -9)],
  interval: ["lower end of the interval of all pairs", "interval (all pairs)",
    (a, b) => finite(b.simultaneous_low, -9) - finite(a.simultaneous_low, -9)],
  p: ["p", "p (all pairs)", (a, b) => (a.p ?? 9) - (b.p ?? 9)],
};
const signed = (value) => value === null ? "–" : `${value >= 0 ? "+" : ""}${value.toFixed(3)}`;
const intervalText = (low, high) => !Number.isFinite(high) ? "unknown"
  : low === -Infinity ? `at most ${signed(high)}` : `${signed(low)} to ${signed(high)}`;
const plain = (value) => value === null ? "–" : value.toFixed(3);
const CEILING = 0.99;  // where z is cut off: a mean rho there is not known better
const rhoText = (rho) => rho === null || Math.abs(rho) < CEILING - 1e-6 ? plain(rho)
  : rho > 0 ? `${CEILING} or more` : `-${CEILING} or less`;
const pText = (p) => p === null ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3);

const table = { rows: [], limit: FIRST_ROWS, reversed: false };
const filters = $("filters").elements;

function fill(select, options) {
  select.insertAdjacentHTML("beforeend",
    options.map(([value, text]) => `<option value="${escapeText(value)}">${escapeText(text)}</option>`).join(""));
}

function chooseRows() {
  const text = filters.text.value.trim().toLowerCase();
  table.rows = ROWS.filter((row) =>
    (!text || [row.name, ...row.metrics].some((name) => name.toLowerCase().includes(text))) &&
    (!filters.variant.value || row.variant === DATA.variants[filters.variant.value]) &&
    (!filters.verdict.value || row.verdict === filters.verdict.value) &&
    (filters.relation.value ? filters.relation.value === "every" || row.kind === filters.relation.value
      : row.kind !== "outer_joint"));
  table.rows.sort(ORDERS[filters.order.value][2]);
  if (table.reversed) table.rows.reverse();
  showRows();
}

function showRows() {
  const body = $("pairs").tBodies[0];
  body.innerHTML = table.rows.slice(0, table.limit).map((row) => {
    const current = pair.row === row ? ' aria-current="true"' : "";
    return `<tr class="${row.verdict.replace(" ", "-")}"${current}><th scope="row"><a href="${escapeText(row.address)}">` +
      `${escapeText(row.name)}</a></th><td class="text">${escapeText(row.variant.name)}</td><td class="text">` +
      `${escapeText(DATA.relations[row.kind])}</td><td class="verdict">${DATA.words[row.word]}</td><td>${rhoText(row.baseline_rho)}` +
      `</td><td>${rhoText(row.run_rho)}</td><td>${signed(row.delta_z)}</td><td>${intervalText(row.ci_low, row.ci_high)}</td>` +
      `<td>${intervalText(row.simultaneous_low, row.simultaneous_high)}</td>` +
      `<td>${pText(row.p)}</td></tr>`;
  }).join("");
  labelCells($("pairs").parentElement);
  const rows = Math.min(table.limit, table.rows.length);
  $("pairs-count").textContent = rows < table.rows.length
    ? `The first ${rows} of ${table.rows.length} pairs that fit.` : `${table.rows.length} of ${ROWS.length} comparisons of pairs.`;
  $("more-pairs").hidden = rows >= table.rows.length;
  for (const head of $("pairs").tHead.rows[0].cells) {
    const sorted = head.textContent === ORDERS[filters.order.value][1];
    if (sorted) head.setAttribute("aria-sort", table.reversed ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

function setUpTable() {
  fill(filters.variant, DATA.variants.map((one, n) => [n, one.name]));
  fill(filters.verdict, [...new Set(ROWS.map((row) => row.verdict))].map((one) => [one, one]));
  fill(filters.relation, [...new Set(ROWS.map((row) => row.kind))].map((one) => [one, DATA.relations[one]]));
  fill(filters.relation, [["every", "every relation"]]);
  fill(filters.order, Object.entries(ORDERS).map(([value, [text]]) => [value, text]));
  for (const head of $("pairs").tHead.rows[0].cells) {
    const text = head.textContent;
    const order = Object.keys(ORDERS).find((key) => ORDERS[key][1] === text);
    head.innerHTML = `<button type="button">${text}</button>`;
    head.firstChild.addEventListener("click", () => {
      table.reversed = filters.order.value === order && !table.reversed;
      filters.order.value = order;
      chooseRows();
    });
  }
  const changed = () => { table.limit = FIRST_ROWS; table.reversed = false; chooseRows(); };
  $("filters").addEventListener("input", changed);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("more-pairs").addEventListener("click", () => { table.limit += MORE_ROWS; showRows(); });
  $("pairs-csv").addEventListener("click", () => downloadCsv("pairs", DATA.pairColumns, table.rows.map((row) => {
    const values = { ...row.comparison, ...row, campaign: DATA.campaign, variant: row.variant.name,
      a: row.metrics[0], b: row.metrics.at(-1) };
    return DATA.pairColumns.map((column) => values[column]);
  })));
}
