// The report as text.
#pragma once

#include <string>

#include "client/call/report_call_sites.h"
#include "client/call/report_counts.h"

namespace fargpu::client::report {

// Reads FARGPU_REPORT, and begins the report's time. False: nothing is to be reported, or the file
// cannot be written.
bool is_asked();
// In a forked child: its time begins now.
void begin_anew();
// Where FARGPU_REPORT said; nothing of a process that made no call. The file is open only here: a
// program may close descriptors that are not its own, and use their numbers.
void print(const Counts& counts);

// As reports name it: a function by its place (report_counts.h), a route.
const char* name_of(size_t place);
const char* name_of_route(size_t route);

// Each line begins with "fargpu: ". Empty without any call. `since`: what the seconds begin with.
std::string text(const Counts& counts, const std::string& process, double seconds,
                 const char* since);
// The same: a line for each of the call sites that waited longest.
std::string text(const call_sites::Found& found);

}  // namespace fargpu::client::report
