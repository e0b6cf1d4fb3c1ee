// libcuda.so.1 as a program sees it before cuInit: every symbol is there, every address that
// programs ask for is given.
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace {

class Library : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    library = dlopen(LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    lookup = reinterpret_cast<decltype(lookup)>(dlsym(library, "cuGetProcAddress_v2"));
    ASSERT_NE(lookup, nullptr);
  }
  static void* library;
  static CUresult (*lookup)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
};
void* Library::library = nullptr;
CUresult (*Library::lookup)(const char*, void**, int, cuuint64_t,
                            CUdriverProcAddressQueryResult*) = nullptr;

TEST_F(Library, ExportsEverySymbolOfADriver) {
  std::ifstream file(SYMBOLS);
  std::set<void*> addresses;
  int count = 0;
  for (std::string name; file >> name; ++count) {
    void* address = dlsym(library, name.c_str());
    EXPECT_NE(address, nullptr) << name;
    EXPECT_TRUE(addresses.insert(address).second) << name << " shares its address with another";
  }
  EXPECT_EQ(count, 675);
}

TEST_F(Library, HidesEverythingElse) {
  EXPECT_EQ(dlsym(library, "_ZN6fargpu6client10proc_tableEv"), nullptr);
}

TEST_F(Library, GivesWhatProgramsAskFor) {
  std::ifstream file(REQUESTS);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (std::string version; words >> version; ++count) {
      const bool per_thread = version.ends_with("p");
      void* address = nullptr;
      CUdriverProcAddressQueryResult status{};
      EXPECT_EQ(lookup(name.c_str(), &address, std::stoi(version), per_thread ? 2 : 0, &status),
                CUDA_SUCCESS)
          << name << " " << version;
      EXPECT_NE(address, nullptr) << name << " " << version;
      EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS) << name << " " << version;
    }
  }
  EXPECT_GT(count, 580);
}

TEST_F(Library, ChoosesTheVariantByVersionAndFlags) {
  const struct {
    const char* name;
    int version;
    cuuint64_t flags;
    const char* symbol;
  } cases[] = {
      {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
      {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
      {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
      {"cuCtxGetDevice", 12090, 0, "cuCtxGetDevice"},
      {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
      {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
      {"cuMemcpyHtoD", 13000, 0, "cuMemcpyHtoD_v2"},
      {"cuMemcpyHtoD", 13000, 1, "cuMemcpyHtoD_v2"},
      {"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"},
      {"cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"},
      {"cuInit", 13000, 2, "cuInit"},
  };
  for (const auto& c : cases) {
    void* address = nullptr;
    EXPECT_EQ(lookup(c.name, &address, c.version, c.flags, nullptr), CUDA_SUCCESS) << c.name;
    EXPECT_EQ(address, dlsym(library, c.symbol)) << c.name << " " << c.version << " " << c.flags;
  }
}

// NVIDIA's headers have a type for each form of each function, with the version from which on it is
// given.
TEST_F(Library, GivesEachFormFromItsVersionOn) {
  const std::regex form(R"(\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)\()");
  std::map<std::pair<std::string, bool>, std::set<int>> versions;
  std::smatch found;
  for (const char* header : {"cuda", "cudaGL", "cudaEGL", "cudaVDPAU"}) {
    const std::string path = std::string(TOOLKIT_HEADERS "/") + header + "Typedefs.h";
    std::ifstream file(path);
    if (!file) GTEST_SKIP() << "the CUDA toolkit has no " << path;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_search(line, found, form) && found[1] != "cuWGLGetDevice")  // of Windows
        versions[{found[1], found[3].matched}].insert(std::stoi(found[2]));
    }
  }
  EXPECT_GT(versions.size(), 530u);
  const auto ask = [](const std::string& name, int version, bool per_thread) {
    void* address = nullptr;
    EXPECT_EQ(lookup(name.c_str(), &address, version, per_thread ? 2 : 0, nullptr), CUDA_SUCCESS);
    return address;
  };
  for (const auto& [function, all] : versions) {
    const auto& [name, per_thread] = function;
    void* before = ask(name, *all.begin() - 1, per_thread);
    // Forms that are older than those of the header are not in it.
    if (before != nullptr) {
      EXPECT_LE(*all.begin(), 7000) << name;
    }
    for (const int version : all) {
      EXPECT_EQ(ask(name, version - 1, per_thread), before) << name << " before " << version;
      void* const now = ask(name, version, per_thread);
      EXPECT_NE(now, nullptr) << name << " " << version;
      EXPECT_NE(now, before) << name << " " << version;
      before = now;
    }
    EXPECT_EQ(ask(name, CUDA_VERSION, per_thread), before) << name;
  }
}

TEST_F(Library, SaysWhyThereIsNoAddress) {
  void* address = &address;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(lookup("cuLaunchKernelEx", &address, 11000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  address = &address;
  EXPECT_EQ(lookup("cuNoSuchFunction", &address, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

// Their parameters are not looked at.
TEST_F(Library, RefusesGraphicsByName) {
  for (const char* name : {"cuGLInit", "cuEGLStreamConsumerDisconnect", "cuVDPAUGetDevice"}) {
    const auto function = reinterpret_cast<CUresult (*)(void*)>(dlsym(library, name));
    ASSERT_NE(function, nullptr) << name;
    testing::internal::CaptureStderr();
    EXPECT_EQ(function(nullptr), CUDA_ERROR_NOT_SUPPORTED) << name;
    EXPECT_NE(testing::internal::GetCapturedStderr().find(name), std::string::npos);
  }
}

TEST_F(Library, RefusesWhatNeedsInitialisation) {
  const auto count = reinterpret_cast<CUresult (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  int devices = -1;
  EXPECT_EQ(count(&devices), CUDA_ERROR_NOT_INITIALIZED);
  const auto graph =
      reinterpret_cast<CUresult (*)(CUgraph*, unsigned)>(dlsym(library, "cuGraphCreate"));
  CUgraph made = nullptr;
  EXPECT_EQ(graph(&made, 0), CUDA_ERROR_NOT_INITIALIZED);
  const auto release =
      reinterpret_cast<CUresult (*)(CUexternalMemory)>(dlsym(library, "cuDestroyExternalMemory"));
  EXPECT_EQ(release(nullptr), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
