// The charts: each function returns an <svg>, and `name` is what a screen reader says of it.

const kBinsOfDecade = 16;

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
