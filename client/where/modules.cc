#include "client/where/modules.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <cstring>

namespace fargpu::client::where {
namespace {

struct Wanted {
  uintptr_t address;
  Module module;
};

int visit(dl_phdr_info* info, size_t, void* data) {
  auto& wanted = *static_cast<Wanted*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || wanted.address < begin || wanted.address >= begin + part.p_memsz)
      continue;
    wanted.module.path = info->dlpi_name;
    wanted.module.base = info->dlpi_addr;
    wanted.module.begin = reinterpret_cast<uintptr_t>(info->dlpi_phdr);
    return 1;
  }
  return 0;
}

// The program itself is the one without a name.
std::string path_of_program() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

}  // namespace

Module module_of(const void* address) {
  Wanted wanted{reinterpret_cast<uintptr_t>(address), {}};
  ::dl_iterate_phdr(visit, &wanted);
  if (wanted.module.begin != 0 && wanted.module.path.empty())
    wanted.module.path = path_of_program();
  return std::move(wanted.module);
}

uint64_t modules_loaded() {
  uint64_t count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<uint64_t*>(data) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

bool is_loaded(const char* part_of_path) {
  return ::dl_iterate_phdr(
             [](dl_phdr_info* info, size_t, void* part) {
               return std::strstr(info->dlpi_name, static_cast<const char*>(part)) != nullptr ? 1
                                                                                              : 0;
             },
             const_cast<char*>(part_of_path)) != 0;
}

}  // namespace fargpu::client::where
