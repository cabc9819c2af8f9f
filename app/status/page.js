"use strict";
const EVERY = 2000, HISTORY = 5, FIRST = 100;
const WORST = ["blocked", "stalled", "falling behind", "paused", "unknown", "waiting", "catching up", "ok"];
const MARKS = {blocked: "×", stalled: "!", "falling behind": "↑", paused: "‖", unknown: "?", waiting: "…", "catching up": "↓", ok: ""};
const NAMES = 5, TONES = 5, MANY = 24;
const at = id => document.getElementById(id);
const number = value => value == null ? "–" : Math.round(value).toLocaleString("en");
const fine = value => Number(value.toPrecision(3)).toLocaleString("en");
const css = word => word.replace(" ", "-");
let showAll = false, last = null, past = null, silentSince = null, looks = 0, chosen = null;

function duration(seconds) {
  if (seconds == null) return "–";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${(seconds / size).toFixed(seconds >= 60 && seconds / size < 10 ? 1 : 0)} ${unit}`;
}

function clock(time, now) {
  const moment = new Date(1000 * time), day = now - time < 43200 ? "" : `${moment.toLocaleDateString("en-CA")} `;
  return day + moment.toLocaleTimeString("en-GB");
}

// Data from the driver is always text, never markup.
function element(name, text, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// A text whose words, such as `raw-logs-17` and `--to-latest`, stay whole where its lines break.
function wrapped(name, text, className) {
  const made = element(name, "", className);
  made.append(...text.split(" ").flatMap(word => [" ", element("span", word, "whole")]).slice(1));
  return made;
}

// Each cell has a text, a class and, for wide screens, a supplement. The first one is the row's head.
function row(...cells) {
  const made = document.createElement("tr");
  cells.forEach(([text, className, supplement], index) => {
    const cell = (className?.startsWith("words") ? wrapped : element)(index ? "td" : "th", text, className);
    if (!index) cell.scope = "row";
    if (supplement) cell.append(element("span", supplement, "wide"));
    made.append(cell);
  });
  return made;
}

// Replaces only the cells that changed, so that a selection and a screen reader keep their place.
function show(id, rows) {
  const body = at(id);
  rows.forEach((made, index) => {
    const known = body.children[index];
    if (!known) body.append(made);
    else if (known.children.length !== made.children.length) known.replaceWith(made);
    else [...made.children].forEach((cell, column) => known.children[column].isEqualNode(cell) || known.children[column].replaceWith(cell));
  });
  while (body.children.length > rows.length) body.lastElementChild.remove();
}

// The browser's clipboard works only on this machine or over TLS; elsewhere the selection is copied.
async function copy(code, button) {
  getSelection().selectAllChildren(code);
  const copied = navigator.clipboard ? await navigator.clipboard.writeText(code.textContent).then(() => true, () => false) : false;
  button.textContent = copied || document.execCommand("copy") ? "copied" : "press Ctrl-C";
  button.setAttribute("aria-label", `${button.textContent}: ${code.textContent}`);
}

function command(text) {
  const made = element("span", "", "command"), code = wrapped("code", text), button = element("button", "copy");
  button.type = "button";
  button.setAttribute("aria-label", `copy: ${text}`);
  button.addEventListener("click", () => copy(code, button));
  made.append(code, button);
  return made;
}

const advice = parts => parts.map(part => part.command ? command(part.text) : element("span", part.text));

// Replaces what has changed, so that a selection, the focus and `copied` last.
function fill(id, content, make) {
  const state = JSON.stringify(content);
  if (at(id).dataset.state !== state) at(id).replaceChildren(...make(content));
  at(id).dataset.state = state;
}

function lasting(since, now) {
  return since == null ? "" : `for ${duration(now - since)}, since ${clock(since, now)}`;
}

function say(level, parts, ...sentences) {
  at("state").className = level;
  // A screen reader hears a change of the state, not each second of it.
  const heard = sentences[0].split(" · ")[0];
  if (at("heard").textContent !== heard) at("heard").textContent = heard;
  fill("advice", parts, advice);
  ["state", "happening", "safe", "detail"].forEach((id, index) => { at(id).textContent = sentences[index] ?? ""; });
}

function showState(status) {
  const words = status.partitions.map(each => each.condition), service = status.service;
  const counts = WORST.map(word => [word, words.filter(each => each === word).length]).filter(([, count]) => count);
  const said = counts.map(([word, count]) => `${number(count)} ${word}`).join(", ");
  const known = said && service.word !== "outage" ? [said, `lag ${number(status.lag)}`] : [];
  const text = [service.says, lasting(service.since, status.now), ...known].filter(Boolean).join(" · ");
  say(service.level, service.advice, text, service.happening, service.safe, service.detail && `last error: ${service.detail}`);
  at("figures").classList.toggle("old", old());
  at("version").textContent = status.about.build.version;
  at("group").textContent = status.group;
  at("age").textContent = status.age == null ? "no figures from Kafka yet"
    : `${old() ? "the figures below are old: " : ""}offsets from ${duration(status.age)} ago · up for ${duration(status.now - status.started)}`;
  document.title = `${service.word} · ${status.group} · Winnow`;
}

const old = () => silentSince != null || ["outage", "hangs"].includes(last.service.word);

function silent() {
  silentSince ??= Date.now() / 1000;
  at("figures").classList.add("old");
  say("bad", [], `the driver does not respond · ${lasting(silentSince, Date.now() / 1000)}`, "This page asks again every 2 s.");
  document.title = "no response · Winnow";
}

// The service's own problem is in the state above; partitions with the same problem share a card.
function showProblems(status) {
  const cards = new Map();
  for (const each of status.problems.filter(each => each.cause !== status.service.problem?.cause)) {
    const name = each.topic == null ? "" : `${each.topic}-${each.partition}${each.offset == null ? "" : `@${each.offset}`}`;
    const key = `${each.cause}\n${each.cure}`, known = cards.get(key);
    if (known) known.names.push(name);
    else cards.set(key, {...each, names: [name]});
  }
  fill("problems", [...cards.values()].map(({names, cause, since, advice, warns}) => ({names, cause, since, advice, warns})), problems => problems.map(card));
  for (const made of document.querySelectorAll("#problems [data-since]")) made.textContent = lasting(Number(made.dataset.since), status.now);
  at("findings").hidden = !status.findings.length;
  at("findings").firstElementChild.textContent = `findings of the preflight: ${number(status.findings.length)}`;
  fill("found", status.findings, findings => findings.map(parts => {
    const made = element("li", "");
    made.append(...advice(parts));
    return made;
  }));
}

function card({names, cause, since, advice: parts, warns}) {
  const more = names.length > NAMES ? ` and ${number(names.length - NAMES)} more` : "";
  const where = names[0] ? `${names.slice(0, NAMES).join(", ")}${more}: ` : "";
  const made = wrapped("div", `${where}${cause} `, warns ? "card problem warns" : "card problem"), time = element("span", "", "quiet"), cure = element("p", "");
  time.dataset.since = since;
  cure.append(...advice(parts));
  made.append(time, cure);
  return made;
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// The runs of points without a gap. What nobody saw is a gap, and so is the time before the start.
function runs(known) {
  const found = [];
  known.forEach((is, index) => is && (known[index - 1] ? found.at(-1).push(index) : found.push([index])));
  return found.filter(run => run.length > 1);
}

function rounded(value) {
  const size = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map(step => step * size).find(step => step >= value) ?? 1;
}

function times(begin, end) {
  const step = {1: 600, 6: 3600, 24: 14400}[Math.round((end - begin) / 3600)], zone = -60 * new Date().getTimezoneOffset();
  const first = Math.ceil((begin + zone) / step) * step - zone;
  return Array.from({length: Math.floor((end - first) / step) + 1}, (_, index) => first + index * step);
}

// Draws layers on top of each other: lists of values, null where none is known, at the same times.
function draw(id, name, unit, moments, layers, limit) {
  const end = last.now, begin = end - 3600 * at("hours").value, plot = at(id);
  const sums = moments.map((_, index) => layers.reduce((sum, values) => sum + (values[index] ?? 0), 0));
  const seen = moments.map((time, index) => time >= begin && layers.every(values => values[index] != null));
  const shown = sums.filter((_, index) => seen[index]), most = Math.max(0, ...shown);
  const top = rounded(limit != null && limit < 3 * most ? Math.max(most, limit) : most);
  const x = time => 1000 * (time - begin) / (end - begin), y = value => 100 - 100 * value / top;
  const picture = shape("svg", {viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img"});
  const label = (text, className, style) => Object.assign(plot.appendChild(element("span", text, className)).style, style);
  plot.replaceChildren(picture);
  for (const time of times(begin, end)) {
    picture.append(shape("line", {x1: x(time), x2: x(time), y1: 0, y2: 100}));
    if (x(time) > 30 && x(time) < 970) label(clock(time, time).slice(0, 5), "time", {left: `${x(time) / 10}%`});
  }
  let below = moments.map(() => 0);
  layers.forEach((values, tone) => {
    const above = below.map((value, index) => value + (values[index] ?? 0)), under = below;
    const points = (run, of) => run.map(index => `${x(moments[index]).toFixed(1)},${y(of[index]).toFixed(1)}`);
    for (const run of runs(seen)) {
      picture.append(shape("polygon", {class: `tone-${tone}`, points: [...points(run, above), ...points(run.toReversed(), under)].join(" ")}));
      picture.append(shape("polyline", {class: `tone-${tone}`, points: points(run, above).join(" ")}));
    }
    below = above;
  });
  label(shown.length > 1 ? `${fine(top)} ${unit}` : "no figures yet", "top", {});
  if (limit != null) {
    picture.append(shape("line", {class: "limit", x1: 0, x2: 1000, y1: y(Math.min(limit, top)), y2: y(Math.min(limit, top))}));
    label(`limit ${fine(limit)} ${unit}`, "bound", {top: `${Math.max(0, y(limit))}%`});
  }
  const range = shown.length ? `from ${fine(Math.min(...shown))} to ${fine(most)} ${unit}, last ${fine(shown.at(-1))}` : "no figures yet";
  picture.setAttribute("aria-label", `${name}, ${at("hours").selectedOptions[0].text}: ${range}${limit == null ? "" : `, limit ${fine(limit)}`}`);
}

function showCharts() {
  if (!last || !past) return;
  const moments = at("hours").value === "1" ? past.hour : past.day, time = moments.at;
  const steps = time.slice(1).map((end, index) => end - time[index]).sort((a, b) => a - b);
  const usual = at("hours").value === "1" ? 10 : 240, gap = 3 * Math.max(usual, steps[Math.floor(steps.length / 2)] ?? 0);
  const change = values => values.map((value, index) => index && time[index] - time[index - 1] <= gap ? Math.max(0, value - values[index - 1]) : null);
  const per = (values, whole) => change(values).map((value, index) => value == null ? null : value / (whole[index] || Infinity));
  const seconds = time.map((end, index) => end - time[index - 1]), records = change(moments.records);
  const counts = reason => moments.dead[reason].at(-1), reasons = Object.keys(moments.dead).sort((a, b) => counts(b) - counts(a));
  const shares = reasons.map(reason => per(moments.dead[reason], records).map(share => share == null ? null : 100 * share));
  const layers = shares.slice(0, TONES), rest = shares.slice(TONES);
  if (rest.length) layers.push(time.map((_, index) => rest.reduce((sum, share) => share[index] == null ? null : sum + share[index], 0)));
  const ratio = past.limits.dead_letters_ratio;
  draw("rate", "records per second", "records/s", time, [per(moments.records, seconds)], past.limits.records_per_second);
  draw("lag", "lag", "offsets", time, [moments.lag.map((value, index) => !index || time[index] - time[index - 1] <= gap ? value : null)]);
  draw("share", "dead letters", "% of records", time, layers.length ? layers : [records.map(value => value && 0)], ratio == null ? null : 100 * ratio);
  const sum = layers.reduce((sum, layer) => sum + (layer.at(-1) ?? NaN), 0);
  at("share-now").textContent = old() || Number.isNaN(sum) ? "–" : `${fine(sum)} %`;
  at("rate-now").textContent = number(last.records_per_second);
  at("lag-now").textContent = number(last.lag);
}

function showPartitions(status) {
  const wanted = at("filter").value.trim().toLowerCase();
  const all = status.partitions.map(each => ({...each, name: `${each.topic}-${each.partition}`, rank: WORST.indexOf(each.condition)}));
  const exact = all.some(each => each.name.toLowerCase() === wanted);
  const found = all
    .filter(each => exact ? each.name.toLowerCase() === wanted : `${each.name} ${each.condition} ${each.state}`.toLowerCase().includes(wanted))
    .sort((a, b) => a.rank - b.rank || b.lag - a.lag || a.partition - b.partition);
  const shown = showAll ? found : found.slice(0, FIRST);
  show("partitions", shown.map(each => row(
    [each.name],
    [each.condition + (each.seconds_to_close == null ? "" : `, ${duration(each.seconds_to_close).replace(" ", "\u00a0")} left`), `words ${css(each.condition)}`],
    [number(each.lag)],
    [each.lag ? duration(each.lag_seconds) : "0 s", "wide"],
    [number(each.records_per_second), "", each.rate_limit == null || each.records_per_second == null ? "" : ` of ${number(each.rate_limit)}`],
    [number(each.records), "wide"],
    [number(Object.values(each.dead).reduce((sum, count) => sum + count, 0)), "wide"],
    [number(each.committed), "wider"],
    [each.last_commit == null ? "–" : `${duration(status.now - each.last_commit)} ago`, "wider"],
  )));
  at("shown").textContent = `${number(shown.length)} of ${number(status.partitions.length)}, worst first`;
  at("all").hidden = shown.length === found.length;
}

function showTotals(status) {
  const reasons = Object.entries(status.totals.dead).sort((a, b) => b[1] - a[1]);
  const share = count => status.totals.records ? `${(100 * count / status.totals.records).toFixed(2)} %` : "–";
  const rows = reasons.map(([reason, count]) => row([reason], [number(count)], [share(count)]));
  rows.forEach((made, index) => made.firstChild.prepend(element("span", "", `swatch tone-${Math.min(index, TONES)}`)));
  show("dead", rows.length ? rows : [row(["none"], [""], [""])]);
  const limits = status.about.filter_limits, dropped = name => status.totals.filtered[name] ?? 0;
  at("of-filters").hidden = !Object.keys(limits).length;
  show("filtered", Object.entries(limits).map(([name, limit]) => row(
    [name], [number(dropped(name))], [`${share(dropped(name))}${limit == null ? "" : ` of ${fine(100 * limit)} %`}`],
  )));
  const running = status.round && status.round.seconds == null ? [status.round] : [];
  show("rounds", [...running, ...status.ended_rounds.toReversed()].map(each => row(
    [number(each.number)],
    [each.seconds == null ? "running" : each.reason ? `${each.ending}: ${each.reason}` : each.ending ?? "", "words"],
    [duration(each.seconds ?? status.now - each.began)],
    [number(each.tasks), "wide"],
    [number(each.counts?.records)],
  )));
}

function showTasks(status) {
  const rows = status.tasks.slice(0, FIRST).map(each => {
    const spent = [each.wait_seconds, each.parse_seconds, each.produce_seconds, each.commit_seconds];
    const whole = spent.reduce((sum, seconds) => sum + seconds, 0);
    return row([number(each.task)], ...spent.map(seconds => [`${Number((100 * seconds / whole || 0).toPrecision(2))} %`]));
  });
  show("tasks", rows.length ? rows : [row(["no reports yet"], [""], [""], [""], [""])]);
}

function assign(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) if (made.getAttribute(name) !== value) made.setAttribute(name, value);
}

// One tab stop: arrow keys choose a partition, and Enter filters the table by it.
function showMap(status) {
  const map = at("map"), count = status.partitions.length;
  at("heat").hidden = count <= MANY;
  if (at("heat").hidden) return;
  while (map.children.length > count) map.lastElementChild.remove();
  while (map.children.length < count) assign(map.appendChild(element("span", "")), {role: "option", "aria-selected": "false", id: `cell-${map.children.length - 1}`});
  status.partitions.forEach((each, index) => assign(map.children[index], {
    class: css(each.condition), "data-mark": MARKS[each.condition], "data-name": `${each.topic}-${each.partition}`,
    "aria-label": `${each.topic}-${each.partition}: ${each.condition}, lag ${number(each.lag)}`,
  }));
  const words = new Set(status.partitions.map(each => each.condition));
  at("legend").textContent = WORST.filter(word => words.has(word)).map(word => `${MARKS[word]} ${word}`.trim()).join(" · ");
  choose(chosen ?? status.partitions.findIndex(each => each.condition === WORST.find(word => words.has(word))));
}

function choose(index) {
  const map = at("map"), cell = map.children[Math.max(0, Math.min(index, map.children.length - 1))];
  for (const made of map.querySelectorAll("[aria-selected=true]")) if (made !== cell) made.setAttribute("aria-selected", "false");
  assign(cell, {"aria-selected": "true"});
  assign(map, {"aria-activedescendant": cell.id});
  at("cell").textContent = cell.getAttribute("aria-label");
  return Number(cell.id.slice("cell-".length));
}

function filterBy(cell) {
  at("filter").value = cell.dataset.name;
  showPartitions(last);
}

function press(event) {
  const map = at("map"), columns = getComputedStyle(map).gridTemplateColumns.split(" ").length;
  const current = map.querySelector("[aria-selected=true]"), index = Number(current.id.slice("cell-".length));
  const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity};
  if (event.key in moves) chosen = choose(index + moves[event.key]);
  else if (event.key === "Enter" || event.key === " ") filterBy(current);
  else return;
  event.preventDefault();
}

function showAllOf(status) {
  showState(status); showProblems(status); showCharts(); showMap(status); showPartitions(status); showTotals(status); showTasks(status);
}

async function ask(path) {
  const answer = await fetch(path, {cache: "no-store", signal: AbortSignal.timeout(10000)});
  return answer.json();
}

async function look() {
  try {
    if (looks++ % HISTORY === 0) past = await ask("api/history");
    last = await ask("api/status");
  } catch {
    looks = 0;
    return silent();
  } finally {
    setTimeout(look, EVERY);
  }
  silentSince = null;
  showAllOf(last);
}

at("hours").addEventListener("change", showCharts);
at("map").addEventListener("keydown", press);
at("map").addEventListener("click", event => {
  const cell = event.target.closest("[role=option]");
  if (!cell) return;
  chosen = choose([...at("map").children].indexOf(cell));
  filterBy(cell);
});
at("filter").addEventListener("input", () => last && showPartitions(last));
at("all").addEventListener("click", () => { showAll = true; showPartitions(last); });
look();
