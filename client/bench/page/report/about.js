// What was measured, on what, and what to keep in mind.

// `value` between its words; nothing of what the file does not say.
function said(before, value, after = "") {
  return value === "" || value === null ? "" : before + value + after;
}
function scaled(value, factor) {
  return number(value) === null ? null : Math.round(value / factor);
}
function cudaVersion(value) {
  if (number(value) === null) return null;
  return `${Math.floor(value / 1000)}.${Math.floor((value % 1000) / 10)}`;
}

function linkFacts(ways) {
  return Object.entries(ways).filter(([, way]) => object(way).kind === "fargpu")
    .map(([name, way]) => ["over " + text(name), [text(way.transport), text(way.route)]]);
}
function gpuFacts(gpu) {
  return [
    ["GPU", [text(gpu.name), said("driver ", text(gpu.driver)),
             said("CUDA ", cudaVersion(gpu.cuda_version))]],
    ["GPU at the start", [
      said("power state P", number(gpu.power_state)),
      said("power ", scaled(gpu.power_milliwatts, 1000), " W"),
      said("limit ", scaled(gpu.power_limit_milliwatts, 1000), " W"),
      said("clock ", number(gpu.clock_mhz), " MHz"),
      said("memory clock ", number(gpu.memory_clock_mhz), " MHz")]],
  ];
}
function hostFacts(machine) {
  return [
    ["this host", [text(machine.host), text(machine.cpu),
                   said("", number(machine.cores), " cores")]],
    ["system", [text(machine.os), said("kernel ", text(machine.kernel))]],
    ["processors", [
      said("governor ", text(machine.governor)), said("no_turbo ", text(machine.no_turbo)),
      said("sleep states by ", text(machine.sleep_state_driver)),
      said("load before ", number(machine.load)?.toFixed(1) ?? null)]],
    ["clock of the times", [text(machine.clock),
                            said("read in ", number(machine.clock_read_ns), " ns")]],
  ];
}
// [name, what is known]; without those of which nothing is known.
function facts(json) {
  const server = object(json.server);
  return [
    ["measured", [text(json.date), said("in ", scaled(json.seconds, 1), " s"),
                  json.quick === true ? "quick" : ""]],
    ["fargpu", [said("client ", text(json.version)), said("server ", text(server.version))]],
    ...gpuFacts(object(json.gpu)),
    ["server", [text(server.address), said("driver ", text(server.driver)),
                said("sessions before: ", number(server.sessions_before))]],
    ...linkFacts(object(json.ways)),
    ["emulated link", [text(json.link)]],
    ...hostFacts(object(json.machine)),
  ].map(([name, known]) => [name, known.filter(one => one !== "").join(", ")])
    .filter(([, known]) => known !== "");
}

function notices(results) {
  const found = [];
  if (results.gpu().startsWith("fargpu simulated"))
    found.push("This GPU is simulated: the figures show what the software costs, and say nothing " +
               "of a GPU.");
  if (text(results.json.link) !== "") found.push("The link is emulated (FARGPU_LINK).");
  if (results.json.quick === true)
    found.push("A quick run has fewer sizes and rounds: a whole one has narrower intervals.");
  if (results.leftOut > 0)
    found.push(`${results.leftOut} results of the file could not be read and are left out.`);
  return found.map(one => html("p", { class: "notice" }, one));
}

function showAbout(results) {
  const over = waysOf(results.all).filter(way => !isBare(way));
  const about =
    [results.gpu(), over.join(", "), text(results.json.date)].filter(one => one !== "").join("; ");
  document.getElementById("about").textContent = about;
  document.title += ": " + about;
  section("machine", "What was measured", "", ...notices(results),
          table("Times are a caller's, by its own clock.", ["what", "value"],
                facts(results.json).map(([name, known]) => [name, { long: known }]), "facts"));
}
