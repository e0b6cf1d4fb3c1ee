// Predicted times, and what they consist of.

const kLeastRtt = 100;  // ns; less does not fit a logarithmic axis
const kLinear = 20;     // up to this ratio of the longest time to the shortest one

function pointOf(prediction, link) {
  const words = `${linkName(link)}: ${prediction.shown(link.time)}, ` +
                `between ${prediction.range(link)}`;
  return { x: link.rtt, y: link.time, low: link.shortest ?? link.time,
           high: link.longest ?? link.time, words };
}

function seriesOf(prediction) {
  const fits = link => link.rtt >= kLeastRtt;
  const lines = prediction.bandwidths.map(way => ({
    way, points: prediction.grid
      .filter(link => showBandwidth(link.bandwidth) === way && fits(link))
      .sort((a, b) => a.rtt - b.rtt).map(link => pointOf(prediction, link)) }));
  const given = prediction.given.filter(fits).map(link => ({
    way: kGivenName, points: [{ ...pointOf(prediction, link), name: linkName(link) }] }));
  const xs = [...lines, ...given].flatMap(one => one.points.map(point => point.x));
  const words = `${kRunName}: ${showTime(prediction.time)}`;
  const run = xs.length === 0 ? [] : unique([Math.min(...xs), Math.max(...xs)])
    .map(x => ({ x, y: prediction.time, words }));
  return [{ way: kRunName, points: run }, ...lines, ...given].filter(one => one.points.length > 0);
}

function timesFigure(prediction) {
  const series = seriesOf(prediction);
  if (series.length === 0) return [];
  const times = series.flatMap(one => one.points.map(point => point.y));
  const linear = Math.max(...times) < kLinear * Math.min(...times);
  const title = "Time by round trip and bandwidth";
  const rtts = unique(prediction.grid.map(link => link.rtt)).sort((a, b) => a - b);
  const chart = curves(title, series,
                       { title: "round trip (logarithmic)", show: showTime, ticks: rtts },
                       { title: linear ? "time of the program" : "time (logarithmic)",
                         show: showTime, linear });
  const made = waysTable(
    "Time, and what it is of this run's", "round trip", rtts.map(rtt => [showTime(rtt), rtt]),
    prediction.bandwidths, (rtt, way) => {
      const link = prediction.grid.find(one => one.rtt === rtt &&
                                               showBandwidth(one.bandwidth) === way);
      return link === undefined ? "" : prediction.shown(link.time);
    });
  return [figure(title, "Where a line is flat, round trips do not matter; where lines lie on each " +
                 "other, bandwidth does not. A vertical line through a mark reaches from the " +
                 "shorter to the longer assumption about what overlaps.",
                 legend(unique(series.map(one => one.way))), chart, made)];
}

const kLinkParts = [["run", "this run", "plain"], ["waits", "round trips in a row", "striped"],
                    ["bytes", "bytes", "dotted"]];

function partsFigure(prediction) {
  const middle = prediction.bandwidths[Math.floor(prediction.bandwidths.length / 2)];
  const chosen = [...prediction.given, ...(prediction.at === null ? [] : [prediction.at]),
                  ...prediction.grid.filter(link => showBandwidth(link.bandwidth) === middle)];
  const byName = new Map(chosen.map(link => [linkName(link), link]));
  if (byName.size === 0) return [];
  const rows = [...byName].map(([name, link]) => ({
    name, whole: link.time, parts: { run: prediction.time, waits: link.waits, bytes: link.bytes } }));
  const title = "What a link adds";
  const made = table("Time, and what it consists of",
                     ["link", "time", "round trips", "bytes", "between"],
                     [...byName].map(([name, link]) => [
                       name, prediction.shown(link.time), showTime(link.waits),
                       showTime(link.bytes), prediction.range(link)]));
  return [figure(title, "The thick line is the predicted time. Where it is left of a bar's end, " +
                 "the link is faster than the one that was measured over.",
                 partsLegend(kLinkParts),
                 bars(title, rows, kLinkParts, "time of the program"), made)];
}

function showPredicted(prediction) {
  section("predicted", "Predicted time",
          `This run took ${showTime(prediction.time)}. In parentheses: the predicted time, ` +
          "divided by that.", ...timesFigure(prediction), ...partsFigure(prediction));
}
