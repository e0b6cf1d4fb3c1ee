// fargpu scan: what a program's files need of the driver that is not supported, before it runs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/program/scan.h"

namespace fargpu::cli {

namespace {

struct ScanOptions {
  std::vector<std::string> files;
  bool json = false;
};

const char* name_of(scan::How how) {
  switch (how) {
    case scan::How::kSymbol:
      return "symbol";
    case scan::How::kName:
      return "name";
    case scan::How::kRuntime:
      return "runtime";
  }
  return "";
}

std::string how_needed(const scan::Lack& lack) {
  if (lack.how == scan::How::kName) return ", which it may ask for by name,";
  std::string weak = lack.weak ? ", which it may do without (a weak symbol)," : "";
  if (lack.how != scan::How::kRuntime) return weak;
  return weak + (weak.empty() ? ", which needs " : " and which needs ") + lack.needs + ",";
}

void show_text(const scan::FileScan& scan) {
  std::printf(
      "%s: %zu symbols of the driver, %zu names of its functions, %zu functions of the "
      "runtime library\n",
      scan.path.c_str(), scan.symbols, scan.names, scan.runtime);
  for (const scan::Lack& lack : scan.lacks) {
    std::printf("  %s%s is not supported: %s\n", lack.name.c_str(), how_needed(lack).c_str(),
                lack.why.c_str());
  }
  if (scan.asks_for_all) {
    std::printf(
        "  it asks for nearly all functions by name, as the runtime library does that was "
        "linked into it: which of them it uses cannot be seen (fargpu run --report can)\n");
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json_of(const scan::FileScan& scan) {
  std::string lacks;
  for (const scan::Lack& lack : scan.lacks) {
    lacks += lacks.empty() ? "" : ", ";
    lacks += R"({"how": ")" + std::string(name_of(lack.how)) + R"(", "name": )" + quoted(lack.name);
    if (!lack.needs.empty()) lacks += R"(, "needs": )" + quoted(lack.needs);
    if (lack.weak) lacks += R"(, "weak": true)";
    lacks += R"(, "why": )" + quoted(lack.why) + "}";
  }
  return R"({"file": )" + quoted(scan.path) + R"(, "symbols": )" + std::to_string(scan.symbols) +
         R"(, "names": )" + std::to_string(scan.names) + R"(, "runtime": )" +
         std::to_string(scan.runtime) + R"(, "runtime_unknown": )" +
         std::to_string(scan.runtime_unknown) + R"(, "asks_for_all": )" +
         (scan.asks_for_all ? "true" : "false") + R"(, "not_supported": [)" + lacks + "]}";
}

struct Listed {
  std::string path;
  bool found;  // in a folder, where not all that is called like a library is one
};

// What is to be scanned. False: something was wrong, and has been said.
bool list_files(const std::vector<std::string>& given, std::vector<Listed>& files) {
  bool right = true;
  for (const std::string& path : given) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back({path, false});
      continue;
    }
    const auto found = scan::libraries_below(path);
    std::vector<std::string> wrong;
    if (!found) {
      wrong = {found.status().message()};
    } else {
      for (const std::string& file : found->files) files.push_back({file, true});
      wrong = found->unreadable;
      if (found->files.empty()) wrong.push_back("'" + path + "' has no shared library");
    }
    for (const std::string& message : wrong) fail(kUsage, message);
    right &= wrong.empty();
  }
  return right;
}

struct Totals {
  size_t scanned = 0, skipped = 0, users = 0, lacking = 0;
  bool all_seen = true;  // nothing asks for all functions
};

void show_totals(const Totals& totals) {
  const std::string end = totals.lacking != 0 ? std::to_string(totals.lacking) +
                                                    (totals.lacking == 1 ? " needs" : " need") +
                                                    " what is not supported"
                          : totals.all_seen ? "all is supported, as far as the files say"
                                            : "all is supported, as far as can be seen";
  const std::string skipped =
      totals.skipped == 0
          ? ""
          : " (" + std::to_string(totals.skipped) +
                (totals.skipped == 1 ? " more is no ELF file)" : " more are no ELF files)");
  std::printf("%zu file%s%s, %zu of them use CUDA, %s\n", totals.scanned,
              totals.scanned == 1 ? "" : "s", skipped.c_str(), totals.users, end.c_str());
}

int scan_all(const ScanOptions& options) {
  std::vector<Listed> files;
  bool right = list_files(options.files, files);
  Totals totals;
  if (options.json) std::printf("[");
  for (const Listed& file : files) {
    auto scan = scan::scan_file(file.path);
    if (!scan && file.found && scan.status().code() == StatusCode::kUnsupported) {
      ++totals.skipped;
      continue;
    }
    if (!scan) {
      right = false;
      fail(kUsage, "'" + file.path + "': " + scan.status().message());
      continue;
    }
    const bool uses_cuda = scan->symbols + scan->names + scan->runtime != 0;
    totals.users += uses_cuda ? 1 : 0;
    totals.lacking += scan->lacks.empty() ? 0 : 1;
    totals.all_seen &= !scan->asks_for_all;
    if (options.json) {
      std::printf("%s\n  %s", totals.scanned == 0 ? "" : ",", json_of(*scan).c_str());
    } else if (uses_cuda) {
      show_text(*scan);
    }
    ++totals.scanned;
  }
  if (options.json) {
    std::printf("\n]\n");
  } else if (totals.scanned != 0) {
    show_totals(totals);
  }
  if (totals.scanned == 0 && totals.skipped != 0) {
    fail(kUsage, "no file there is an ELF file of 64 bits");
    right = false;
  }
  return totals.lacking != 0 ? kNotSupported : right ? kSuccess : kUsage;
}

}  // namespace

void add_scan(CLI::App& app, Command& command) {
  CLI::App* scan_app = app.add_subcommand(
      "scan", "Say which functions of the driver a program's files need that are not supported");
  auto options = std::make_shared<ScanOptions>();
  scan_app
      ->add_option("file", options->files,
                   "Programs, shared libraries, and folders, whose shared libraries are scanned")
      ->required();
  scan_app->add_flag("--json", options->json, "A list with an object for each file");
  scan_app->footer(
      "Looks at these files alone, not at libraries that they load. It lists symbols that a file "
      "leaves to\nthe loader, names of driver functions in a file that looks functions up by name, "
      "and functions of\nCUDA's runtime library that are known to need one that is not supported.\n"
      "Exit codes: 0 all is supported, 1 something is not; else 2: usage, or not all could be "
      "read.");
  scan_app->callback([options, &command] { command = [options] { return scan_all(*options); }; });
}

}  // namespace fargpu::cli
