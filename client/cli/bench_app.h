// fargpu bench app: one program's time by cause, and its predicted time over other links.
#pragma once

#include <CLI/CLI.hpp>

#include "client/cli/commands.h"

namespace fargpu::cli {

// Below `fargpu bench`.
void add_bench_app(CLI::App& bench, Command& command);

}  // namespace fargpu::cli
