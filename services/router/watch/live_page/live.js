// The live page of a Tandem router. The page asks live.json every four seconds for new samples and computes everything else here.
"use strict";

const SPAN = 600;      // largest number of seconds that charts show
const LEAST_SPAN = 60;
const WINDOW = 5;      // seconds over which rates are taken
const SLOW = 20;       // seconds over which acceptance is taken
const LEAST_DRAFTED = 50;  // drafted tokens from which an acceptance rate is shown
const LEAST_GAINS = 8;     // samples from which an expected speedup is shown
const POLL = 4000;     // milliseconds from one answer to the next question; with one question a second, a browser needs three times the CPU time (bench/live_page.py)
const REDRAW = 2;      // answers from one drawing of the charts to the next; numbers change with each answer
const byId = (id) => document.getElementById(id);
const samples = [];    // see LiveSample in live_history.h
let events = [];
let state = null;
let about = null;
let positions = null;
let drafters = [];     // see DraftersJson in live_history.cc
let offset = 0;        // this clock minus the server's

// ---------------------------------------------------------------- numbers

const short = (x) => x === 0 ? "0" : x >= 1e4 ? (x / 1e3).toFixed(x >= 1e5 ? 0 : 1) + "k" : x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
const percent = (x) => x === null ? "–" : (100 * x).toFixed(0) + " %";
const whole = (x) => Math.round(x).toLocaleString("en").replaceAll(",", " ");

function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, name] of units) if (seconds >= size) return Math.floor(seconds / size) + " " + name;
  return Math.floor(seconds) + " s";
}

// Returns the samples [before, after] that span the last `seconds` before sample `i`, or null if there is no such earlier sample.
function over(i, seconds) {
  const after = samples[i];
  let j = i;
  while (j > 0 && after.t - samples[j - 1].t <= seconds) j--;
  // If counts fell, the router or its drafter was replaced.
  while (j < i && (samples[j].rounds > after.rounds || samples[j].drafted > after.drafted)) j++;
  return j < i ? [samples[j], after] : null;
}

const rate = (pair, of) => pair ? (of(pair[1]) - of(pair[0])) / (pair[1].t - pair[0].t) : 0;

function share(pair, part, all) {
  if (!pair) return null;
  const sum = all(pair[1]) - all(pair[0]);
  return sum > 0 ? (part(pair[1]) - part(pair[0])) / sum : null;
}

// ---------------------------------------------------------------- charts

const colorOf = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function niceCeiling(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= x) * power;
}

// Draws series with one value for each sample, stacked or as lines. Null is a gap.
class Chart {
  constructor(name, series, options) {
    this.canvas = byId(name + "-chart");
    this.legend = byId(name + "-legend");
    this.series = series;
    this.options = options;
    this.hover = null;
    this.known = new WeakMap();  // values of samples; they depend on earlier samples and never change
    this.canvas.addEventListener("pointermove", (event) => { this.hover = event.offsetX; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; this.draw(); });
    this.items = series.map(({ label, color }) => {
      const item = document.createElement("span");
      const mark = document.createElement("i");
      mark.style.background = `var(--${color})`;
      const value = document.createElement("b");
      item.append(mark, label + " ", value);
      this.legend.append(item);
      return value;
    });
  }

  update() {
    this.samples = samples.slice();  // a copy, because more samples may come before the next drawing
    this.values = samples.map((sample, i) => {
      let values = this.known.get(sample);
      if (!values) this.known.set(sample, values = this.options.values(i));
      return values;
    });
    this.draw();
  }

  draw() {
    if (!this.values) return;
    const { canvas, series, options, samples } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const g = canvas.getContext("2d");
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    const left = 40, right = width - 4, top = 8, bottom = height - 20;
    const end = samples.length ? samples[samples.length - 1].t : 0;
    const span = samples.length ? Math.min(SPAN, Math.max(LEAST_SPAN, end - samples[0].t)) : SPAN;
    const begin = end - span;
    const x = (t) => left + (right - left) * (t - begin) / span;
    const sums = this.values.map((row) => options.stacked ? row.reduce((sum, value) => sum + (value || 0), 0) : Math.max(0, ...row));
    const highest = Math.max(0, ...sums) * 1.05;
    // A logarithmic axis has three decades or more, and ends at powers of ten.
    const high = Math.ceil(Math.log10(highest || 1)), low = Math.min(high - 3, Math.floor(Math.log10(Math.min(...this.values.flat().filter((value) => value > 0), 1))));
    const most = options.most || (options.whole ? Math.max(4, Math.ceil(niceCeiling(highest) / 4) * 4) : niceCeiling(highest));
    const place = (value) => options.log ? (Math.log10(value) - low) / (high - low) : value / most;
    const y = (value) => bottom - (bottom - top) * Math.max(0, Math.min(place(value), 1));
    const ticks = options.log ? Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)) : [0, 1, 2, 3, 4].map((i) => most * i / 4);

    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.strokeStyle = colorOf("grid");
    g.fillStyle = colorOf("dim");
    g.lineWidth = 1;
    ticks.forEach((tick, i) => {
      const at = Math.round(y(tick)) + 0.5;
      g.beginPath(); g.moveTo(left, at); g.lineTo(right, at); g.stroke();
      g.textAlign = "right";
      if (options.log || i % 2 === 0) g.fillText(options.axis(tick), left - 7, at);
    });
    g.textAlign = "center";
    const step = span > 300 ? 120 : span > 120 ? 60 : 20;
    for (let ago = step; ago < span - step / 4; ago += step) {
      g.fillText(ago % 60 ? `−${ago} s` : `−${ago / 60} min`, x(end - ago), height - 7);
    }

    const base = new Array(this.values.length).fill(0);
    series.forEach(({ color }, s) => {
      g.strokeStyle = g.fillStyle = colorOf(color);
      g.lineWidth = options.stacked ? 1 : 2;
      g.lineJoin = "round";
      let from = null;
      const flush = (to) => {
        if (from === null) return;
        g.beginPath();
        for (let i = from; i <= to; i++) g.lineTo(x(samples[i].t), y(base[i] + this.values[i][s]));
        if (options.stacked) {
          for (let i = to; i >= from; i--) g.lineTo(x(samples[i].t), y(base[i]));
          g.globalAlpha = 0.85; g.fill(); g.globalAlpha = 1;
        } else {
          g.stroke();
        }
        from = null;
      };
      this.values.forEach((row, i) => {
        if (row[s] === null) flush(i - 1); else if (from === null) from = i;
      });
      flush(this.values.length - 1);
      if (options.stacked) this.values.forEach((row, i) => { base[i] += row[s] || 0; });
    });

    let at = this.values.length - 1;
    if (this.hover !== null && this.values.length) {
      const time = begin + span * (this.hover - left) / (right - left);
      at = samples.reduce((best, sample, i) => Math.abs(sample.t - time) < Math.abs(samples[best].t - time) ? i : best, 0);
      g.strokeStyle = colorOf("dim");
      g.lineWidth = 1;
      g.beginPath(); g.moveTo(x(samples[at].t), top); g.lineTo(x(samples[at].t), bottom); g.stroke();
    }
    const texts = series.map((_, s) => at >= 0 && this.values[at][s] !== null ? options.text(this.values[at][s]) : "–");
    texts.forEach((text, s) => { this.items[s].textContent = text; });
    canvas.setAttribute("aria-label", series.map(({ label }, s) => `${label} ${texts[s]}`).join(", "));
  }
}

// The latencies of a sample, in this order.
const LATENCIES = [
  { label: "queue", color: "plain", title: "from the arrival of a request until it had a slot" },
  { label: "first token", color: "accepted", title: "from the arrival of a request to its first token" },
  { label: "between tokens", color: "bonus", title: "from one token to the next, as the mean of a finished request" },
  { label: "whole request", color: "recovered", title: "from the arrival of a request to its last token" }];

const charts = [
  new Chart("tokens", [
    { label: "accepted", color: "accepted" }, { label: "bonus", color: "bonus" },
    { label: "recovered", color: "recovered" }, { label: "plain", color: "plain" }], {
    stacked: true, axis: short, text: short,
    values: (i) => [0, 2, 1, 3].map((source) => rate(over(i, WINDOW), (sample) => sample.emitted[source])) }),
  new Chart("acceptance", [{ label: "accepted / drafted", color: "rate" }, { label: "α = accepted / tested", color: "alpha" }], {
    most: 1, axis: percent, text: percent,
    values: (i) => ["drafted", "tested"].map((all) => share(over(i, SLOW), (sample) => sample.accepted, (sample) => sample[all])) }),
  new Chart("round", [
    { label: "verify", color: "verify" }, { label: "draft", color: "draft" },
    { label: "transfer", color: "transfer" }, { label: "router", color: "commit" }], {
    stacked: true, axis: short, text: short,
    values: (i) => [2, 0, 1, 3].map((stage) => {
      const seconds = share(over(i, WINDOW), (sample) => sample.stages[stage], (sample) => sample.rounds);
      return seconds === null ? null : 1e3 * seconds;
    }) }),
  new Chart("latency", LATENCIES.map(({ label, color }) => ({ label, color })), {
    log: true, axis: (value) => value < 0.1 ? String(value) : short(value), text: (value) => short(value) + " ms",
    values: (i) => samples[i].latencies.map(([count, , p95]) => count > 0 ? p95 : null) }),
  new Chart("requests", [{ label: "running", color: "bonus" }, { label: "waiting", color: "recovered" }], {
    stacked: true, whole: true, axis: String, text: String,
    values: (i) => [samples[i].running, samples[i].waiting] }),
];

// ---------------------------------------------------------------- the rest

function setNumber(id, text, unit) {
  const element = byId(id);
  if (!changed(id, text, unit)) return;
  element.textContent = text;
  if (!unit) return;
  const small = document.createElement("small");
  small.textContent = unit;
  element.append(small);
}

// The router's expectation: mean and standard deviation of the samples of the last seconds. It is hidden while there are few.
function showGain(decoding, slow) {
  const gains = slow ? samples.slice(samples.indexOf(slow[0]) + 1).map((sample) => sample.gain) : [];
  const enough = decoding && gains.length >= LEAST_GAINS;
  const mean = gains.reduce((sum, gain) => sum + gain, 0) / gains.length;
  const variance = gains.reduce((sum, gain) => sum + (gain - mean) ** 2, 0) / (gains.length - 1);
  setNumber("gain", enough ? mean.toFixed(2) + "×" : "–", enough ? `± ${Math.sqrt(variance).toFixed(2)}` : "");
  byId("gain").parentElement.title = `What the router expects of its drafts, from measured costs and acceptance; not a measurement. The mean and the standard deviation of ${gains.length} samples in ${SLOW} s.`;
}

function showNumbers() {
  const i = samples.length - 1;
  if (i < 0 || !state) return;
  const now = over(i, WINDOW), slow = over(i, SLOW);
  const tokens = rate(now, (sample) => sample.emitted.reduce((sum, count) => sum + count, 0));
  const decoding = rate(now, (sample) => sample.rounds) > 0;
  setNumber("tokens", short(tokens));
  showGain(decoding, slow);
  // With few samples the share says nothing.
  const drafted = slow ? slow[1].drafted - slow[0].drafted : 0;
  const accepted = drafted >= LEAST_DRAFTED ? share(slow, (sample) => sample.accepted, (sample) => sample.drafted) : null;
  const tested = slow ? slow[1].tested - slow[0].tested : 0;  // tokens after a rejection were not tested, and tell nothing
  const error = accepted === null ? 0 : 196 * Math.sqrt(accepted * (1 - accepted) / Math.max(tested, 1));
  setNumber("acceptance", accepted === null ? "–" : (100 * accepted).toFixed(0), accepted === null ? "" : `± ${Math.max(error, 1).toFixed(0)} %`);
  byId("acceptance").parentElement.title = `accepted / drafted, with about the 95 % interval of ${whole(tested)} tested tokens in ${SLOW} s`;
  // Tokens of a request for each target pass: a pass commits the accepted tokens and one more token.
  const all = (sample) => sample.emitted.reduce((sum, count) => sum + count, 0);
  const passes = share(slow, all, (sample) => all(sample) - sample.emitted[0]);
  setNumber("length", passes === null ? "–" : passes.toFixed(2));
  setNumber("slots", String(state.running), "of " + state.slots);
  setNumber("waiting", String(state.waiting));
}

// Returns true if the values differ from those of the last call for `name`. Parts of the page that did not change are not built again.
const shown = new Map();
function changed(name, ...values) {
  const key = JSON.stringify(values);
  if (shown.get(name) === key) return false;
  shown.set(name, key);
  return true;
}

function showStates() {
  byId("about").textContent = `Tandem ${about.version}, up for ${duration(Date.now() / 1e3 - offset - about.started)}`;
  const { pods } = state;
  if (!changed("states", state.verifier, state.has_drafter, state.drafter, state.drafter_problem, state.transport, pods, about.model, state.draft_model, state.heads)) return;
  // A worker that was never lost and is not attached has not attached yet.
  const worker = (name, attached, losses, problem) => {
    if (attached) return [name, "good", name];
    if (losses === 0 && !problem) return [name, "warn", name + " starts"];
    return [name, "bad", losses > 0 ? name + " is gone" : "no " + name, problem];
  };
  const pills = [worker("verifier", state.verifier, state.verifier_losses)];
  if (state.has_drafter) pills.push(worker("drafter", state.drafter, state.drafter_losses, state.drafter_problem));
  if (state.has_drafter && state.drafter && state.drafter_problem) {
    pills.push(["missing", "bad", "a drafter is missing", state.drafter_problem]);
  }
  if (state.has_drafter && state.drafter) {
    const kind = state.transport === "none" ? "bad" : state.transport === "inline" ? "warn" : "good";
    pills.push(["transport", kind, "ring: " + state.transport]);
  }
  if (pods.total > 1) {
    const kind = pods.ready === pods.total ? "good" : pods.ready > 0 ? "warn" : "bad";
    pills.push(["pods", kind, `pods: ${pods.ready} of ${pods.total}`]);
  }
  byId("states").replaceChildren(...pills.map(([name, kind, text, title]) => {
    const pill = document.createElement("li");
    pill.className = kind;
    pill.dataset.name = name;
    pill.textContent = text;
    if (title) pill.title = title;
    return pill;
  }));
  const model = document.createElement("b");
  model.textContent = about.model;
  const names = [model];
  if (state.draft_model) {
    const draft = document.createElement("b");
    draft.textContent = state.draft_model;
    names.push(" drafted by ", draft);
  }
  state.heads.forEach(({ name, drafter }, i) => {
    const heads = document.createElement("b");
    heads.textContent = drafter;
    names.push(i === 0 ? " with heads " : ", ", heads, name ? ` (${name})` : "");
  });
  byId("models").replaceChildren(...names);
}

function showPositions() {
  if (!changed("positions", positions)) return;
  const bars = [];
  positions.tested.forEach((tested, i) => {
    if (tested === 0) return;
    const accepted = positions.accepted[i] / tested;
    const bar = document.createElement("div");
    const value = document.createElement("b");
    value.textContent = (100 * accepted).toFixed(0);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 10 100");
    svg.setAttribute("preserveAspectRatio", "none");
    for (const [kind, height] of [["all", 100], ["kept", 100 * accepted]]) {
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      rect.setAttribute("class", kind);
      rect.setAttribute("y", 100 - height);
      rect.setAttribute("width", 10);
      rect.setAttribute("height", height);
      svg.append(rect);
    }
    const place = document.createElement("span");
    place.textContent = i + 1;
    bar.append(value, svg, place);
    bar.title = `${whole(positions.accepted[i])} of ${whole(tested)} tested tokens accepted`;
    bar.ariaLabel = `position ${i + 1}: ${percent(accepted)}`;
    bars.push(bar);
  });
  if (bars.length === 0) {
    const none = document.createElement("p");
    none.textContent = "nothing was drafted";
    bars.push(none);
  }
  byId("positions").setAttribute("aria-label", bars.map((bar) => bar.ariaLabel || bar.textContent).join(", "));
  byId("positions").replaceChildren(...bars);
}

function showDrafters() {
  if (!changed("drafters", drafters)) return;
  byId("drafters").hidden = drafters.length === 0;
  const head = document.createElement("tr");
  head.append(...["", "drafted", "accepted", "α", "gain"].map((text) => cell("th", text)));
  byId("drafters").replaceChildren(head, ...drafters.map(({ name, drafted, accepted, tested, gain }) => {
    const row = document.createElement("tr");
    row.title = `${whole(accepted)} of ${whole(drafted)} tokens of this drafter were accepted in the last minute. ` + (gain
      ? `Gain: the tokens of its ${whole(gain.drafts)} rounds, divided by those of plain decoding in the same time, from measured costs, with about the 95 % interval of the rounds.`
      : "It drafted too few rounds with known costs to tell what it gained.");
    row.append(cell("th", name), cell("td", whole(drafted)), cell("td", percent(accepted / drafted)), cell("td", percent(tested > 0 ? accepted / tested : null)),
      cell("td", gain ? `${gain.ratio.toFixed(2)}× ± ${gain.error.toFixed(2)}` : "–"));
    return row;
  }));
}

function showLatencies() {
  const head = document.createElement("tr");
  head.append(...["", "p50", "p95", "p99"].map((text) => cell("th", text)));
  const { latencies } = samples[samples.length - 1];
  byId("latencies").replaceChildren(head, ...LATENCIES.map(({ label, title }, i) => {
    const row = document.createElement("tr");
    const [count, ...quantiles] = latencies[i];
    row.title = `${title}; ${whole(count)} in the last 20 s`;
    row.append(cell("th", label), ...quantiles.map((value) => cell("td", count > 0 ? short(value) + " ms" : "–")));
    return row;
  }));
}

function cell(name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  return element;
}

function showCache(id, pages) {
  // A shorter bar would be a sliver between two round ends.
  byId(id).value = pages.used ? Math.max(pages.used / pages.total, 0.04) : 0;
  byId(id + "-text").textContent = `${whole(pages.used)} of ${whole(pages.total)} pages`;
}

function showTotals() {
  const last = samples[samples.length - 1];
  const rows = [
    ["requests finished", state.finished], ["tokens", last.emitted.reduce((sum, count) => sum + count, 0)],
    ["drafted", last.drafted], ["accepted", last.accepted], ["preempted", state.preemptions],
    ["verifier lost", state.verifier_losses], ["drafter lost", state.drafter_losses], ["ring errors", state.ring_errors]];
  byId("totals").replaceChildren(...rows.map(([name, value]) => {
    const row = document.createElement("div");
    const term = document.createElement("dt");
    term.textContent = name;
    const number = document.createElement("dd");
    number.textContent = whole(value);
    row.append(term, number);
    return row;
  }));
}

function showEvents() {
  const lines = events.slice().reverse().map(({ t, level, text }) => {
    const line = document.createElement("li");
    line.className = level;
    const time = document.createElement("time");
    time.textContent = new Date(1e3 * (t + offset)).toLocaleTimeString("en-GB");
    line.append(time, text);
    return line;
  });
  if (lines.length === 0) {
    const line = document.createElement("li");
    line.className = "none";
    line.textContent = "none yet";
    lines.push(line);
  }
  byId("events").replaceChildren(...lines);
}

let drawn = 0;

function show() {
  if (!state) return;
  showNumbers();
  showStates();
  if (drawn++ % REDRAW !== 0) return;
  showPositions();
  showDrafters();
  showLatencies();
  showCache("kv", state.kv);
  showCache("draft-kv", state.draft_kv);
  byId("draft-kv").parentElement.hidden = !state.has_drafter;
  showTotals();
  for (const chart of charts) chart.update();
}

// ---------------------------------------------------------------- life

let since = 0;
let failedAt = null;

function take(answer) {
  if (about && answer.started !== about.started) {  // another router answers
    samples.length = 0;
    events = [];
  }
  about = answer;
  samples.push(...answer.samples.filter((sample) => sample.t > since));
  if (answer.samples.length) {
    since = samples[samples.length - 1].t;
    offset = Date.now() / 1e3 - since;
  }
  while (samples.length && samples[0].t < since - SPAN) samples.shift();
  const known = events.length ? events[events.length - 1].t : 0;
  const fresh = answer.events.filter((event) => event.t > known);
  events = events.concat(fresh).slice(-50);
  if (answer.state) {
    state = answer.state;
    positions = answer.positions;
    drafters = answer.drafters;
  }
  if (fresh.length || !byId("events").children.length) showEvents();
}

async function poll() {
  // A hidden page asks nothing.
  if (!document.hidden) {
    try {
      const response = await fetch("live.json?since=" + since, { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!response.ok) throw new Error("status " + response.status);
      const answer = await response.json();
      if (about && answer.started !== about.started && since > 0) {
        since = 0;  // asks for all samples of the new router
        take(await (await fetch("live.json?since=0", { cache: "no-store" })).json());
      } else {
        take(answer);
      }
      failedAt = null;
      byId("lost").hidden = true;
      show();
    } catch (error) {
      failedAt = failedAt || Date.now();
      byId("lost").textContent = `No answer from the router for ${duration((Date.now() - failedAt) / 1e3)} (${error.message}).`;
      byId("lost").hidden = false;
    }
  }
  setTimeout(poll, POLL);
}

for (const [source, event] of [[window, "resize"], [matchMedia("(prefers-color-scheme: dark)"), "change"]]) {
  source.addEventListener(event, () => charts.forEach((chart) => chart.draw()));
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  drawn = 0;  // draws the charts now
  show();
});
poll();
