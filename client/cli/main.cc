// fargpu: the command line of the client. Every subcommand lives in its own file; main only wires
// them.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "common/base/descriptors.h"
#include "common/base/log.h"

namespace fargpu::cli {

void add_server_options(CLI::App& command, ServerOptions& options) {
  command.add_option(
      "--server,-s", options.server,
      "Server: host, host:port, tls://host:port or unix:PATH, a socket of this host; "
      "several, separated by commas, for one program on the GPUs of all "
      "(default: $FARGPU_SERVER; port 14900)");
  command.add_flag(
      "--tls", options.tls,
      "Encrypt, and verify the server's certificate; the same as a server tls://HOST:PORT");
  command.add_option("--tls-ca", options.tls_ca,
                     "File with the certificates of the trusted authorities (default: "
                     "$FARGPU_TLS_CA, or the system's)");
  command.add_option(
      "--token-file", options.token_file,
      "File whose first line is the server's token, or with a line "
      "\"server HOST:PORT TOKEN\" for each server (\"server * TOKEN\": of all others) "
      "(default: $FARGPU_TOKEN_FILE)");
  command
      .add_option("--transport", options.transport,
                  "Transport: auto, shm, rdma or tcp; without auto the session fails if the "
                  "transport is not possible "
                  "(default: $FARGPU_TRANSPORT or auto)")
      ->check(CLI::IsMember({"auto", "shm", "rdma", "tcp"}));
}

namespace {

// What is wrong with a command line, and where to look.
int usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  std::string what = error.what();
  std::vector<std::string> unknown = command->remaining();
  std::erase(unknown, "--");
  if (command == &app && (unknown.empty() || !unknown.front().starts_with('-'))) {
    what = unknown.empty() ? "a command is missing" : "'" + unknown.front() + "' is no command";
    const char* before = "; there are ";
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
      if (known->get_group().empty()) continue;
      what += std::exchange(before, ", ");
      what += known->get_name();
    }
  } else if (!unknown.empty() && (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                                  dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    what = "'" + unknown.front() + "' is not expected";
  }
  return fail(kUsage, what + " (see " + name + " --help)");
}

// `code`, unless what the command printed could not be written.
int printed(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const Status lost = errno == 0 ? Status(StatusCode::kSystem, "cannot write to standard output")
                                 : system_error("cannot write to standard output", errno);
  const int failed = fail(lost);
  return code == kSuccess ? failed : code;
}

}  // namespace

int main(int argc, char** argv) {
  // The program that is started finds them closed, as it would without us.
  descriptors::open_standard(false);
  // A level that is none is reported here alone, and not by the program once more.
  if (!log::configure("fargpu", log::Level::kWarn)) ::unsetenv("FARGPU_LOG");
  CLI::App app("Runs CUDA programs on the GPUs of other machines.", "fargpu");
  app.set_version_flag("--version", "fargpu " FARGPU_VERSION);
  app.require_subcommand(1);
  app.footer(
      "`fargpu COMMAND --help` explains a command. Exit codes of fargpu's own failures: "
      "docs/errors.md.");
  Command command;
  add_run(app, command);
  add_devices(app, command);
  add_ps(app, command);
  add_scan(app, command);
  add_smi(app, command);
  add_doctor(app, command);
  add_bench(app, command);
  add_load_probe(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return printed(app.exit(request));
  } catch (const CLI::ParseError& error) {
    return usage(app, error);
  }
  return printed(command());
}

}  // namespace fargpu::cli

int main(int argc, char** argv) { return fargpu::cli::main(argc, argv); }
