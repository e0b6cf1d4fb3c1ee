// fargpu run: opens a job and starts one program in it, with our libcuda.so.1 in front. This
// process becomes the program (exec), so exit code, signals, stops and terminal are the program's
// own; a process beside it holds the job, and with --sim another one the private daemon. As the
// first process of a container it stays as the program's parent, holds both and passes signals on.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/job.h"
#include "client/cli/server_query.h"
#include "client/program/companion.h"
#include "client/program/layout.h"
#include "client/program/private_daemon.h"
#include "client/program/program_file.h"
#include "client/program/supervise.h"

namespace fargpu::cli {

namespace {

constexpr auto kOpenLimit = std::chrono::seconds(10);

struct RunOptions {
  ServerOptions server;
  SessionOptions session;
  bool sim = false;
  unsigned sim_gpus = 1;
  bool no_check = false;
  Preload preload = Preload::kAuto;
  std::vector<std::string> arguments;
};

Preload parse_preload(const std::string& when) {
  return when == "always" ? Preload::kAlways : when == "never" ? Preload::kNever : Preload::kAuto;
}

int cannot_start(const Status& status) { return fail(start_exit_code(status), status.message()); }

Status export_simulator(const RunOptions& options, const std::string& program,
                        const std::string& address, const std::string& token_file) {
  ServerOptions server;
  server.server = address;
  server.token_file = token_file;
  server.transport = options.server.transport;
  FARGPU_RETURN_IF_ERROR(export_server(server));
  SessionOptions session = options.session;
  if (session.gpus.empty()) session.gpus = std::to_string(options.sim_gpus);
  FARGPU_RETURN_IF_ERROR(export_session(session));
  return export_library(program, options.preload);
}

// This process becomes the program.
int become_with_simulator(const RunOptions& options, const std::string& program) {
  const auto daemon = start_private_server(options.sim_gpus);
  if (!daemon) return fail(daemon.status());
  Status status = export_simulator(options, program, daemon->server, daemon->token_file);
  if (status.ok()) status = begin_job(program, transport::Clock::now() + kOpenLimit);
  if (!status.ok()) return fail(status);
  return cannot_start(execute(program, options.arguments));
}

int run_with_simulator(const RunOptions& options, const std::string& program) {
  if (can_become_the_program()) return become_with_simulator(options, program);
  auto daemon = PrivateDaemon::start(options.sim_gpus);
  if (!daemon) return fail(daemon.status());
  if (Status status = export_simulator(options, program, daemon->server(), daemon->token_file());
      !status.ok())
    return fail(status);
  auto job = begin_job_here(program, transport::Clock::now() + kOpenLimit);
  if (!job) return fail(job.status());
  ChildEnd end;
  {
    PrivateDaemon until_here = std::move(*daemon);
    const std::vector<Fd> held = std::move(*job);
    auto ended = supervise(program, options.arguments);
    if (!ended) return cannot_start(ended.status());
    end = *ended;
  }
  end_like(end);
}

// A run inside a run belongs to its job, unless it names a server or GPUs of its own.
bool is_part_of_job(const RunOptions& options) {
  const SessionOptions& session = options.session;
  return std::getenv(bootstrap::kJobVariable) != nullptr && options.server.server.empty() &&
         session.gpus.empty() && session.memory.empty() && session.devices.empty();
}

// No server was named, but a word behind the program would have named one.
Status with_hint(const RunOptions& options, const Status& status) {
  const auto& words = options.arguments;
  const char* const server = std::getenv("FARGPU_SERVER");
  if ((server != nullptr && *server != '\0') ||
      std::none_of(words.begin(), words.end(), [](const std::string& word) {
        return word == "-s" || word == "--sim" || word.starts_with("--server");
      }))
    return status;
  return {status.code(), status.message() + "; options of fargpu go before the program: '" +
                             words.front() + "' gets those behind it"};
}

int run_as_child(const std::string& program, const RunOptions& options,
                 transport::Deadline deadline) {
  auto job = begin_job_here(program, deadline);
  if (!job) return fail(with_hint(options, job.status()));
  auto ended = supervise(program, options.arguments, Orphans::kReap);
  if (!ended) return cannot_start(ended.status());
  job->clear();
  end_like(*ended);
}

int run(const RunOptions& options) {
  if (options.sim && !options.server.server.empty())
    return fail(kUsage, "--sim and --server exclude each other");
  if (const Status tools = check_tools(options.arguments.front()); !tools.ok()) return fail(tools);
  auto program = find_program(options.arguments.front());
  if (!program) return cannot_start(program.status());
  if (const std::string doubt = doubt_about(*program); !doubt.empty())
    std::fprintf(stderr, "fargpu: %s\n", doubt.c_str());
  if (options.sim) return run_with_simulator(options, *program);

  if (Status status = export_server(options.server); !status.ok()) return fail(status);
  if (Status status = export_session(options.session); !status.ok()) return fail(status);
  if (Status status = export_library(*program, options.preload); !status.ok()) return fail(status);
  if (is_part_of_job(options)) return cannot_start(execute(*program, options.arguments));
  // One exchange with the daemon before the program starts: a server that is missing or refuses is
  // reported once and clearly.
  const auto deadline = transport::Clock::now() + kOpenLimit;
  if (!options.no_check && !can_become_the_program())
    return run_as_child(*program, options, deadline);
  const Status job = options.no_check ? begin_job_later() : begin_job(*program, deadline);
  if (!job.ok()) return fail(with_hint(options, job));
  return cannot_start(execute(*program, options.arguments));
}

}  // namespace

void add_run(CLI::App& app, Command& command) {
  CLI::App* run_app = app.add_subcommand(
      "run", "Run one program on remote GPUs: fargpu run --server host:14900 -- ./app args...");
  auto options = std::make_shared<RunOptions>();
  add_server_options(*run_app, options->server);
  run_app->add_option("--gpus", options->session.gpus,
                      "Number of GPUs from each server (default: the server's, usually 1)");
  run_app->add_option("--memory", options->session.memory,
                      "Memory limit per GPU for all processes of the program together, e.g. 8G "
                      "(default: the server's)");
  run_app
      ->add_option(
          "--device", options->session.devices,
          "A GPU by index (on each server) or by UUID (with one server only); may be given "
          "several times")
      ->allow_extra_args(false);
  run_app->add_flag("--sim", options->sim,
                    "Use a private daemon with simulated GPUs instead of a server (the components "
                    "server and sim must be installed)");
  run_app->add_option("--sim-gpus", options->sim_gpus, "Number of simulated GPUs with --sim")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  run_app->add_flag("--no-check", options->no_check,
                    "Start the program without opening a job at the server: the job begins with "
                    "the program's first session");
  run_app
      ->add_option_function<std::string>(
          "--preload",
          [options](const std::string& when) { options->preload = parse_preload(when); },
          "When to use LD_PRELOAD as well (auto: for programs with an RPATH)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  CLI::Option* const report =
      run_app
          ->add_flag("--report", options->session.report,
                     "At the end of each process, print a report on stderr: calls by kind, waits, "
                     "bytes by route, images, unsupported functions. --report=FILE appends the "
                     "report to FILE, as JSON if its name ends in .json")
          ->type_name("[=FILE]");
  run_app
      ->add_flag("--where", options->session.where,
                 "With --report: name the lines of Python or the functions whose calls waited; "
                 "each call that waits takes some microseconds longer")
      ->needs(report);
  run_app->add_option("command", options->arguments, "The program and its arguments, after --")
      ->required();
  run_app->positionals_at_end();
  run_app->footer(
      "One run is one job: all processes that the program starts see the same GPUs in the same "
      "order\nand share the memory limit. The job ends with the program, or with its last "
      "session.\n"
      "The exit code is the program's own (128 + n for a signal in a shell).\n"
      "fargpu's own: 2 usage, 69 no server, 72 part missing, 75 no capacity, 76 version, 77 token, "
      "126/127 cannot start.");
  run_app->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace fargpu::cli
