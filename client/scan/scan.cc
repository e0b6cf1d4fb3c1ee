#include "client/scan/scan.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "client/scan/driver_names.h"
#include "client/scan/elf_file.h"

namespace fargpu::scan {
namespace {

// No program asks for a quarter of all names but one that hands on the whole driver.
bool is_nearly_all(size_t names) { return names > names_to_ask_for() / 4; }

// Other libraries' names go on in lower case: cudaq..., cudart...
bool is_of_runtime(const std::string& symbol) {
  return symbol.starts_with("cuda") && symbol.size() > 4 && symbol[4] >= 'A' && symbol[4] <= 'Z';
}

void look_at_symbol(FileScan& scan, const std::string& symbol) {
  if (const schema::Support* const known = find_symbol(symbol)) {
    ++scan.symbols;
    if (known->why != nullptr) scan.lacks.push_back({How::kSymbol, symbol, {}, known->why});
    return;
  }
  if (!is_of_runtime(symbol)) return;
  ++scan.runtime;
  const std::string_view needs = needed_by_runtime(symbol);
  const schema::Support* const known = needs.empty() ? nullptr : find_name(needs);
  if (known == nullptr) {
    ++scan.runtime_unknown;
  } else if (known->why != nullptr) {
    scan.lacks.push_back({How::kRuntime, symbol, std::string(needs), known->why});
  }
}

}  // namespace

Result<FileScan> scan_file(const std::string& path) {
  FARGPU_ASSIGN_OR_RETURN(const ElfFile file, ElfFile::open(path));
  FileScan scan;
  scan.path = path;
  std::set<std::string, std::less<>> symbols(file.undefined().begin(), file.undefined().end());
  for (const std::string& symbol : symbols) look_at_symbol(scan, symbol);
  if (std::none_of(symbols.begin(), symbols.end(), looks_up_names)) return scan;
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

Result<std::vector<std::string>> libraries_below(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::error_code error;
  auto each = fs::recursive_directory_iterator(folder, error);
  for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
    const std::string name = each->path().filename().string();
    const bool is_library = name.ends_with(".so") || name.find(".so.") != std::string::npos;
    std::error_code of_entry;
    if (is_library && each->symlink_status(of_entry).type() == fs::file_type::regular)
      found.push_back(each->path().string());
  }
  if (error) return Status(StatusCode::kSystem, "cannot read '" + folder + "': " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace fargpu::scan
