// Interactive charts. `<div class="chart-live" data-series="/api/series?...">` becomes a chart of the answer; what stands
// in it is shown until then, and where the data cannot be read. Attributes: data-label (its name), data-previous (an
// address whose answer is drawn as the previous period), data-height (pixels).

const HEIGHT = 220;
const LIVE_MS = 30000;
const LEAST_MS = 10000;
const AGAIN_MS = 700;
const MOST_AGAIN = 30;
const SLOWEST = 5;
const BANDS = 3;
const LISTED = 6;
const SPARSE = 40;
const NEAR = 12;
const SAME_STEPS = 2;
const FONT = "11px Inter, system-ui, sans-serif";
const PALETTE = ["--accent", "--other", "--good", "--warn", "--bad", "--quiet"];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const AXIS = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
];

const charts = new Map();

function isLocal() {
  return document.documentElement.dataset.zone === "local";
}

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// The colours of the style sheet as a canvas takes them: light-dark() is resolved by the browser.
function palette() {
  const probe = make("span", { hidden: "" });
  document.body.append(probe);
  const found = {};
  for (const name of [...PALETTE, "--text", "--line", "--band", "--band2", "--bad-tint", "--card"]) {
    probe.style.color = `var(${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function iso(seconds) {
  return `${new Date(Math.round(seconds) * 1000).toISOString().slice(0, 19)}Z`;
}

function timeText(seconds, { date = false } = {}) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: isLocal() ? undefined : "UTC" };
  if (date) Object.assign(options, { month: "short", day: "numeric" });
  return new Intl.DateTimeFormat("en-GB", options).format(new Date(seconds * 1000));
}

function number(value) {
  return value === null || value === undefined ? "-" : value.toFixed(2);
}

function described(point) {
  if (!point) return "no scores";
  const scores = `${point.n.toLocaleString("en")} ${point.n === 1 ? "score" : "scores"}`;
  if (point.mean === null) return `too few scores (${scores})`;
  return `${number(point.mean)} (${number(point.ci_low)} to ${number(point.ci_high)}), ${scores}`;
}

function markText(mark) {
  const kind = mark.kind.replace(/^tag:/, "");
  return mark.kind === "alert" ? `alert ${mark.value}${mark.slice ? ` (${mark.slice})` : ""}` : `${kind} ${mark.value}`;
}

function clipped(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

class Chart {
  constructor(box) {
    this.box = box;
    this.series = box.dataset.series;
    this.previous = box.dataset.previous;
    this.height = Number(box.dataset.height) || HEIGHT;
    // Charts of one app have the same events: the first names them.
    this.isLabelled = !box.closest(".large") || box === document.querySelector(".large .chart-live");
    this.again = 0;
    this.index = null;
    this.anchor = null;
    this.readAt = 0;
    this.reading = false;
  }

  get live() {
    return !new URL(this.series, location.href).searchParams.get("until");
  }

  async load() {
    if (this.reading) return;
    this.reading = true;
    try {
      const wanted = [this.series, ...(this.previous ? [this.previous] : [])];
      const answers = await Promise.all(wanted.map((url) => fetch(url, { headers: { accept: "application/json" } })));
      if (answers.some((one) => !one.ok)) throw new Error((await answers.find((one) => !one.ok).json()).detail);
      [this.answer, this.before] = await Promise.all(answers.map((one) => one.json()));
      this.readAt = Date.now();
      this.draw();
      this.readMore();
    } catch (error) {
      this.failed(error);
    } finally {
      this.reading = false;
    }
  }

  // An incomplete answer: the server goes on reading, and the next answer has more.
  readMore() {
    const complete = this.answer.complete && (!this.before || this.before.complete);
    if (complete) this.again = 0;
    else if (this.again < MOST_AGAIN) {
      this.again += 1;
      setTimeout(() => this.load(), AGAIN_MS * Math.min(this.again, SLOWEST));
    }
  }

  failed(error) {
    if (this.plot) this.note.textContent = "Not up to date: the server did not respond.";
    else this.box.append(make("p", { class: "quiet" }, `The chart could not be read: ${error.message}`));
  }

  setUp() {
    const fallback = make("div", { class: "chart-fallback", hidden: "" }, ...this.box.childNodes);
    this.plot = make("div", { class: "chart-plot", role: "slider", tabindex: "0", "aria-valuemin": "0" });
    this.readout = make("p", { class: "chart-readout" });
    this.note = make("p", { class: "chart-note quiet" });
    this.list = make("ul", { class: "chart-marks" });
    this.legend = make("ul", { class: "legend" });
    this.table = make("details", { class: "chart-table" }, make("summary", {}, "Data and events"), this.list);
    this.box.replaceChildren(this.plot, this.readout, this.note, this.legend, this.table, fallback);
    this.box.dataset.drawn = "";
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.plot.addEventListener("blur", () => this.drop());
    this.table.addEventListener("toggle", () => this.tabulate());
    new ResizeObserver(() => this.fit()).observe(this.plot);
  }

  // Arrays on one grid of steps, each with null where there is no value.
  arrays() {
    const { since, until, step_s: step, groups } = this.answer;
    const length = Math.max(1, Math.round((until - since) / step));
    this.times = Array.from({ length }, (_, place) => since + (place + 0.5) * step);
    const place = (at, first) => Math.round((at - first) / step);
    this.points = groups.map((group) => {
      const row = new Array(length).fill(null);
      for (const point of group.points) if (place(point.at, since) < length) row[place(point.at, since)] = point;
      return row;
    });
    const columns = [this.times];
    const of = (row, name) => row.map((point) => point?.[name] ?? null);
    for (const row of this.points) columns.push(of(row, "mean"), of(row, "ci_low"), of(row, "ci_high"));
    if (this.before) {
      // The period before may have other steps: each of its points stands as far from its period's end.
      const row = new Array(length).fill(null);
      const later = until - Math.max(this.before.until, this.answer.asked_since);
      for (const point of this.before.groups[0]?.points ?? []) {
        const at = Math.floor((point.at + this.before.step_s / 2 + later - since) / step);
        if (at >= 0 && at < length) row[at] = point;
      }
      columns.push(of(row, "mean"));
    }
    return columns;
  }

  // The smallest range within 0 and 1 that holds the intervals, with some room; all but their widest twentieth, where
  // those would take more than half of it.
  scale(columns) {
    const [lows, highs] = ["ci_low", "ci_high"].map((name) => this.points.flat().map((point) => point?.[name]).filter((one) => one != null).sort((a, b) => a - b));
    const values = [...this.points.flat().map((point) => point?.mean), ...(this.before ? columns.at(-1) : [])].filter((one) => one != null);
    values.push(...this.answer.lines.map((one) => one.value));
    if (lows.length) {
      values.push(lows[Math.floor(0.05 * lows.length)], highs[Math.ceil(0.95 * highs.length) - 1]);
      const usual = Math.max(...values) - Math.min(...values);
      if (Math.max(...values, ...highs) - Math.min(...values, ...lows) <= 2 * usual) values.push(lows[0], highs.at(-1));
    }
    if (!values.length) return [0, 1];
    const low = Math.min(...values);
    const high = Math.max(...values);
    const room = Math.max(0.08 * (high - low), 0.03 - (high - low) / 2, 0.01);
    return [Math.max(0, low - room), Math.min(1, high + room)];
  }

  options(columns, colours) {
    const many = this.points.length;
    const series = [{}];
    const bands = [];
    this.points.forEach((row, place) => {
      const colour = colours[PALETTE[place % PALETTE.length]];
      const dash = DASHES[Math.floor(place / PALETTE.length) % DASHES.length];
      const filled = row.map((_, at) => at).filter((at) => row[at]?.mean != null);
      const alone = (at) => row[at - 1]?.mean == null && row[at + 1]?.mean == null;
      const dots = filled.length < SPARSE ? filled : filled.filter(alone);
      const points = { show: dots.length > 0, filter: () => dots, size: 5, fill: colour, stroke: colour };
      series.push({ stroke: colour, width: 2, dash, points });
      const edge = { stroke: "transparent", width: 0, points: { show: false } };
      series.push(edge, { ...edge });
      if (many <= BANDS) {
        bands.push({ series: [3 * place + 3, 3 * place + 2], fill: colours[place ? "--band2" : "--band"] });
      }
    });
    if (this.before) {
      series.push({ stroke: colours["--quiet"], width: 1, dash: [3, 4], points: { show: false }, spanGaps: true });
    }
    const axis = { stroke: colours["--quiet"], font: FONT, grid: { show: false }, ticks: { stroke: colours["--line"], width: 1, size: 4 } };
    const [low, high] = this.scale(columns);
    return {
      width: Math.max(200, this.plot.clientWidth),
      height: this.height,
      padding: [20, 24, 0, 0],
      series,
      bands,
      legend: { show: false },
      tzDate: (seconds) => (isLocal() ? new Date(seconds * 1e3) : uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC")),
      scales: { x: { time: true, range: () => [this.answer.since, this.end()] }, y: { range: () => [low, high] } },
      axes: [
        { ...axis, values: AXIS, space: 72, size: 40 },
        { ...axis, size: 40, grid: { stroke: colours["--line"], width: 1 }, space: 44, values: (_, ticks) => ticks.map((one) => one.toFixed(2)) },
      ],
      cursor: { y: false, drag: { x: true, y: false, setScale: false, dist: 6 }, points: { size: 9 } },
      hooks: {
        drawClear: [(plot) => this.drawSpans(plot, colours)],
        draw: [(plot) => this.drawMarks(plot, colours)],
        setCursor: [(plot) => this.moved(plot)],
        setSelect: [(plot) => this.selected(plot)],
      },
    };
  }

  // The end of what is shown: now, where the last step is not over.
  end() {
    const { until, step_s: step } = this.answer;
    const now = Date.now() / 1000;
    return until > now && until - step < now ? Math.max(now, until - step / 2) : until;
  }

  draw() {
    if (!this.plot) this.setUp();
    const columns = this.arrays();
    this.chart?.destroy();
    this.plot.replaceChildren();
    this.chart = new uPlot(this.options(columns, palette()), columns, this.plot);
    let pressed = 0;
    this.chart.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    this.chart.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - pressed) > 4) return;
      const place = this.nearest(event.clientX - this.chart.over.getBoundingClientRect().left);
      if (place !== null) this.open(place);
    });
    const label = this.box.dataset.label || `${this.answer.metric} of ${this.answer.app}`;
    const first = this.answer.groups[0]?.total;
    this.plot.setAttribute("aria-label", `${label}, chart: arrow keys move, Enter opens the exchanges. In all ${described(first)}.`);
    this.plot.setAttribute("aria-valuemax", String(this.times.length - 1));
    if (this.index !== null) this.index = Math.min(this.index, this.times.length - 1);
    this.show(this.index);
    this.describe();
    this.tabulate();
    document.dispatchEvent(new CustomEvent("gaugeway:drawn", { detail: this.box }));
  }

  fit() {
    const width = Math.max(200, this.plot.clientWidth);
    if (this.chart && width !== this.chart.width) this.chart.setSize({ width, height: this.height });
  }

  drawSpans(plot, colours) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = colours["--bad-tint"];
    ctx.globalAlpha = 0.6;
    for (const mark of this.answer.marks) {
      if (mark.kind !== "alert") continue;
      const left = Math.max(bbox.left, plot.valToPos(mark.at, "x", true));
      const right = Math.min(bbox.left + bbox.width, plot.valToPos(mark.until ?? this.answer.until, "x", true));
      ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
    }
    ctx.restore();
  }

  drawMarks(plot, colours) {
    const { ctx, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.font = `${11 * ratio}px Inter, system-ui, sans-serif`;
    ctx.lineWidth = ratio;
    for (const line of this.answer.lines) {
      const y = plot.valToPos(line.value, "y", true);
      ctx.strokeStyle = ctx.fillStyle = line.kind === "slo" ? colours["--text"] : colours["--quiet"];
      ctx.setLineDash(line.kind === "slo" ? [] : [5 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    let free = bbox.left;
    ctx.strokeStyle = ctx.fillStyle = colours["--quiet"];
    for (const { at, names } of this.releases()) {
      const x = Math.max(bbox.left, plot.valToPos(at, "x", true));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const words = clipped(names.join(", "), 34);
      const width = ctx.measureText(words).width;
      const start = Math.max(bbox.left, Math.min(x, bbox.left + bbox.width - width));
      if (this.isLabelled && start >= free) {
        ctx.fillText(words, start, bbox.top - 3 * ratio);
        free = start + width + 8 * ratio;
      }
    }
    ctx.restore();
  }

  // The new versions that are shown; those of one release come within two steps and have one mark, a tag's name first.
  releases() {
    const { marks, since, step_s: step } = this.answer;
    const found = [];
    for (const mark of marks) {
      if (mark.kind === "alert" || mark.at < since) continue;
      const last = found.at(-1);
      if (last && mark.at - last.at <= SAME_STEPS * step) last.marks.push(mark);
      else found.push({ at: mark.at, marks: [mark] });
    }
    const rank = (mark) => (mark.kind.startsWith("tag:") ? 0 : 1);
    return found.map(({ at, marks: some }) => ({ at, names: some.sort((a, b) => rank(a) - rank(b)).map(markText) }));
  }

  moved(plot) {
    if (plot.cursor.idx != null && plot.cursor.left >= 0) this.read(plot.cursor.idx);
    else this.read(this.index);
  }

  // What has no point and is older than what the server has read is unknown, not empty.
  said(point, from) {
    return point || this.answer.complete || from >= this.answer.read_since ? described(point) : "not read yet";
  }

  // Says what is at a step; null: the whole range.
  read(index) {
    const step = this.answer.step_s;
    let words;
    if (index === null || index === undefined) {
      words = this.answer.groups.length > 1
        ? `${this.answer.groups.length} groups`
        : `${!this.answer.complete ? "Read so far: " : this.answer.groups[0]?.total.mean != null ? "Whole range: " : ""}${this.said(this.answer.groups[0]?.total, this.answer.since)}`;
    } else {
      const from = this.answer.since + index * step;
      const date = this.answer.until - this.answer.since > 86400 || step >= 86400;
      const span = `${timeText(from, { date })} to ${timeText(from + step, { date: step >= 86400 })}`;
      const parts = this.points
        .map((row, place) => [this.answer.groups[place].slice, row[index]])
        .filter(([, point]) => point || this.points.length === 1)
        .map(([slice, point]) => (this.points.length > 1 ? `${slice || "none"}: ${number(point?.mean)} (${point.n})` : this.said(point, from)));
      words = `${span}: ${parts.slice(0, LISTED).join("; ") || this.said(null, from)}`;
    }
    if (this.readout.textContent !== words) this.readout.textContent = words;
    return words;
  }

  show(index) {
    const words = this.read(index);
    this.plot.setAttribute("aria-valuenow", String(index ?? 0));
    this.plot.setAttribute("aria-valuetext", words);
    if (index === null) return;
    this.chart.setCursor({ left: this.chart.valToPos(this.times[index], "x"), top: 10 }, false);
  }

  filled() {
    return this.times.map((_, place) => place).filter((place) => this.points.some((row) => row[place]));
  }

  // The step with scores that is at, or within some pixels of, a place of the plot; null: none, there is nothing to open.
  nearest(left) {
    const step = this.answer.step_s;
    let found = null;
    let least = Infinity;
    for (const place of this.filled()) {
      const [from, to] = [-0.5, 0.5].map((half) => this.chart.valToPos(this.times[place] + half * step, "x"));
      const away = Math.max(0, from - left, left - to);
      const middle = Math.abs(left - (from + to) / 2) / 1e6;
      if (away <= NEAR && away + middle < least) {
        least = away + middle;
        found = place;
      }
    }
    return found;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.chart) return;
    const filled = this.filled();
    if (!filled.length) return;
    const last = filled.length - 1;
    const here = this.index === null ? null : filled.findLastIndex((place) => place <= this.index);
    const moves = {
      ArrowLeft: () => (here === null ? last : Math.max(0, here - 1)),
      ArrowRight: () => (here === null ? 0 : Math.min(last, here + 1)),
      Home: () => 0,
      End: () => last,
    };
    if (Object.hasOwn(moves, event.key)) {
      if (event.shiftKey) this.anchor ??= this.index ?? filled[moves[event.key]()];
      else this.unselect();
      this.index = filled[moves[event.key]()];
      this.show(this.index);
      if (event.shiftKey) this.select();
    } else if (event.key === "Enter" && this.anchor !== null) this.zoom(...this.range());
    else if (event.key === "Enter" && this.index !== null) this.open(this.index);
    else if (event.key === "Escape") this.unselect();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  range() {
    const { since, step_s: step } = this.answer;
    const [first, last] = [this.anchor, this.index].sort((a, b) => a - b);
    return [since + first * step, since + (last + 1) * step];
  }

  select() {
    const [from, to] = this.range().map((one) => this.chart.valToPos(one, "x"));
    this.chart.setSelect({ left: from, top: 0, width: to - from, height: this.chart.over.clientHeight }, false);
    const [since, until] = this.range();
    this.plot.setAttribute("aria-valuetext", `selected ${timeText(since, { date: true })} to ${timeText(until, { date: true })}`);
  }

  unselect() {
    this.anchor = null;
    this.chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  drop() {
    if (!this.chart) return;
    this.unselect();
    this.read(null);
  }

  selected(plot) {
    if (plot.select.width < 6) return;
    const { step_s: step, since: start } = this.answer;
    const [left, right] = [plot.select.left, plot.select.left + plot.select.width].map((one) => plot.posToVal(one, "x"));
    const [first, last] = [Math.floor((left - start) / step), Math.ceil((right - start) / step)];
    this.zoom(start + Math.max(0, first) * step, start + last * step);
  }

  // The range becomes that of the address: every chart and table of the view follows, and Back returns.
  zoom(since, until) {
    const address = new URL(location.href);
    address.searchParams.set("since", iso(since));
    address.searchParams.set("until", iso(Math.min(until, Date.now() / 1000)));
    for (const name of ["after", "done"]) address.searchParams.delete(name);
    location.assign(address);
  }

  open(index) {
    const { app, metric, since, step_s: step } = this.answer;
    const from = since + index * step;
    location.assign(`/explore?${new URLSearchParams({ app, metric, since: iso(from), until: iso(from + step) })}`);
  }

  // Legend and marks in words; what the canvas shows is not readable for everybody.
  describe() {
    const colours = palette();
    const { groups, more_groups: more, marks, more_marks: moreMarks, complete, step_enlarged: enlarged } = this.answer;
    const { since, until, asked_since: asked } = this.answer;
    const swatch = (colour) => {
      const one = make("span", { class: "chart-swatch", "aria-hidden": "true" });
      one.style.borderTopColor = colour;
      return one;
    };
    const entries = groups.length > 1
      ? groups.map((one, place) => make("li", {}, swatch(colours[PALETTE[place % PALETTE.length]]), one.slice || "none"))
      : [];
    if (more) entries.push(make("li", {}, `${more} more are not shown`));
    this.legend.replaceChildren(...entries);
    const listed = marks.slice(-LISTED).map((mark) => {
      const when = make("time", { datetime: iso(mark.at) }, `${iso(mark.at).slice(0, 16).replace("T", " ")} UTC`);
      const words = mark.fingerprint
        ? make("a", { href: `/alerts/${encodeURIComponent(mark.fingerprint)}` }, markText(mark))
        : markText(mark);
      return make("li", {}, words, " ", when);
    });
    const left = marks.length + moreMarks - listed.length;
    if (left > 0) listed.unshift(make("li", { class: "quiet" }, `${left} earlier ones`));
    this.list.replaceChildren(...listed);
    const notes = [];
    if (!complete) notes.push(this.again < MOST_AGAIN ? "Still reading older data." : "Older data could not be read in time: reload to go on.");
    if (since - asked > (until - asked) / 3) notes.push(`First scores: ${timeText(since, { date: true })}.`);
    if (enlarged) notes.push("The range is too long for the step asked for.");
    if (!groups.length && complete) notes.push("No scores in this range.");
    else if (complete && !this.points.some((row) => row.some((point) => point?.mean != null))) notes.push("Too few scores for a line yet.");
    this.note.textContent = notes.join(" ");
    document.dispatchEvent(new CustomEvent("gaugeway:times"));
  }

  tabulate() {
    if (!this.table.open) return;
    const many = this.points.length > 1;
    const titles = ["From", ...(many ? ["Group"] : []), "Mean", "95 % interval", "Scores"];
    const head = make("thead", {}, make("tr", {}, ...titles.map((one) => make("th", { scope: "col" }, one))));
    const body = make("tbody");
    this.times.forEach((_, place) => {
      this.points.forEach((row, group) => {
        const point = row[place];
        if (!point) return;
        const when = make("time", { datetime: iso(point.at) }, `${iso(point.at).slice(0, 16).replace("T", " ")} UTC`);
        const cells = [...(many ? [this.answer.groups[group].slice || "none"] : []), number(point.mean)];
        cells.push(point.mean === null ? "-" : `${number(point.ci_low)} to ${number(point.ci_high)}`, String(point.n));
        body.append(make("tr", {}, make("th", { scope: "row" }, when), ...cells.map((one) => make("td", {}, one))));
      });
    });
    const caption = make("caption", {}, this.box.dataset.label || `${this.answer.metric} of ${this.answer.app}`);
    const table = make("table", {}, caption, head, body);
    const wide = make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${caption.textContent}, table` }, table);
    this.table.replaceChildren(this.table.firstElementChild, this.list, wide);
    document.dispatchEvent(new CustomEvent("gaugeway:times"));
  }
}

function isPaused() {
  return document.hidden || document.documentElement.dataset.paused === "true";
}

function follow() {
  if (isPaused()) return;
  for (const one of charts.values()) if (one.live && one.chart && Date.now() - one.readAt >= LEAST_MS) one.load();
}

function redraw() {
  for (const one of charts.values()) if (one.chart) one.draw();
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    charts.get(entry.target).load();
  }
}, { rootMargin: "300px" });

// The library is loaded where there is a chart.
function library() {
  const { library: source, style } = document.getElementById("charts-script").dataset;
  document.head.append(make("link", { rel: "stylesheet", href: style }));
  return new Promise((done, failed) => {
    const script = make("script", { src: source });
    script.addEventListener("load", done);
    script.addEventListener("error", failed);
    document.head.append(script);
  });
}

// Parts of the page that the server has not read in full are asked for again.
async function complete(tries) {
  const parts = document.querySelectorAll("[data-incomplete]");
  if (!parts.length || tries > MOST_AGAIN) return;
  await new Promise((done) => setTimeout(done, AGAIN_MS * Math.min(tries, SLOWEST)));
  if (!isPaused()) {
    const answer = await fetch(location.href, { headers: { accept: "text/html", prefer: "wait" } });
    const page = answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    for (const part of parts) {
      const fresh = page?.getElementById(part.id);
      if (fresh && !part.contains(document.activeElement)) part.replaceWith(document.importNode(fresh, true));
    }
    document.dispatchEvent(new CustomEvent("gaugeway:times"));
  }
  complete(tries + 1);
}

const boxes = document.querySelectorAll(".chart-live[data-series]");
if (boxes.length) {
  library().then(() => {
    for (const box of boxes) {
      charts.set(box, new Chart(box));
      near.observe(box);
    }
  });
}
complete(1);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("gaugeway:zone", redraw);
document.addEventListener("gaugeway:refreshed", follow);
setInterval(follow, LIVE_MS);
