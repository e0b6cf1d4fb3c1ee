// Tables, and the whole page.

function showChanges(changes) {
  if (changes.changes === undefined) return;
  const notes = [
    ...list(changes.cautions).map(one => "Not the same: " + text(one)),
    ...list(changes.lost).map(one => text(one) + " was measured before, and failed now."),
  ];
  const rows = list(changes.changes).map(object).map(one => [
    text(one.case), text(one.way), showTime(number(one.before)), showTime(number(one.now)),
    showRatio(number(one.now), number(one.before)), text(one.kind)]);
  const columns = ["case", "way", "before", "now", "ratio", "verdict"];
  section("changes", "What changed",
          "Compared with an earlier file. A case has changed when all its rounds lie on one side " +
          "of all rounds before, and its median changed by more than 5 %.",
          ...notes.map(one => html("p", { class: "notice" }, one)),
          rows.length === 0 ? html("p", {}, "Nothing changed beyond the noise.")
            : values("What changed", table("Medians", columns, rows), "whole"));
}

function showAll(results) {
  const tail = kPercentiles.filter(each => each !== "p50");
  const rows = results.all.map(one => [
    one.name, wayName(one.way), showTime(one.median),
    `${showTime(one.low)} to ${showTime(one.high)}`,
    showCount(one.rounds), ...tail.map(each => showTime(one[each])), showRate(one.rate),
    one.way === "native" ? "" : showRatio(one.median, results.nativeOf(one)?.median),
    showRatio(one.median, results.bareOf(one)?.median)]);
  if (rows.length === 0) return;
  const columns = ["case", "way", "median", "medians of rounds", "rounds", ...tail, "rate",
                   "native", "bare"];
  section("all", "All figures",
          "native and bare are ratios of medians. Below 1, the program waits less than natively, " +
          "or than the bare link alone takes.",
          values("All figures", table("Every case in every way", columns, rows), "whole"));
}

function showSkipped(results) {
  const rows = list(results.json.skipped).map(object).map(one => [
    wayName(text(one.way)), { long: text(one.case) || "all" }, { long: text(one.why) }]);
  if (rows.length === 0) return;
  section("skipped", "What was not measured", "",
          table("And why", ["way", "case", "reason"], rows, "facts"));
}

function showPage() {
  const data = object(JSON.parse(document.getElementById("results").textContent));
  const results = new Results(data.results);
  showAbout(results);
  showChanges(object(data.changes));
  showOverview(results);
  showCopies(results);
  showHistograms(results);
  showParts(results);
  showMany(results);
  showStarts(results);
  showAll(results);
  showSkipped(results);
}
showPage();
