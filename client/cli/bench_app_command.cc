// fargpu bench app: runs a program once as `fargpu run` would, over an emulated link that takes no
// time, reads what its processes report, and predicts. With --fit it runs it again over up to two
// emulated links.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "client/bench/page/prediction_page.h"
#include "client/bench/prediction_json.h"
#include "client/bench/results.h"
#include "client/bench/show.h"
#include "client/cli/bench_app.h"
#include "client/cli/exit_codes.h"
#include "client/cli/job.h"
#include "client/program/layout.h"
#include "client/program/private_daemon.h"
#include "client/program/supervise.h"
#include "common/transport/link/link_settings.h"

namespace fargpu::cli {

namespace {

constexpr auto kBeginLimit = std::chrono::seconds(10);
constexpr const char* kLinkVariable = "FARGPU_LINK";
constexpr const char* kReportVariable = "FARGPU_REPORT";
constexpr const char* kTraceVariable = "FARGPU_TRACE";
// Bytes travel in frames, as over a network, also where client and server are on one host.
constexpr const char* kNoTime = "rtt=0us";
constexpr bench::Link kFitWaits{200e3, 0}, kFitBytes{0, 5e9};
const std::vector<double> kRtts{2e3, 10e3, 50e3, 200e3, 1e6};            // nanoseconds
const std::vector<double> kBandwidths{10e9, 25e9, 100e9, 200e9, 400e9};  // bits per second

struct AppOptions {
  ServerOptions server;
  SessionOptions session;
  bool sim = false, fit = false;
  unsigned sim_gpus = 1;
  std::string measured_rtt = "0us", at = "rtt=200us,bandwidth=10Gbps", json;
  std::string report, timeline;
  std::vector<std::string> links;
  std::vector<std::string> arguments;
};

// A file that is removed with this object.
class ScratchFile {
 public:
  static Result<ScratchFile> make() {
    std::string path = (std::filesystem::temp_directory_path() / "fargpu-XXXXXX.json").string();
    const int descriptor = ::mkstemps(path.data(), 5);
    if (descriptor < 0) return system_error("cannot make a file for the report", errno);
    ::close(descriptor);
    return ScratchFile(std::move(path));
  }
  ScratchFile(ScratchFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  explicit ScratchFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<bench::Link> link_of(const std::string& text, const char* option) {
  auto parsed = transport::parse_link(text);
  if (!parsed.ok())
    return Status(StatusCode::kInvalidArgument,
                  std::string(option) + ": " + parsed.status().message());
  return bench::Link{static_cast<double>(parsed->rtt.count()), parsed->bits_per_second};
}

std::string setting_of(const bench::Link& link) {
  std::string text = "rtt=" + std::to_string(static_cast<int64_t>(link.rtt_ns)) + "ns";
  if (link.bits_per_second > 0)
    text += ",bandwidth=" + std::to_string(static_cast<int64_t>(link.bits_per_second)) + "bps";
  return text;
}

struct Measured {
  ChildEnd end;
  double nanoseconds = 0;
};

// In the environment of `fargpu run`.
Result<Measured> run_once(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& link) {
  ::setenv(kLinkVariable, link.c_str(), 1);
  FARGPU_ASSIGN_OR_RETURN(const std::vector<Fd> job,
                          begin_job_here(program, transport::Clock::now() + kBeginLimit));
  const auto begin = std::chrono::steady_clock::now();
  FARGPU_ASSIGN_OR_RETURN(const ChildEnd end, supervise(program, arguments));
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return Measured{end, took.count()};
}

bool went_well(const ChildEnd& end) { return end.signal == 0 && end.exit_code == 0; }

struct Studied : bench::Study {
  ChildEnd end;  // of the run that did not end well, or the last one
};

// What the two assumptions of a share make differs enough to be worth a run.
bool is_open(const bench::Run& run, const bench::Link& link, bench::Shares low) {
  const double high = bench::predict(run, link, {1, 1}).nanoseconds;
  return high - bench::predict(run, link, low).nanoseconds > 0.02 * high;
}

Status fit(const std::string& program, const AppOptions& options, const bench::Link& base,
           Studied& studied) {
  ::unsetenv(kReportVariable);
  if (!options.timeline.empty()) ::unsetenv(kTraceVariable);
  const auto run_over = [&](bench::Link link) -> Result<double> {
    link.rtt_ns += base.rtt_ns;
    FARGPU_ASSIGN_OR_RETURN(const Measured measured,
                            run_once(program, options.arguments, setting_of(link)));
    studied.end = measured.end;
    link.rtt_ns += studied.run.rtt_ns - base.rtt_ns;
    studied.fits.push_back({link, measured.nanoseconds});
    return measured.nanoseconds;
  };
  bench::Link waits = kFitWaits, bytes = kFitBytes;
  waits.rtt_ns += studied.run.rtt_ns;
  bytes.rtt_ns += studied.run.rtt_ns;
  if (is_open(studied.run, waits, {0, 1})) {
    FARGPU_ASSIGN_OR_RETURN(const double took, run_over(kFitWaits));
    studied.shares.waits = bench::fit_waits(studied.run, waits, took);
  }
  if (went_well(studied.end) && is_open(studied.run, bytes, {1, 0})) {
    FARGPU_ASSIGN_OR_RETURN(const double took, run_over(kFitBytes));
    studied.shares.bytes = bench::fit_bytes(studied.run, bytes, took, studied.shares.waits);
  }
  return {};
}

Result<Studied> study(const AppOptions& options, const std::string& program) {
  FARGPU_ASSIGN_OR_RETURN(const ScratchFile file, ScratchFile::make());
  ::setenv(kReportVariable, file.path().c_str(), 1);
  // The program may go to another folder before it writes.
  if (!options.timeline.empty())
    ::setenv(kTraceVariable, std::filesystem::absolute(options.timeline).c_str(), 1);
  const char* const given = std::getenv(kLinkVariable);
  const std::string setting = given != nullptr && *given != '\0' ? given : kNoTime;
  FARGPU_ASSIGN_OR_RETURN(const bench::Link base, link_of(setting, kLinkVariable));
  FARGPU_ASSIGN_OR_RETURN(const bench::Link own,
                          link_of("rtt=" + options.measured_rtt, "--measured-rtt"));
  FARGPU_ASSIGN_OR_RETURN(const Measured measured, run_once(program, options.arguments, setting));
  Studied studied;
  studied.program = options.arguments.front();
  studied.end = measured.end;
  studied.run.nanoseconds = measured.nanoseconds;
  studied.run.rtt_ns = base.rtt_ns + own.rtt_ns;
  if (!went_well(measured.end)) return studied;
  FARGPU_ASSIGN_OR_RETURN(studied.run.processes, bench::read_reports(file.read()));
  if (studied.run.processes.empty())
    return Status(StatusCode::kInvalidArgument,
                  "no process of the program reported a call: none was made, or each ended by a "
                  "signal or _exit()");
  if (options.fit) FARGPU_RETURN_IF_ERROR(fit(program, options, base, studied));
  return studied;
}

Result<bench::Wanted> wishes_of(const AppOptions& options) {
  bench::Wanted wishes{{}, kRtts, kBandwidths, {}};
  for (const std::string& text : options.links) {
    FARGPU_ASSIGN_OR_RETURN(const bench::Link link, link_of(text, "--link"));
    wishes.given.push_back(link);
  }
  FARGPU_ASSIGN_OR_RETURN(wishes.at, link_of(options.at, "--at"));
  return wishes;
}

std::string describe(const AppOptions& options, const bench::Wanted& wishes,
                     const Studied& studied) {
  const bench::Run& run = studied.run;
  std::string out = bench::describe_run(run, studied.program);
  for (const bench::FitRun& one : studied.fits)
    out += "run again over " + bench::show_link(one.link) + ": " +
           std::to_string(one.nanoseconds / 1e9) + " s\n";
  out += bench::describe_places(run);
  out += bench::describe_links(run, kRtts, kBandwidths, studied.shares);
  for (const bench::Link& link : wishes.given)
    out += bench::describe_link(run, link, studied.shares) + "\n";
  out += bench::describe_advice(run, wishes.at, studied.shares);
  if (!options.timeline.empty())
    out += "timeline: " + options.timeline + ", to be opened in Perfetto or chrome://tracing\n";
  return out;
}

int tell(const AppOptions& options, const bench::Wanted& wishes, const Studied& studied) {
  std::printf("%s", describe(options, wishes, studied).c_str());
  std::fflush(stdout);
  const bench::Json json = bench::to_json(studied, wishes);
  if (!options.json.empty()) {
    if (const Status status = bench::write_results(options.json, json); !status.ok())
      return fail(status);
  }
  if (!options.report.empty()) {
    const std::string page = bench::make_prediction_page(json);
    if (const Status status = bench::write_whole(options.report, page); !status.ok())
      return fail(status);
  }
  return kSuccess;
}

int bench_app(const AppOptions& options) {
  if (!options.timeline.empty() && !options.timeline.ends_with(".json"))
    return fail(kUsage, "--timeline: the file's name must end with .json");
  if (options.sim && !options.server.server.empty())
    return fail(kUsage, "--sim and --server exclude each other");
  for (const auto& [option, path] : {std::pair("--json", options.json),
                                     {"--report", options.report},
                                     {"--timeline", options.timeline}})
    if (const Status status = bench::check_writable(option, path); !status.ok())
      return fail(status);
  const auto wishes = wishes_of(options);
  if (!wishes.ok()) return fail(kUsage, wishes.status().message());
  if (const Status tools = check_tools(options.arguments.front()); !tools.ok()) return fail(tools);
  const auto program = find_program(options.arguments.front());
  if (!program.ok()) return fail(start_exit_code(program.status()), program.status().message());
  ServerOptions server = options.server;
  SessionOptions session = options.session;
  std::optional<PrivateDaemon> daemon;
  if (options.sim) {
    auto started = PrivateDaemon::start(options.sim_gpus);
    if (!started.ok()) return fail(started.status());
    daemon.emplace(std::move(*started));
    server.server = daemon->server();
    server.token_file = daemon->token_file();
    if (session.gpus.empty()) session.gpus = std::to_string(options.sim_gpus);
  }
  for (const Status& status :
       {export_server(server), export_session(session), export_library(*program, Preload::kAuto)})
    if (!status.ok()) return fail(status);
  const auto studied = study(options, *program);
  if (!studied.ok()) return fail(studied.status());
  if (went_well(studied->end)) return tell(options, *wishes, *studied);
  daemon.reset();
  std::fprintf(stderr, "fargpu: nothing is predicted, because the program failed\n");
  end_like(studied->end);
}

void add_options(CLI::App& app, AppOptions& options) {
  add_server_options(app, options.server);
  app.add_option("--gpus", options.session.gpus, "Number of GPUs from each server");
  app.add_option("--memory", options.session.memory, "Memory per GPU, e.g. 8G");
  app.add_flag("--sim", options.sim, "Use a private daemon with simulated GPUs");
  app.add_option("--sim-gpus", options.sim_gpus, "Number of simulated GPUs with --sim")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_flag("--fit", options.fit,
               "If one run does not show how waits and bytes overlap, run the program again over "
               "an emulated link, at most twice");
  app.add_option("--measured-rtt", options.measured_rtt,
                 "Round trip from ping to the server of this run, if it is on another host")
      ->type_name("TIME")
      ->capture_default_str();
  app.add_option("--link", options.links,
                 "A further link to predict, like rtt=30us,bandwidth=40Gbps; may be given several "
                 "times")
      ->type_name("LINK")
      ->allow_extra_args(false);
  app.add_option("--at", options.at, "The link for which advice is given")
      ->type_name("LINK")
      ->capture_default_str();
  app.add_flag(
      "--where", options.session.where,
      "Name the lines of Python or the functions that make the calls; the run takes somewhat "
      "longer (docs/tools.md)");
  app.add_option("--json", options.json, "Write the predictions to this file (docs/bench.md)")
      ->type_name("FILE");
  app.add_option(
         "--report", options.report,
         "Write a self-contained HTML page with the predictions as charts and tables to this file")
      ->type_name("FILE");
  app.add_option("--timeline", options.timeline,
                 "Write a timeline of client, wire and workers to this file, for Perfetto or "
                 "chrome://tracing; the run takes somewhat longer (docs/tools.md)")
      ->type_name("FILE.json");
  app.add_option("command", options.arguments, "The program and its arguments, after --")
      ->required();
  app.positionals_at_end();
}

}  // namespace

void add_bench_app(CLI::App& bench, Command& command) {
  CLI::App* app = bench.add_subcommand(
      "app",
      "Take one program's time apart, and predict it for other links: fargpu bench app -- "
      "./app args...");
  auto options = std::make_shared<AppOptions>();
  add_options(*app, *options);
  app->footer(
      "The program runs once, over a link that takes no time but carries all bytes in frames, as a "
      "network\ndoes. Predicted are links that are slower than the one in use. Waits that overlap "
      "in several threads\ncount once. docs/bench.md says what the prediction leaves out.\n"
      "Exit codes: 0 predicted; the program's own where it failed; 2 usage, or nothing was "
      "reported; others:\ndocs/errors.md.");
  app->callback([options, &command] { command = [options] { return bench_app(*options); }; });
}

}  // namespace fargpu::cli
