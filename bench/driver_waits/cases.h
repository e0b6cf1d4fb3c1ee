// What a driver is asked. A case is one question; each section has a table of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/driver_waits/asker.h"

namespace driver_waits {

struct Case {
  std::string held_by, where, name;
  std::function<std::string(Asker&)> answer;
};

struct Situation {
  Holder holder;
  Where where;
};

// One case for each step that is asked about, and each situation.
std::vector<Case> cases_of(const std::vector<Life>& lives,
                           const std::vector<Situation>& situations);

std::vector<Life> joined(const std::vector<std::vector<Life>>& tables);
std::vector<Life> memory_lives();
std::vector<Life> object_lives();

// The sections.
std::vector<Case> plain_cases();  // calls that name no stream
std::vector<Case> stream_cases();
std::vector<Case> queue_cases();
std::vector<Case> graph_cases();

}  // namespace driver_waits
