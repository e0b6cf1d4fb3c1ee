#include "bench/driver_waits/cases.h"

namespace driver_waits {
namespace {

std::string ask(Asker& asker, const Life& life, size_t asked, Situation situation) {
  World& world = asker.world();
  const auto prepare = [&](bool held) {
    for (size_t i = 0; i < asked; ++i) {
      if ((life[i].when == Step::kUnaskedWhileHeld) == held)
        require(life[i].call(world), life[asked].name.c_str());
    }
  };
  prepare(false);
  world.settle();
  world.hold(situation.holder, situation.where);
  prepare(true);
  std::string answer = asker.ask(life[asked].call);
  // A step that was refused leaves nothing to end.
  for (size_t i = asked + 1; i < life.size(); ++i) static_cast<void>(life[i].call(world));
  return answer;
}

}  // namespace

std::vector<Case> cases_of(const std::vector<Life>& lives,
                           const std::vector<Situation>& situations) {
  std::vector<Case> cases;
  for (const Life& life : lives) {
    for (size_t asked = 0; asked < life.size(); ++asked) {
      if (life[asked].when != Step::kAsked) continue;
      for (const Situation situation : situations) {
        cases.push_back({name_of(situation.holder), name_of(situation.where), life[asked].name,
                         [=](Asker& asker) { return ask(asker, life, asked, situation); }});
      }
    }
  }
  return cases;
}

std::vector<Life> joined(const std::vector<std::vector<Life>>& tables) {
  std::vector<Life> all;
  for (const std::vector<Life>& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

std::vector<Case> plain_cases() {
  return cases_of(joined({memory_lives(), object_lives()}), {{Holder::kFunction, Where::kNowhere},
                                                             {Holder::kValue, Where::kNowhere},
                                                             {Holder::kKernel, Where::kNowhere}});
}

}  // namespace driver_waits
