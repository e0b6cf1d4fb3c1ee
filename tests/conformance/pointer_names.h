// Names for pointers and handles in what a conformance program prints: those that the program has
// named, and a number for each other one, by the order in which they come up.
#pragma once

#include <cstdint>
#include <map>
#include <string>

class PointerNames {
 public:
  template <typename T>
  void give(T pointer, const std::string& name) {
    names_.emplace(as_number(pointer), name);
  }
  // What has ended: another one may get the same address.
  template <typename T>
  void forget(T pointer) {
    names_.erase(as_number(pointer));
  }
  template <typename T>
  std::string of(T pointer) {
    const uint64_t number = as_number(pointer);
    if (number == 0) return "0";
    const auto found = names_.find(number);
    if (found != names_.end()) return found->second;
    return names_.emplace(number, "other" + std::to_string(++others_)).first->second;
  }
  template <typename T>
  bool has(T pointer) const {
    return names_.count(as_number(pointer)) != 0;
  }

 private:
  static uint64_t as_number(uint64_t number) { return number; }
  template <typename T>
  static uint64_t as_number(T* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
  }
  std::map<uint64_t, std::string> names_;
  int others_ = 0;
};

inline PointerNames names;
