// Where the time of the run went: by function, and by place of the program.

const kMostBars = 12, kLongestName = 32;
const kWaitParts = [["waited", "calls that waited", "plain"]];
const kRunParts = [["waited", "calls that waited", "plain"], ["calls", "other calls", "striped"],
                   ["rest", "the program itself", "dotted"]];

// The end tells more: a file's name, a line.
function shortened(name) {
  return name.length <= kLongestName ? name : "…" + name.slice(1 - kLongestName);
}
function bytes(value) { return value === null ? "" : value === 0 ? "0" : showSize(value); }
function waitCells(one) {
  return [showCount(one.calls), showCount(one.trips), showTime(one.time), bytes(one.there),
          bytes(one.back)];
}
const kWaitColumns = ["calls", "round trips", "time", "bytes there", "bytes back"];

function runFigure(prediction) {
  const calls = object(prediction.json.calls);
  const waited = number(calls.waited_ns), inside = number(calls.inside_ns);
  if (waited === null || inside === null) return [];
  const parts = { waited, calls: inside - waited, rest: prediction.time - inside };
  const title = "The time of the run";
  const made = table("Times of all threads", ["part", "time"], kRunParts.map(
    ([name, words]) => [words, parts[name] < 0 ? "less than 0" : showTime(parts[name])]));
  return [figure(title, "The thick line is the time of the run. Calls of several threads add up, " +
                 "and may take longer than it.", partsLegend(kRunParts),
                 bars(title, [{ name: kRunName, whole: prediction.time, parts }], kRunParts,
                      "time"), made)];
}

// `all`: longest first; `nameOf` one of them.
function waitsFigure(title, how, all, nameOf, made) {
  const rows = all.slice(0, kMostBars)
    .map(one => ({ name: shortened(nameOf(one)), parts: { waited: one.time } }));
  return figure(title, how, partsLegend(kWaitParts), bars(title, rows, kWaitParts, "time of calls"),
                made);
}

function showWaits(prediction) {
  const functions = prediction.functions;
  const made = functions.length === 0 ? [] : [waitsFigure(
    "By function", "Times of threads add up.", functions, one => one.name,
    table("Calls that waited", ["function", ...kWaitColumns],
          functions.map(one => [one.name, ...waitCells(one)])))];
  section("waits", "Where the time went", "", ...runFigure(prediction), ...made);
}

function showPlaces(prediction) {
  if (prediction.places.length === 0) {
    section("places", "Where calls were made", "",
            html("p", {}, "Not asked for: --where tells lines of Python and native functions."));
    return;
  }
  const made = table("Places of calls that waited",
                     ["place", "function", ...kWaitColumns, "by"], prediction.places.map(one => [
                       { long: one.place }, { long: one.name }, ...waitCells(one), { long: one.library }]));
  section("places", "Where calls were made",
          "The innermost line of the program's own; \"by\" is the library's line that made the " +
          `call. Looking took ${showTime(number(prediction.json.looking_ns))} of the run.`,
          waitsFigure("By place", "Times of threads add up.", prediction.places, one => one.place,
                      made));
}
