// fargpu scan: what a program's files need of the driver that is not supported, before it runs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/scan/scan.h"

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

void show_text(const scan::FileScan& scan) {
  std::printf(
      "%s: %zu symbols of the driver, %zu names of its functions, %zu functions of the "
      "runtime library\n",
      scan.path.c_str(), scan.symbols, scan.names, scan.runtime);
  for (const scan::Lack& lack : scan.lacks) {
    const std::string how = lack.how == scan::How::kName      ? ", which it may ask for by name,"
                            : lack.how == scan::How::kRuntime ? ", which needs " + lack.needs + ","
                                                              : "";
    std::printf("  %s%s is not supported: %s\n", lack.name.c_str(), how.c_str(), lack.why.c_str());
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
    lacks += R"(, "why": )" + quoted(lack.why) + "}";
  }
  return R"({"file": )" + quoted(scan.path) + R"(, "symbols": )" + std::to_string(scan.symbols) +
         R"(, "names": )" + std::to_string(scan.names) + R"(, "runtime": )" +
         std::to_string(scan.runtime) + R"(, "runtime_unknown": )" +
         std::to_string(scan.runtime_unknown) + R"(, "asks_for_all": )" +
         (scan.asks_for_all ? "true" : "false") + R"(, "not_supported": [)" + lacks + "]}";
}

// What is to be scanned; false: something was wrong, and has been said.
bool list_files(const std::vector<std::string>& given, std::vector<std::string>& files) {
  bool right = true;
  for (const std::string& path : given) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    auto found = scan::libraries_below(path);
    if (found && !found->empty()) {
      files.insert(files.end(), found->begin(), found->end());
      continue;
    }
    right = false;
    fail(kUsage, found ? "'" + path + "' has no shared library" : found.status().message());
  }
  return right;
}

int scan_all(const ScanOptions& options) {
  std::vector<std::string> files;
  bool right = list_files(options.files, files);
  size_t scanned = 0, users = 0, lacking = 0;
  bool all_seen = true;
  if (options.json) std::printf("[");
  for (const std::string& file : files) {
    auto scan = scan::scan_file(file);
    if (!scan) {
      right = false;
      fail(kUsage, "'" + file + "': " + scan.status().message());
      continue;
    }
    const bool uses_cuda = scan->symbols + scan->names + scan->runtime != 0;
    users += uses_cuda ? 1 : 0;
    lacking += scan->lacks.empty() ? 0 : 1;
    all_seen &= !scan->asks_for_all;
    if (options.json) {
      std::printf("%s\n  %s", scanned == 0 ? "" : ",", json_of(*scan).c_str());
    } else if (uses_cuda) {
      show_text(*scan);
    }
    ++scanned;
  }
  if (options.json) {
    std::printf("\n]\n");
  } else if (scanned != 0) {
    const std::string end = lacking != 0
                                ? std::to_string(lacking) + (lacking == 1 ? " needs" : " need") +
                                      " what is not supported"
                            : all_seen ? "all is supported, as far as the files say"
                                       : "all is supported, as far as can be seen";
    std::printf("%zu file%s, %zu of them use CUDA, %s\n", scanned, scanned == 1 ? "" : "s", users,
                end.c_str());
  }
  return !right ? kUsage : lacking != 0 ? kNotSupported : kSuccess;
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
      "Exit codes: 0 all is supported, 1 something is not, 2 usage, or a file is no ELF file.");
  scan_app->callback([options, &command] { command = [options] { return scan_all(*options); }; });
}

}  // namespace fargpu::cli
