// The run, what to change, and the whole page.

function runFacts(prediction) {
  const json = prediction.json, calls = object(json.calls);
  const fits = list(json.fits).map(object).map(one => `${linkName({
    rtt: number(one.rtt_ns) ?? 0, bandwidth: number(one.bits_per_second) ?? 0 })} took ${
    showTime(number(one.nanoseconds))}`);
  return [
    ["program", text(json.program)],
    ["time", showTime(prediction.time)],
    ["processes", showCount(number(json.processes))],
    ["measured over a round trip of", showTime(number(json.rtt_ns))],
    ["calls answered in the client", showCount(number(calls.local))],
    ["calls sent", showCount(number(calls.sent))],
    ["calls that waited", showCount(number(calls.waited))],
    ["round trips", showCount(number(calls.round_trips))],
    ["round trips in a row", showCount(number(calls.in_a_row))],
    ["run again", fits.join("; ")],
  ].filter(([, value]) => value !== "");
}

function showRun(prediction) {
  const name = text(prediction.json.program);
  document.getElementById("about").textContent =
    `${name} took ${showTime(prediction.time)}; what it would take over other links is predicted.`;
  document.title += ": " + name;
  section("run", "The run", "",
          table("Counted while the program ran.", ["what", "value"],
                runFacts(prediction).map(([what, value]) => [what, { long: value }]), "facts"));
}

function showAdvice(prediction) {
  const items = list(prediction.json.advice).slice(0, kMostAdvice).map(object).map(one =>
    html("li", {}, html("strong", {}, text(one.text)),
         ...list(one.places).map(place => html("div", {}, text(place))),
         html("div", {}, text(one.instead))));
  if (items.length === 0 || prediction.at === null) return;
  section("advice", "What would help most", `Over ${linkName(prediction.at)}.`,
          html("ol", { class: "changes" }, ...items));
}

function showLimits() {
  section("limits", "What the prediction leaves out", "",
          html("p", {}, "Connecting, and the exchange before a session; a link that loses or " +
               "delays packets, or is shared; TCP's own slow start; copies inside graphs that " +
               "the client does not see wait. A program that does something else when it waits " +
               "longer is not predicted."));
}

function showPage() {
  const data = object(JSON.parse(document.getElementById("results").textContent));
  const prediction = new Prediction(data.results);
  bandwidths = prediction.bandwidths;
  showRun(prediction);
  showPredicted(prediction);
  showAdvice(prediction);
  showWaits(prediction);
  showPlaces(prediction);
  showLimits();
}
showPage();
