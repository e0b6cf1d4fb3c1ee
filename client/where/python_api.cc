#include "client/where/python_api.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "client/where/modules.h"

namespace fargpu::client::where {
namespace {

template <typename Function>
bool find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

// Names that are public since 3.13, and what was there before.
template <typename Function>
bool find(Function*& function, const char* name, const char* before) {
  return find(function, name) || find(function, before);
}

bool find_all(PythonApi& api) {
  if (!find(api.is_initialized, "Py_IsInitialized")) return false;
  const bool frames = find(api.frame_of, "PyThreadState_GetFrame") &&
                      find(api.back, "PyFrame_GetBack") && find(api.code, "PyFrame_GetCode") &&
                      find(api.line, "PyFrame_GetLineNumber");
  if (!frames) api.frame_of = nullptr;
  if (!find(api.stop_collector, "PyGC_Disable") || !find(api.start_collector, "PyGC_Enable"))
    api.stop_collector = nullptr;
  return find(api.is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing") &&
         find(api.current, "PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet") &&
         find(api.of_this_thread, "PyGILState_GetThisThreadState") &&
         find(api.add_pending_call, "Py_AddPendingCall") &&
         find(api.import, "PyImport_ImportModule") &&
         find(api.call_method, "PyObject_CallMethod") &&
         find(api.attribute, "PyObject_GetAttrString") &&
         find(api.encode, "PyUnicode_AsEncodedString") && find(api.bytes, "PyBytes_AsString") &&
         find(api.error, "PyErr_Occurred") && find(api.clear_error, "PyErr_Clear") &&
         find(api.decrease, "Py_DecRef");
}

PythonApi api;
std::atomic<bool> found{false};
std::atomic<uint64_t> looked_at{0};  // modules that were loaded when it was looked for last

}  // namespace

const PythonApi* python_api() {
  if (found.load(std::memory_order_acquire)) return &api;
  // The loader's lock may be held by a thread that waits for this call: a library whose
  // initialisation waits for a thread. So only when something was loaded since and, after the first
  // look, which sees the program itself, only when it may be Python.
  const uint64_t loaded = modules_loaded();
  const uint64_t before = looked_at.exchange(loaded, std::memory_order_acq_rel);
  if (before == loaded || (before != 0 && !is_loaded("libpython"))) return nullptr;
  PythonApi all{};
  if (!find_all(all)) return nullptr;
  static std::once_flag once;
  std::call_once(once, [&] {
    api = all;
    found.store(true, std::memory_order_release);
  });
  return &api;
}

}  // namespace fargpu::client::where
