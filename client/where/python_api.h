// The functions of CPython's public C API that tell where a thread is. They are looked up in the
// process: nothing of Python is linked.
#pragma once

namespace fargpu::client::where {

struct PyObject;
struct PyThreadState;

struct PythonApi {
  int (*is_initialized)();
  int (*is_finalizing)();
  PyThreadState* (*current)();         // of the GIL's holder or this thread; may be null
  PyThreadState* (*of_this_thread)();  // whether it holds the GIL or not
  int (*add_pending_call)(int (*)(void*), void*);
  // Only with the GIL.
  PyObject* (*import)(const char*);
  PyObject* (*call_method)(PyObject*, const char*, const char*, ...);
  PyObject* (*attribute)(PyObject*, const char*);
  PyObject* (*encode)(PyObject*, const char*, const char*);
  char* (*bytes)(PyObject*);
  PyObject* (*error)();
  void (*clear_error)();
  void (*decrease)(PyObject*);
  // The same; null before Python 3.9.
  PyObject* (*frame_of)(PyThreadState*);
  PyObject* (*back)(PyObject*);
  PyObject* (*code)(PyObject*);
  int (*line)(PyObject*);
  // The same; null before Python 3.10. Whether the collector was on.
  int (*stop_collector)();
  int (*start_collector)();

  // Whether a thread may be looked at: Python has begun, and has not begun to end.
  bool runs() const { return is_initialized() != 0 && is_finalizing() == 0; }
  // Whether the calling thread holds the GIL (without one: is attached).
  bool held() const {
    PyThreadState* const now = current();
    return now != nullptr && now == of_this_thread();
  }
};

// nullptr: there is no Python in the process, or one that lacks them. Any thread. Libraries loaded
// with RTLD_LOCAL are not seen.
const PythonApi* python_api();

}  // namespace fargpu::client::where
