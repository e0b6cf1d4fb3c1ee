// The environment in which `fargpu run` starts an application: our libcuda.so.1 is found first, and
// it knows its server. Works on the process's own environment; call while there is one thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace fargpu::cli {

// How an application reaches its GPUs; empty fields keep the values of the environment.
struct ServerOptions {
  std::string server;      // host:port, or the path of a unix socket; several behind commas
  std::string token_file;  // the token itself stays out of command lines
  std::string transport;   // auto, shm, rdma, tcp
  bool tls = false;        // encrypted, or no connection at all
  std::string tls_ca;      // file with the authorities to trust
};

struct SessionOptions {
  std::string gpus;                  // how many, of each server
  std::string memory;                // per GPU, "8G"
  std::vector<std::string> devices;  // wanted GPUs by UUID or index
  std::string report;                // at its end: "1" on stderr, or a file
  bool where = false;                // the report says where calls waited
};

// When to put our libraries into LD_PRELOAD besides LD_LIBRARY_PATH. Automatic: libcuda only for
// programs with a DT_RPATH, NVML where that leads to another one.
enum class Preload { kAuto, kAlways, kNever };

// Checks the values and sets FARGPU_*; export_server() also warns of variables whose names are
// nearly those of settings. Relative paths become absolute, also in variables that were set before:
// the program may change its folder before its first call.
Status export_server(const ServerOptions& options);
Status export_session(const SessionOptions& options);
// Of the files that FARGPU_TOKEN_FILE and FARGPU_TLS_CA name. kSystem: one that is needed cannot be
// read.
Status check_files();
// A failure of the settings, which names the flag where that has set the variable.
Status as_given(const Status& status);
// kInvalidArgument: the program, or what injects itself into it, needs the GPU's driver here.
Status check_tools(const std::string& program);
// LD_LIBRARY_PATH, and LD_PRELOAD when `program` needs it.
Status export_library(const std::string& program, Preload preload);

}  // namespace fargpu::cli
