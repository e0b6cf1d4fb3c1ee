// The error log: what an error leaves in it, who is told, and how much of it fits. Lines are
// printed without time and thread. What a real driver adds to explain an error is not looked at.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/conformance/conformance.h"

namespace {

bool is_result(const std::string& line) { return line.find("Returning ") != std::string::npos; }

// The text behind "[time][thread]" of a line, if it is about a result or about the log.
void print_lines(const std::string& text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end == std::string::npos ? text.size() : end + 1;
    const size_t source = line.find("[CUDA]");
    const std::string shown = source == std::string::npos ? line : line.substr(source);
    if (is_result(line) || source == std::string::npos) std::printf("    %s\n", shown.c_str());
  }
}

void dump(CUlogIterator* iterator, size_t room) {
  std::vector<char> buffer(room + 1, '#');
  size_t size = room;
  if (SHOW(cuLogsDumpToMemory(iterator, buffer.data(), &size, 0)) != CUDA_SUCCESS) {
    VALUE(size);
    return;
  }
  VALUE(size == 0 || buffer[size] == '\0');
  VALUE(size <= room);
  VALUE(buffer[room] == '#');
  print_lines(std::string(buffer.data(), size));
}

void CUDA_CB callback(void* data, CUlogLevel level, char* message, size_t length) {
  if (!is_result(message)) return;
  std::printf("    %s, level %d: %s%s\n", static_cast<const char*>(data), static_cast<int>(level),
              message, std::strlen(message) == length ? "" : " (another length)");
}

}  // namespace

int main() {
  CUlogsCallbackHandle first = nullptr, second = nullptr;
  CUlogIterator begin = 77, iterator = 0;
  char first_name[] = "first", second_name[] = "second";
  SHOW(cuLogsRegisterCallback(callback, first_name, &first));
  SHOW(cuLogsCurrent(&begin, 0));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 16));
  NEED(cuInit(0));
  SHOW(cuLogsCurrent(&iterator, 0));
  VALUE(iterator == begin);
  dump(&begin, 100);

  SHOW(cuDeviceGet(nullptr, 0));
  CUdevice device = 0;
  SHOW(cuLogsRegisterCallback(callback, second_name, &second));
  SHOW(cuDeviceGet(&device, 99));
  SHOW(cuLogsUnregisterCallback(first));
  SHOW(cuMemAlloc(&memory, 16));
  SHOW(cuLogsRegisterCallback(nullptr, nullptr, &first));
  SHOW(cuLogsUnregisterCallback(nullptr));
  SHOW(cuLogsUnregisterCallback(second));
  SHOW(cuLogsCurrent(nullptr, 0));
  dump(&begin, 10000);
  dump(&begin, 10000);
  SHOW(cuLogsDumpToMemory(&begin, nullptr, nullptr, 0));
  CUlogIterator beyond = begin + 1000;
  dump(&beyond, 1000);
  VALUE(beyond == begin + 1000);

  SHOW(cuLogsCurrent(&begin, 0));
  for (int i = 0; i < 2; ++i) (void)cuDeviceGet(nullptr, 0);
  // With room for one message and not for two a driver writes beyond it.
  for (const size_t room : {size_t{0}, size_t{1}, size_t{60}}) {
    iterator = begin;
    dump(&iterator, room);
    VALUE(iterator == begin);
  }
  const std::string path = "/tmp/fargpu-error-log-" + std::to_string(::getpid());
  iterator = begin;
  SHOW(cuLogsDumpToFile(&iterator, nullptr, 0));
  SHOW(cuLogsDumpToFile(&iterator, "/no/such/folder/log", 0));
  iterator = begin;
  SHOW(cuLogsDumpToFile(&iterator, path.c_str(), 0));
  std::ifstream file(path);
  print_lines(std::string(std::istreambuf_iterator<char>(file), {}));
  ::unlink(path.c_str());

  // The oldest messages go.
  CUlogIterator old = 0;
  for (int i = 0; i < 300; ++i) (void)cuDeviceGet(nullptr, 0);
  std::vector<char> all(100000);
  size_t size = all.size();
  SHOW(cuLogsDumpToMemory(&old, all.data(), &size, 0));
  const std::string text(all.data(), size);
  print_lines(text.substr(0, text.find('\n') + 1));
  VALUE(std::count(text.begin(), text.end(), '\n'));
  size = 400;
  old = 0;
  SHOW(cuLogsDumpToMemory(&old, all.data(), &size, 0));
  const std::string few(all.data(), size);
  print_lines(few.substr(0, few.find('\n') + 1));
  VALUE(std::count(few.begin(), few.end(), '\n') >= 3);
  return 0;
}
