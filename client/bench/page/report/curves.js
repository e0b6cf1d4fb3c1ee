// What depends on a size, or on how many there are at once.

const kCopies = {
  host_to_device_memcpy_ce: "Host to device",
  device_to_host_memcpy_ce: "Device to host",
  host_to_device_bidirectional_memcpy_ce: "Host to device while copies go the other way",
  device_to_host_bidirectional_memcpy_ce: "Device to host while copies go the other way",
  device_local_copy: "Within the device",
};
const kMany = {
  sessions_call_sync: "the same waiting call in so many processes, a session each",
  threads_launch_synchronize: "launch and wait in so many threads of one process",
  streams_launch: "launches in so many streams in turn, the caller's time",
  streams_launch_done: "the same, until all of a burst are done",
};
const byNumber = (a, b) => a - b;

// A chart over `of` (a member of a result) and its table. `point`: what curves() wants of a result,
// with its y, null where it has none; `cell`: its text in the table.
function curveFigure(results, { title, how, caption, of, x, y, point, cell, apart }) {
  const ways = waysOf(results), xs = unique(results.map(one => one[of])).sort(byNumber);
  const series = ways.map(way => ({
    way, points: results.filter(one => one.way === way && point(one).y !== null)
      .sort((a, b) => a[of] - b[of]).map(one => ({ x: one[of], ...point(one) })) }))
    .filter(one => one.points.length > 0);
  if (series.length === 0) return [];
  const made = waysTable(caption, x.name, xs.map(each => [x.show(each), each]), ways, (at, way) => {
    const found = results.find(one => one[of] === at && one.way === way);
    return found === undefined ? "" : cell(found);
  });
  return [figure(title, how, legend(series.map(one => one.way)), curves(title, series, x, y, apart),
                 made)];
}

// The copies of one direction and kind of memory, with the bare link's.
function copyFigures(results, record, memory) {
  const fargpus = results.all.filter(one => one.record === record && one.memory === memory);
  const bares = unique(fargpus.map(one => results.bareOf(one)));
  const chosen = [...fargpus, ...bares].filter(one => one?.bytes > 0);
  const topic = kCopies[record] + (memory === "" ? "" : `, ${memory} host memory`);
  const x = { name: "size", title: "size of the copy (logarithmic)", show: showSize };
  const time = {
    title: topic + ": time", of: "bytes", x, caption: "Median time by size",
    how: "Lower is faster; a vertical line through a mark shows where the medians of the rounds " +
         "lay, and a dashed line is the bare link.",
    y: { title: "median time (logarithmic)", show: showTime },
    point: one => ({ y: one.median, low: one.low, high: one.high,
                     words: spoken(one, showMedian(one)) }),
    cell: one => showTime(one.median),
  };
  const rate = {
    title: topic + ": bandwidth", of: "bytes", x, caption: "Bandwidth by size",
    how: "Higher is faster; where a line is flat, the link or the copying of memory is the limit.",
    y: { title: "size by median time", show: showRate, linear: true },
    point: one => ({ y: one.rate, words: spoken(one, showRate(one.rate)) }),
    cell: one => showRate(one.rate),
  };
  return [...curveFigure(chosen, time), ...curveFigure(chosen, rate)];
}

function showCopies(results) {
  const copies = results.all.filter(one => Object.hasOwn(kCopies, one.record) && one.bytes > 0);
  const kinds = unique(copies.map(one => one.record + "\n" + one.memory));
  section("copies", "Copies by size",
          "From the call to its end, as the caller sees it. The bare link moves as many bytes " +
          "one way, and a byte back.",
          ...kinds.flatMap(kind => copyFigures(results, ...kind.split("\n"))));
}

function showFairness(one) {
  if (one.jain === null) return "";
  return `${one.jain.toFixed(3)}; ${one.unequal > 0 ? one.unequal.toFixed(2) : "one had none"}`;
}

function manyFigures(results, record) {
  const chosen = results.all.filter(one => one.record === record && one.count > 0);
  const what = record.split("_")[0];
  const x = { name: what, title: `${what} at once (logarithmic)`, show: String };
  const shown = one => `${showTime(one.median)}, ${showTime(one.p99)}`;
  const time = {
    title: `${record}: ${kMany[record]}`, of: "count", x, caption: "Median, p99", apart: true,
    how: "A mark is the median, and the line above it reaches to p99: where it is long, some " +
         "calls wait much longer than most.",
    y: { title: "time of a call (logarithmic)", show: showTime },
    point: one => ({ y: one.median, low: one.median, high: one.p99 ?? one.median,
                     words: spoken(one, shown(one)) }),
    cell: shown,
  };
  const fairness = {
    title: `${record}: fairness`, of: "count", x,
    caption: "Jain's index; calls of the busiest by those of the idlest",
    how: "Jain's index of the calls that each could make in the same time: 1 is an equal share " +
         "for all; one divided by their number means that one had everything.",
    y: { title: "Jain's index", show: value => value.toFixed(1), linear: true, least: 1 },
    point: one => ({ y: one.jain, words: spoken(one, showFairness(one)) }),
    cell: showFairness,
  };
  return [...curveFigure(chosen, time), ...curveFigure(chosen, fairness)];
}

function showMany(results) {
  section("many", "Many at once",
          "Sessions are processes with a connection each; threads and streams belong to one " +
          "process.", ...Object.keys(kMany).flatMap(record => manyFigures(results, record)));
}
