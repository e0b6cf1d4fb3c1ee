// The charts: each function returns an <svg>, and `name` is what a screen reader says of it.

const kBinsOfDecade = 16;

// Lines over a size or a number. `series`: [{way, points: [{x, y, low, high, words}]}]; low and
// high may be missing. `x`, `y`: {title, show}; y.linear: from 0 to y.least at least, else
// logarithmic. `apart`: what has the same x stands side by side.
function curves(name, series, x, y, apart = false) {
  const points = series.flatMap(one => one.points), bottom = kHeight - kBottom;
  const xs = unique(points.map(point => point.x)).sort((a, b) => a - b);
  const room = xs.length > 1 ? 16 : (kWidth - kLeft - kRight) / 2;
  const placeX = logScale(xs[0], xs[xs.length - 1], kLeft + room, kWidth - kRight - room);
  const gap = xs.length === 1 ? 60 : apart ? 5 : 0;
  const ys = points.flatMap(point => [point.y, point.low ?? point.y, point.high ?? point.y]);
  const ticks = y.linear ? roundTicks(Math.max(...ys, y.least ?? 0)) : decadeTicks(decades(ys));
  const highest = ticks[ticks.length - 1];
  const placeY = y.linear ? linearScale(highest, bottom, kTop)
                          : logScale(ticks[0], highest, bottom, kTop);
  const drawn = series.map((one, index) => {
    const aside = (index - (series.length - 1) / 2) * gap;
    const at = point => [placeX(point.x) + aside, placeY(point.y)];
    const whisker = point => line("whisker", at(point)[0], placeY(point.low), at(point)[0],
                                  placeY(point.high));
    const path = "M" + one.points.map(point => at(point).join(" ")).join("L");
    return ofWay(one.way, svg("path", { class: "line", d: path }),
                 ...one.points.filter(point => point.low !== undefined).map(whisker),
                 ...one.points.map(point => mark(one.way, ...at(point), point.words)));
  });
  return picture(name, kHeight, verticalAxis(ticks, placeY, y.show, y.title, bottom),
                 horizontalAxis(xs, placeX, x.show, x.title, kLeft, bottom), ...drawn);
}

// A row for each name, a mark for each way on one logarithmic axis of time.
// `rows`: [{name, entries: [{way, at, low, high, words}]}].
function dots(name, rows) {
  const step = 30, left = 190, bottom = kTop + rows.length * step;
  const entries = rows.flatMap(row => row.entries);
  const ticks = decadeTicks(decades(entries.flatMap(one => [one.at, one.low, one.high])));
  const place = logScale(ticks[0], ticks[ticks.length - 1], left + 12, kWidth - kRight - 12);
  const drawn = rows.flatMap((row, index) => {
    const y = kTop + (index + 0.5) * step;
    return [line("grid", left, y, kWidth - kRight, y), label(left - 6, y + 4, "end", row.name),
            ...row.entries.map(one => ofWay(
              one.way, line("whisker", place(one.low), y, place(one.high), y),
              mark(one.way, place(one.at), y, one.words)))];
  });
  return picture(name, bottom + kBottom,
                 horizontalAxis(ticks, place, showTime, "time (logarithmic)", left, bottom),
                 ...drawn);
}

// How many samples are in each part of a decade, of the fullest one.
function binned(histogram) {
  const bins = new Map();
  for (const [time, count] of histogram) {
    const bin = Math.floor(logOf(time) * kBinsOfDecade);
    bins.set(bin, (bins.get(bin) ?? 0) + count);
  }
  const most = Math.max(...bins.values());
  const edge = bin => 10 ** (bin / kBinsOfDecade);
  return [...bins].map(([bin, count]) =>
    ({ from: edge(bin), to: edge(bin + 1), part: count / most }));
}

// The histogram of one way, with its percentiles, standing on `base`.
function strip(one, place, base, full) {
  const hill = binned(one.histogram).map(bin => svg("rect", {
    class: "bar", x: place(bin.from), width: place(bin.to) - place(bin.from),
    y: base - full * bin.part, height: full * bin.part }));
  const known = kPercentiles.filter(each => one[each] !== null);
  const ticks = known.filter(each => each.startsWith("p")).map(each => {
    const x = place(one[each]);
    return each === "p50" ? line("median", x, base + 5, x, base - full)
                          : line("tick", x, base + 5, x, base - 14);
  });
  const said = known.map(each => `${each} ${showTime(one[each])}`).join(", ");
  const longest = known.slice(-1).map(last => mark(one.way, place(one[last]), base,
                                                   spoken(one, said)));
  return ofWay(one.way, ...hill, ...ticks, ...longest);
}

// The histograms of several results below each other, on one axis.
function strips(name, results) {
  const step = 62, bottom = kTop + results.length * step;
  const known = one => [...kPercentiles.map(each => one[each]), one.min, one.median]
    .filter(time => time !== null).concat(one.histogram.map(([time]) => time));
  const domain = decades(results.flatMap(known));
  const place = logScale(...domain, kLeft, kWidth - kRight);
  const drawn = results.flatMap((one, index) => {
    const base = kTop + (index + 1) * step - 8;
    return [line("axis", kLeft, base, kWidth - kRight, base),
            label(kLeft - 6, base - 4, "end", wayName(one.way)),
            strip(one, place, base, step - 14)];
  });
  const axis = horizontalAxis(decadeTicks(domain), place, showTime, "time of a call (logarithmic)",
                              kLeft, bottom);
  return picture(name, bottom + kBottom, axis, ...drawn);
}

// The parts of a call: colours with stripes and dots, which differ on any paper.
const kParts = [["link", "the bare link"], ["driver", "the driver, natively"],
                ["rest", "the rest: fargpu itself, and what is not measured"]];
function patterns() {
  const square = (name, above) => svg(
    "pattern", { id: "part-" + name, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    svg("rect", { class: "under-" + name, width: 8, height: 8 }), above);
  return svg("defs", {}, square("driver", svg("path", { class: "stripe", d: "M0 8L8 0" })),
             square("rest", svg("circle", { class: "dot", cx: 4, cy: 4, r: 1.3 })));
}
function part(name, x, y, width, height, words) {
  const look = name === "link" ? {} : { fill: `url(#part-${name})` };
  return svg("rect", { class: `part part-${name}`, x, y, width, height, ...look },
             svg("title", {}, words));
}
function partsLegend() {
  const sample = name => svg("svg", { width: 34, height: 16, "aria-hidden": "true" },
                             part(name, 1, 1, 32, 14, name));
  return html("ul", { class: "legend" },
              ...kParts.map(([name, words]) => html("li", {}, sample(name), words)));
}

// `rows`: [{name, whole, parts: {link, driver, rest}}], ns; a part that is not known, or below 0,
// is not drawn.
function bars(name, rows) {
  const step = 26, left = 232, bottom = kTop + rows.length * step;
  const time = (row, part) => Math.max(row.parts[part] ?? 0, 0);
  const sum = row => kParts.reduce((all, [part]) => all + time(row, part), 0);
  const ticks = roundTicks(Math.max(...rows.map(row => Math.max(sum(row), row.whole))));
  const place = linearScale(ticks[ticks.length - 1], left, kWidth - kRight - 16);
  const drawn = rows.flatMap((row, index) => {
    const y = kTop + index * step + 4, pieces = [label(left - 6, y + 14, "end", row.name)];
    let from = 0;
    for (const [each, words] of kParts) {
      const to = from + time(row, each);
      if (to > from)
        pieces.push(part(each, place(from), y, place(to) - place(from), 18,
                         `${row.name}, ${words}: ${showTime(to - from)}`));
      from = to;
    }
    return [...pieces, line("whole", place(row.whole), y - 2, place(row.whole), y + 20)];
  });
  return picture(name, bottom + kBottom, patterns(),
                 horizontalAxis(ticks, place, showTime, "time of a call", left, bottom), ...drawn);
}
