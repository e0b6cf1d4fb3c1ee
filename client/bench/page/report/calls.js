// Calls: at a glance, how they are spread, what they consist of; and starts.

const kCalls = {
  call_local: "a call that the client answers by itself (cuCtxGetStreamPriorityRange)",
  call_deferred: "a handle made and destroyed without waiting (cuEventCreate, cuEventDestroy)",
  call_sync: "a call that waits for the server (cuStreamQuery of an idle stream)",
  call_get: "a call that waits for the server and tells nothing of streams (cuCtxGetLimit)",
  call_allocate: "cuMemAlloc of 1 MiB and cuMemFree",
  call_async: "a call that its caller does not wait for (cuMemsetD32Async)",
  launch: "cuLaunchKernel, the caller's time",
  launch_synchronize: "a kernel launch and the wait for its end",
  event_record_synchronize: "cuEventRecord in an idle stream and cuEventSynchronize",
  graph_launch: "cuGraphLaunch of 20 empty kernels, the caller's time",
  graph_launch_synchronize: "the same graph and the wait for its end",
};
const kWaiting = ["call_sync", "call_get", "call_allocate", "launch_synchronize",
                  "event_record_synchronize", "graph_launch_synchronize"];
const kStarts = ["session_start", "first_kernel", "image_load_cold", "image_load_cached"];
const kBareCall = "round_trip/32B/1";

// One mark for each case and way; null when there is none.
function dotFigure(results, names, title, how) {
  const entry = one => ({ way: one.way, at: one.median, low: one.low, high: one.high,
                          words: spoken(one, showMedian(one)) });
  const rows = names
    .map(name => ({ name, entries: results.all.filter(one => one.name === name).map(entry) }))
    .filter(row => row.entries.length > 0);
  if (rows.length === 0) return null;
  const ways = waysOf(rows.flatMap(row => row.entries));
  const made = waysTable("Medians", "case", rows.map(row => [row.name, row.name]), ways,
                         (name, way) => showTime(results.find(name, way)?.median));
  return figure(title, how, legend(ways), dots(title, rows), made);
}

function showOverview(results) {
  const isCall = one => one.bytes === null && one.count === null && !kStarts.includes(one.record);
  const names = unique(results.all.filter(isCall).map(one => one.name));
  const made = dotFigure(
    results, [...names, kBareCall], "Median time of each kind of call",
    "Further left is faster; a line through a mark shows where the medians of the rounds lay.");
  if (made === null) return;
  section("calls", "Calls at a glance",
          `What a call costs the program that makes it. ${kBareCall} is the bare link alone: 32 ` +
          "bytes there and back.", made);
}

function showStarts(results) {
  const made = dotFigure(
    results, kStarts, "What a new process waits for",
    "Further left is faster; a line through a mark reaches from the fastest to the slowest round.");
  if (made === null) return;
  section("starts", "Starts and loads of images",
          "In new processes. session_start: cuInit and the primary context. first_kernel: the " +
          "same, a first module, and its kernel to its end. image_load_cold: a module of 64 " +
          "kernels that the server has never seen; image_load_cached: the same in another new " +
          "process.", made);
}

function histogramFigure(results, name) {
  const chosen = results.all.filter(one => one.name === name)
    .sort((a, b) => wayOrder(a.way) - wayOrder(b.way));
  if (chosen.length === 0) return [];
  const title = `${name}: ${kCalls[name]}`;
  const made = table("Percentiles", ["way", ...kPercentiles, "samples"], chosen.map(one => [
    wayName(one.way), ...kPercentiles.map(each => showTime(one[each])), showCount(one.samples)]));
  return [figure(title, "Each hill shows how often a time was seen; the thick line is the " +
                 "median, the ticks are p90, p99 and p99.9, and the mark is the longest time.",
                 "", strips(title, chosen), made)];
}

function showHistograms(results) {
  section("histograms", "How calls are spread",
          "All samples of all rounds. Calls that are sent in bursts, and call_local, are timed " +
          "together: their percentiles are those of bursts.",
          ...Object.keys(kCalls).flatMap(name => histogramFigure(results, name)));
}

const kParts = [["link", "the bare link", "plain"],
                ["driver", "the driver, natively", "striped"],
                ["rest", "the rest: fargpu itself, and what is not measured", "dotted"]];

// What a waiting call consists of, by differences of medians; null where nothing can be told apart.
function partsOf(results, one) {
  const link = results.bareOf(one)?.median ?? null;
  const driver = results.nativeOf(one)?.median ?? null;
  if (link === null && driver === null) return null;
  return { link, driver, rest: one.median - (link ?? 0) - (driver ?? 0) };
}
function showPart(value) {
  if (value === null) return "not measured";
  return value < 0 ? "less than 0" : showTime(value);
}

// The pieces of calls that are measured by themselves.
function endsFigure(results) {
  const made = dotFigure(
    results, ["call_local", "call_async", "call_async_done", kBareCall], "The ends by themselves",
    "call_local is entering fargpu and being answered there; call_async adds encoding and the " +
    "queue, in the caller's thread; call_async_done is the time for each until all of a burst " +
    "are done, the slower end's: where it is longer than call_async, that is the worker, which " +
    "decodes and calls the driver.");
  return made === null ? [] : [made];
}

function showParts(results) {
  const rows = kWaiting
    .flatMap(name => results.all.filter(one => one.name === name && one.way !== "native"))
    .map(one => ({ name: `${one.name}, ${one.way}`, whole: one.median,
                   parts: partsOf(results, one) }))
    .filter(row => row.parts !== null);
  if (rows.length === 0) return;
  const title = "The parts of a call that waits for the server";
  const made = table("By differences of medians", ["call", "whole", "link", "driver", "rest"],
                     rows.map(({ name, whole, parts }) => [
                       name, showTime(whole), showPart(parts.link), showPart(parts.driver),
                       showPart(parts.rest)]));
  section("parts", "What a call consists of",
          "By differences, not by time stamps inside fargpu. The bare link is a round trip of 32 " +
          "bytes without fargpu. The driver is the same call natively. The rest is the median " +
          "minus both: what fargpu does at both ends (encoding, queues, waking up, decoding). " +
          "Where there is no native figure, it has the driver's part, too. It is less than 0 " +
          "where the parts overlap, or where the machine was busy while one was measured.",
          figure(title, "The parts of a call stand in the order of the legend, and the thick " +
                 "line is the whole call; where it is not at their end, the rest is less than 0.",
                 partsLegend(kParts), bars(title, rows, kParts, "time of a call"), made), ...endsFigure(results));
}
