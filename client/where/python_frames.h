// The stack of the calling thread by Python's own functions.
#pragma once

#include <optional>
#include <vector>

#include "client/where/python_api.h"
#include "client/where/traceback.h"

namespace fargpu::client::where {

// Innermost first, as far as the first frame that is no library's; empty where the thread runs no
// Python. The calling thread holds the GIL; no code of Python's runs, and the GIL is kept. Nothing:
// an exception is under way, which stays as it is, or Python is older than 3.9.
std::optional<std::vector<Frame>> frames_with_gil(const PythonApi& api);

}  // namespace fargpu::client::where
