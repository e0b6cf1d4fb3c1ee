// Where the parts of an installation lie, relative to this executable:
// <prefix>/bin/{fargpu,fargpud}, <prefix>/lib/fargpu/libcuda.so.1, with the name that libraries'
// folder had at the build (lib, lib64, ...). A build folder has the same layout, always with lib.
// Pure look-ups, any thread.
#pragma once

#include <string>

#include "common/base/status.h"

namespace fargpu::cli {

// Path of this executable.
Result<std::string> own_path();
// Folder that holds our libcuda.so.1; kNotFound when there is none.
Result<std::string> client_library_folder();
// The daemon beside this executable.
Result<std::string> daemon_path();
// The program with which `fargpu bench` measures, beside this executable.
Result<std::string> measure_path();
// The file that a shell would run for `command`: a path is taken as it is, a name is looked up in
// PATH.
Result<std::string> find_program(const std::string& command);

}  // namespace fargpu::cli
