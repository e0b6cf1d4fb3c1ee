// The report as text.
#pragma once

#include <string>

#include "client/call/report_counts.h"

namespace fargpu::client::report {

// Where FARGPU_REPORT says. False: nothing is to be reported, or the file cannot be opened.
bool open_output();
// Nothing of a process that made no call.
void print(const Counts& counts);

// Each line begins with "fargpu: ". Empty without any call.
std::string text(const Counts& counts, const std::string& process, double seconds);

}  // namespace fargpu::client::report
