#include "client/program/scan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <set>

#include "client/program/driver_names.h"
#include "client/program/elf_file.h"

namespace fargpu::scan {
namespace {

// No program asks for a quarter of all names but one that hands on the whole driver.
bool is_nearly_all(size_t names) { return names > names_to_ask_for() / 4; }

// Other libraries' names go on in lower case: cudaq..., cudart...
bool is_of_runtime(const std::string& symbol) {
  return symbol.starts_with("cuda") && symbol.size() > 4 && symbol[4] >= 'A' && symbol[4] <= 'Z';
}

void look_at_symbol(FileScan& scan, const std::string& symbol, bool weak) {
  if (const schema::Support* const known = find_symbol(symbol)) {
    ++scan.symbols;
    if (known->why != nullptr) scan.lacks.push_back({How::kSymbol, symbol, {}, known->why, weak});
    return;
  }
  if (!is_of_runtime(symbol)) return;
  ++scan.runtime;
  const std::string_view needs = needed_by_runtime(symbol);
  const schema::Support* const known = needs.empty() ? nullptr : find_name(needs);
  if (known == nullptr) {
    ++scan.runtime_unknown;
  } else if (known->why != nullptr) {
    scan.lacks.push_back({How::kRuntime, symbol, std::string(needs), known->why, weak});
  }
}

Result<FileScan> scan(const std::string& path) {
  FARGPU_ASSIGN_OR_RETURN(const ElfFile file, ElfFile::open(path));
  FileScan scan;
  scan.path = path;
  std::map<std::string, bool, std::less<>> symbols;  // whether it is weak wherever it is named
  for (const ElfFile::Undefined& each : file.undefined()) {
    const auto [at, is_new] = symbols.try_emplace(each.name, each.weak);
    if (!is_new) at->second &= each.weak;
  }
  for (const auto& [symbol, weak] : symbols) look_at_symbol(scan, symbol, weak);
  if (std::none_of(symbols.begin(), symbols.end(),
                   [](const auto& each) { return looks_up_names(each.first); }))
    return scan;
  std::set<const schema::Support*> asked;
  FARGPU_RETURN_IF_ERROR(file.for_each_name([&](std::string_view name) {
    if (const schema::Support* const known = find_name(name)) asked.insert(known);
  }));
  scan.names = asked.size();
  scan.asks_for_all = is_nearly_all(asked.size());
  if (scan.asks_for_all) return scan;
  // The table is sorted, and so are pointers into it.
  for (const schema::Support* const known : asked) {
    if (known->why != nullptr && !symbols.contains(known->name))
      scan.lacks.push_back({How::kName, known->name, {}, known->why});
  }
  return scan;
}

bool is_library(std::string_view name) {
  const size_t version = name.find_last_not_of("0123456789.");
  if (version != std::string_view::npos && version + 1 < name.size() && name[version + 1] == '.')
    name = name.substr(0, version + 1);
  return name.ends_with(".so");
}

}  // namespace

Result<FileScan> scan_file(const std::string& path) {
  try {
    return scan(path);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kSystem, "there is not enough memory to scan it");
  }
}

Result<Libraries> libraries_below(const std::string& folder) {
  namespace fs = std::filesystem;
  Libraries found;
  std::vector<fs::path> folders = {folder};
  while (!folders.empty()) {
    const fs::path here = std::move(folders.back());
    folders.pop_back();
    std::error_code error;
    fs::directory_iterator each(here, error);
    for (; !error && each != fs::directory_iterator(); each.increment(error)) {
      std::error_code of_entry;
      const fs::file_type type = each->symlink_status(of_entry).type();
      if (type == fs::file_type::directory) folders.push_back(each->path());
      if (type == fs::file_type::regular && is_library(each->path().filename().native()))
        found.files.push_back(each->path().string());
    }
    if (!error) continue;
    const std::string why = "cannot read '" + here.string() + "': " + error.message();
    if (here == folder) return Status(StatusCode::kSystem, why);
    found.unreadable.push_back(why);
  }
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.unreadable.begin(), found.unreadable.end());
  return found;
}

}  // namespace fargpu::scan
