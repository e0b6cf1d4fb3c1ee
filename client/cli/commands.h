// The subcommands of `fargpu`. Each adds itself to the parser, with its options and help; the
// chosen command leaves its work in `Command`, which main runs after parsing. One thread.
#pragma once

#include <functional>

#include "client/cli/environment.h"

namespace CLI {
class App;
}

namespace fargpu::cli {

// Set by the callback of the chosen subcommand: does the work, returns the exit code.
using Command = std::function<int()>;

void add_run(CLI::App& app, Command& command);
void add_devices(CLI::App& app, Command& command);
void add_ps(CLI::App& app, Command& command);
void add_scan(CLI::App& app, Command& command);
void add_smi(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_bench(CLI::App& app, Command& command);
// Hidden: started by doctor in the environment of `fargpu run`, to find which libcuda is loaded
// there.
void add_load_probe(CLI::App& app, Command& command);

// --server, --token-file, --transport: the same everywhere.
void add_server_options(CLI::App& command, ServerOptions& options);

}  // namespace fargpu::cli
