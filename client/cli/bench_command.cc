// fargpu bench: what calls and copies cost over a server's transports, beside native and beside the
// bare links, measured in turn. The measuring itself is done by fargpu-measure, which runs as
// `fargpu run` would start it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <regex>

#include "client/bench/compare.h"
#include "client/bench/machine.h"
#include "client/bench/page/report_page.h"
#include "client/bench/suite.h"
#include "client/bench/table.h"
#include "client/cli/bench_app.h"
#include "client/cli/bench_ways.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/job.h"
#include "client/program/layout.h"
#include "client/program/private_daemon.h"
#include "client/program/supervise.h"

namespace fargpu::cli {

namespace {

using bench::Json;
using std::chrono::steady_clock;

constexpr auto kServerLimit = std::chrono::seconds(10);
constexpr auto kQuickTime = std::chrono::seconds(17), kWholeTime = std::chrono::seconds(280);
constexpr uint64_t kLargestCopy = 1 << 30, kSmallestLargest = 1 << 20;
constexpr const char* kPeerAddress = "0.0.0.0:14901";

struct BenchOptions {
  ServerOptions server;
  WayWishes ways;
  bool sim = false, quick = false, list = false, no_native = false, be_peer = false;
  std::string only, json, compare, from, report, time;
  std::string listen = kPeerAddress;
};

// A line of progress that is overwritten, on a terminal only.
class ProgressLine {
 public:
  void show(const bench::Progress& progress) const {
    if (!on_) return;
    std::fprintf(stderr, "\r\033[K[%3.0f %%] %.0f s left at most: %s", progress.done * 100,
                 progress.seconds_left, progress.what.c_str());
    std::fflush(stderr);
  }
  ProgressLine() = default;
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (on_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  const bool on_ = ::isatty(STDERR_FILENO) != 0;
};

Result<std::regex> parse_only(const std::string& only) {
  try {
    return std::regex(only, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    return Status(StatusCode::kInvalidArgument,
                  "--only '" + only + "' is no regular expression: " + error.what());
  }
}

int list(const std::vector<bench::Step>& plan) {
  for (const bench::Step& step : plan) {
    for (const std::string& record : step.records)
      std::printf("%-52s %s\n", bench::case_name(record, step.question).c_str(),
                  bench::explain(record).c_str());
  }
  return kSuccess;
}

// So large that the buffers of all ways fit beside each other, here and on the GPU. A way has up to
// four buffers here and two there, and a simulated GPU has its memory here.
uint64_t largest_copy(const ServerStatus& server, size_t ways) {
  uint64_t most = std::min(kLargestCopy, bench::available_memory() / (16 * ways));
  for (const GpuStatus& gpu : server.gpus)
    most = std::min(most,
                    (gpu.total_bytes - std::min(gpu.total_bytes, gpu.reserved_bytes)) / (4 * ways));
  return std::max(kSmallestLargest, most);
}

uint64_t largest_of(const std::vector<bench::Step>& plan) {
  uint64_t largest = kSmallestLargest;
  for (const bench::Step& step : plan) largest = std::max(largest, step.question.bytes);
  return largest;
}

Json about_server(const Target& target, const ServerStatus& server) {
  return {{"address", target.address.to_string()},
          {"version", server.version},
          {"driver", server.driver_name},
          {"cuda_version", server.driver_version},
          {"sessions_before", server.sessions.size()}};
}

// The server's; without one that of this host.
Json gpu_of(const Json& ways) {
  Json found = Json::object();
  for (const auto& [name, way] : ways.items()) {
    const Json& gpu = bench::member(bench::member(way, "about"), "gpu");
    if (!gpu.is_object()) continue;
    if (name != "native") return gpu;
    found = gpu;
  }
  return found;
}

Result<Target> only_target() {
  FARGPU_ASSIGN_OR_RETURN(const std::vector<Target> targets, targets_from_environment());
  if (targets.size() > 1)
    return Status(StatusCode::kInvalidArgument,
                  "bench measures one server: give one with --server");
  return targets.front();
}

// How long to measure.
Result<steady_clock::duration> time_of(const BenchOptions& options) {
  if (options.time.empty()) return steady_clock::duration(options.quick ? kQuickTime : kWholeTime);
  const auto time = parse_duration(options.time);
  if (!time.ok()) return Status(StatusCode::kInvalidArgument, "--time: " + time.status().message());
  return steady_clock::duration(*time);
}

// An error when nothing could be measured over fargpu.
Status anything(const bench::Results& results, const std::vector<bench::Way>& ways) {
  const auto is_remote = [&](const bench::Figure& figure) {
    return std::any_of(ways.begin(), ways.end(), [&](const bench::Way& way) {
      return way.kind == bench::Way::Kind::kRemote && way.name == figure.way;
    });
  };
  if (std::any_of(results.figures.begin(), results.figures.end(), is_remote)) return {};
  std::string why = "nothing could be measured";
  for (const bench::Skip& skip : results.skips) why += "; " + skip.way + ": " + skip.why;
  return Status(StatusCode::kLost, why);
}

// An error when a way through fargpu was lost on the way.
Status nothing_lost(const Json& results) {
  for (const Json& skip : bench::member(results, "skipped")) {
    const std::string way = bench::text_or(skip, "way", "");
    const Json& about = bench::member(bench::member(results, "ways"), way.c_str());
    if (bench::text_or(skip, "case", "").empty() && bench::text_or(about, "kind", "") == "fargpu")
      return Status(StatusCode::kLost, way + " was lost: " + bench::text_or(skip, "why", ""));
  }
  return {};
}

// In the environment of `fargpu run`. `here`: that of a native program.
Result<Json> measure_server(const BenchOptions& options, const std::regex& only,
                            const std::string& program, const bench::Program::Environment& here) {
  const auto begin = steady_clock::now();
  FARGPU_ASSIGN_OR_RETURN(const auto time, time_of(options));
  FARGPU_ASSIGN_OR_RETURN(const Target target, only_target());
  FARGPU_ASSIGN_OR_RETURN(const ServerStatus server,
                          query_status(target, transport::Clock::now() + kServerLimit));
  FARGPU_ASSIGN_OR_RETURN(Ways ways, find_ways(target, options.ways, here, program));
  const bench::Scale scale{options.quick, largest_copy(server, ways.ways.size())};
  const auto plan = bench::make_plan(scale, only);
  set_largest(ways.ways, largest_of(plan));

  bench::Results results;
  results.about = {{"version", FARGPU_VERSION},
                   {"date", bench::date_now()},
                   {"quick", options.quick},
                   {"largest_copy_bytes", largest_of(plan)},
                   {"machine", bench::about_machine()},
                   {"server", about_server(target, server)},
                   {"gpu", nullptr},
                   {"ways", ways.about}};
  if (const char* link = std::getenv("FARGPU_LINK")) results.about["link"] = link;
  results.skips = ways.skips;
  {
    FARGPU_ASSIGN_OR_RETURN(const std::vector<Fd> job,
                            begin_job_here(program, transport::Clock::now() + kServerLimit));
    for (bench::Way& way : ways.ways)
      if (way.kind == bench::Way::Kind::kRemote)
        way.environment[bootstrap::kJobVariable] = std::getenv(bootstrap::kJobVariable);
    const ProgressLine line;
    bench::run_suite(
        plan, ways.ways, bench::rounds_of(scale), {begin, begin + time},
        [&line](const bench::Progress& progress) { line.show(progress); }, results);
  }
  FARGPU_RETURN_IF_ERROR(anything(results, ways.ways));
  results.about["seconds"] = std::chrono::duration<double>(steady_clock::now() - begin).count();
  results.about["gpu"] = gpu_of(results.about["ways"]);
  return bench::to_json(results);
}

Result<Json> measure(const BenchOptions& options, const std::regex& only) {
  const auto here = own_environment();
  FARGPU_ASSIGN_OR_RETURN(const std::string program, measure_path());
  ServerOptions server = options.server;
  std::optional<PrivateDaemon> daemon;
  if (options.sim) {
    FARGPU_ASSIGN_OR_RETURN(PrivateDaemon started, PrivateDaemon::start(1));
    daemon.emplace(std::move(started));
    server.server = daemon->server();
    server.token_file = daemon->token_file();
  }
  FARGPU_RETURN_IF_ERROR(export_server(server));
  FARGPU_RETURN_IF_ERROR(export_library(program, Preload::kAuto));
  return measure_server(options, only, program, here);
}

void show(const Json& results) {
  std::printf("%s", bench::make_table(results).c_str());
  for (const Json& skip : bench::member(results, "skipped")) {
    const std::string name = bench::text_or(skip, "case", ""),
                      way = bench::text_or(skip, "way", "");
    std::printf("not measured: %s%s%s: %s\n", way.c_str(), name.empty() ? "" : " ", name.c_str(),
                bench::text_or(skip, "why", "").c_str());
  }
}

// The code of a file that is wrong or cannot be read.
int fail_file(const Status& status) { return fail(kBadConfig, status.message()); }

// The results as a table, and as the files that were wished for. The exit code.
int tell(const BenchOptions& options, const Json& results, const std::optional<Json>& before) {
  show(results);
  std::fflush(stdout);
  if (!options.json.empty()) {
    if (const Status status = bench::write_results(options.json, results); !status.ok())
      return fail(status);
  }
  std::optional<bench::Comparison> comparison;
  if (before) {
    auto compared = bench::compare(*before, results);
    if (!compared.ok()) return fail_file(compared.status());
    comparison.emplace(std::move(*compared));
    std::printf("\n%s", bench::to_text(*comparison).c_str());
  }
  if (!options.report.empty()) {
    const Json changes = comparison ? bench::to_json(*comparison) : Json();
    const Status status = bench::write_whole(options.report, bench::make_page(results, changes));
    if (!status.ok()) return fail(status);
  }
  return comparison && comparison->slower() ? kSlower : kSuccess;
}

int be_peer(const BenchOptions& options) {
  const auto program = measure_path();
  if (!program.ok()) return fail(program.status());
  std::fprintf(stderr,
               "fargpu: the other end of bare TCP, at %s, for anyone who reaches it; end it with "
               "Ctrl-C\n",
               options.listen.c_str());
  return fail(execute(*program, {*program, "peer", options.listen}));
}

int bench_command(const BenchOptions& options) {
  if (options.be_peer) return be_peer(options);
  const auto only = parse_only(options.only);
  if (!only.ok()) return fail(only.status());
  const auto plan = bench::make_plan({options.quick, kLargestCopy}, *only);
  if (plan.empty())
    return fail(kUsage, "--only '" + options.only + "' fits no case; see fargpu bench --list");
  if (options.list) return list(plan);
  if (options.sim && !options.server.server.empty())
    return fail(kUsage, "--sim and --server exclude each other");
  std::optional<Json> before;
  if (!options.compare.empty()) {
    auto read = bench::read_results(options.compare);
    if (!read.ok()) return fail_file(read.status());
    before.emplace(std::move(*read));
  }
  for (const auto& [option, path] :
       {std::pair("--json", options.json), {"--report", options.report}})
    if (const Status status = bench::check_writable(option, path); !status.ok())
      return fail(status);
  auto results = options.from.empty() ? measure(options, *only) : bench::read_results(options.from);
  if (!results.ok())
    return options.from.empty() ? fail(results.status()) : fail_file(results.status());
  const int told = tell(options, *results, before);
  const Status lost = options.from.empty() ? nothing_lost(*results) : Status();
  return lost.ok() ? told : fail(lost);
}

void add_files(CLI::App& app, BenchOptions& options) {
  app.add_option("--json", options.json, "Write all results to this file (docs/bench.md)")
      ->type_name("FILE");
  app.add_option("--compare", options.compare,
                 "List the cases that are slower or faster than in this file of --json")
      ->type_name("FILE");
  app.add_option("--report", options.report,
                 "Write a self-contained HTML page with charts of the results, and of --compare's "
                 "changes, to this file")
      ->type_name("FILE");
  app.add_option("--from", options.from,
                 "Do not measure: show, compare and report this file of --json")
      ->type_name("FILE");
}

void add_peer(CLI::App& app, BenchOptions& options) {
  app.add_option(
         "--peer", options.ways.peer,
         "HOST:PORT of `fargpu bench --be-peer` on the server's host, the peer of bare TCP; not "
         "needed for a server on this host")
      ->type_name("HOST:PORT");
  app.add_flag("--be-peer", options.be_peer,
               "Be the peer of bare TCP, until Ctrl-C. It has no password and moves bytes for any "
               "client");
  app.add_option("--listen", options.listen, "Where --be-peer listens")
      ->type_name("HOST:PORT")
      ->capture_default_str();
}

}  // namespace

void add_bench(CLI::App& app, Command& command) {
  CLI::App* bench_app = app.add_subcommand(
      "bench", "Measure calls and copies over a server's transports, beside native and bare links");
  auto options = std::make_shared<BenchOptions>();
  add_server_options(*bench_app, options->server);
  bench_app->add_flag("--sim", options->sim,
                      "Use a private daemon with a simulated GPU: shows the software alone");
  bench_app->add_flag("--quick", options->quick,
                      "20 seconds with fewer cases instead of five minutes");
  bench_app
      ->add_option("--time", options->time,
                   "Measure for about this time instead, like 60s, with as many cases as fit")
      ->type_name("TIME");
  bench_app
      ->add_option("--only", options->only, "Only cases whose name matches this regular expression")
      ->type_name("REGEX");
  bench_app->add_flag("--list", options->list,
                      "Print the cases with a description, measure nothing");
  add_files(*bench_app, *options);
  add_peer(*bench_app, *options);
  bench_app->add_flag("--no-native", options->no_native,
                      "Do not measure natively on a GPU of this host");
  bench_app
      ->add_option("--native-library", options->ways.native_library,
                   "Folder of the libcuda.so.1 that is measured natively (default: the system's)")
      ->check(CLI::ExistingDirectory);
  bench_app->footer(
      "Without --transport: each transport that the server gives. Every round measures a case in "
      "all\nways, one right after the other. docs/bench.md says how to read the table, the page "
      "and the\nfile.\n"
      "Exit codes: 0 measured (with --compare: nothing slower), 1 something is slower than "
      "before, or\nfailed now, 69 a transport was lost meanwhile,\n"
      "78 a file is wrong; others: docs/errors.md.");
  add_bench_app(*bench_app, command);
  bench_app->callback([options, bench_app, &command] {
    if (!bench_app->get_subcommands().empty()) return;
    options->ways.transport = options->server.transport;
    options->ways.native =
        !options->no_native && (!options->sim || !options->ways.native_library.empty());
    command = [options] { return bench_command(*options); };
  });
}

}  // namespace fargpu::cli
