// What charts are made of: elements, scales, axes, marks. Sizes are in units of a viewBox. A page says
// of what it compares ("ways") what each looks like and is called: lookOf(), isBare(), wayName().

const kWidth = 640, kLeft = 72, kRight = 28, kTop = 10, kBottom = 46, kHeight = 320;
const kLeastLabelGap = 52;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}
function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}
function picture(label, height, ...children) {
  return svg("svg", { viewBox: `0 0 ${kWidth} ${height}`, role: "img", "aria-label": label },
             ...children);
}
function line(kind, x1, y1, x2, y2) { return svg("line", { class: kind, x1, y1, x2, y2 }); }
function label(x, y, anchor, words, kind = "") {
  return svg("text", { x, y, "text-anchor": anchor, class: kind }, words);
}
function ofWay(way, ...children) {
  return svg("g", { class: `way look-${lookOf(way)}${isBare(way) ? " bare" : ""}` }, ...children);
}

// What can be shown on a logarithmic axis: a nanosecond at least.
const logOf = value => Math.log10(Math.max(value, 1));

// From a value to a place.
function logScale(low, high, from, to) {
  const begin = logOf(low), whole = Math.max(logOf(high) - begin, 1e-9);
  return value => from + ((logOf(value) - begin) / whole) * (to - from);
}
function linearScale(high, from, to) { return value => from + (value / high) * (to - from); }

// Whole decades around the values.
function decades(values) {
  const low = Math.floor(Math.min(...values.map(logOf)));
  return [10 ** low, 10 ** Math.max(low + 1, Math.ceil(Math.max(...values.map(logOf))))];
}
function decadeTicks([low, high]) {
  const ticks = [];
  for (let at = Math.round(Math.log10(low)); at <= Math.round(Math.log10(high)); ++at)
    ticks.push(10 ** at);
  return ticks;
}
// From 0 to a round number above the values.
function roundTicks(highest) {
  const rough = Math.max(highest, 1e-9) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(times => times * power).find(each => each >= rough);
  const ticks = [0];
  while (ticks[ticks.length - 1] < highest) ticks.push(ticks.length * step);
  return ticks;
}

const kShapes = {
  circle: (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  square: (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  diamond: (x, y, r) => `M${x} ${y - 1.4 * r}l${1.4 * r} ${1.4 * r}l${-1.4 * r} ${1.4 * r}` +
                     `l${-1.4 * r} ${-1.4 * r}Z`,
  triangle: (x, y, r) => `M${x} ${y - 1.2 * r}l${1.2 * r} ${2.2 * r}h${-2.4 * r}Z`,
  wedge: (x, y, r) => `M${x} ${y + 1.2 * r}l${1.2 * r} ${-2.2 * r}h${-2.4 * r}Z`,
  cross: (x, y, r) => `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
};
function mark(way, x, y, words) {
  return svg("path", { class: "mark", d: kShapes[lookOf(way)](x, y, 4.5) },
             svg("title", {}, words));
}

function legend(ways) {
  const sample = way => svg("svg", { width: 34, height: 14, "aria-hidden": "true" }, ofWay(
    way, svg("path", { class: "line", d: "M0 7H34" }), mark(way, 17, 7, wayName(way))));
  return html("ul", { class: "legend" },
              ...ways.map(way => html("li", {}, sample(way), wayName(way))));
}

// Values up the left side.
function verticalAxis(ticks, place, show, title, bottom) {
  const parts = ticks.flatMap(tick => [
    line("grid", kLeft, place(tick), kWidth - kRight, place(tick)),
    label(kLeft - 6, place(tick) + 4, "end", show(tick)),
  ]);
  const middle = (kTop + bottom) / 2;
  const name = label(0, 0, "middle", title, "title");
  name.setAttribute("transform", `translate(13 ${middle}) rotate(-90)`);
  return svg("g", {}, ...parts, name);
}
// Values along the bottom; labels that would touch are left out.
function horizontalAxis(ticks, place, show, title, left, bottom) {
  const parts = [line("axis", left, bottom, kWidth - kRight, bottom)];
  let last = -Infinity;
  for (const tick of ticks) {
    const x = place(tick);
    parts.push(line("grid", x, kTop, x, bottom));
    if (x - last < kLeastLabelGap) continue;
    parts.push(label(x, bottom + 17, "middle", show(tick)));
    last = x;
  }
  parts.push(label((left + kWidth - kRight) / 2, bottom + 37, "middle", title, "title"));
  return svg("g", {}, ...parts);
}
