// The log of errors that cuLogs... reads: of this process, in memory, the newest kMessages. Each
// entry that returns an error adds a line. Callbacks run on the thread that failed, with no lock
// held; what they call may fail and be logged as well.
//
// CUDA_LOG_FILE (stdout, stderr or a path) has every line, as soon as there is one. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace fargpu::client::error_log {

inline constexpr unsigned kMessages = 100;

// What an entry returned. Successes, CUDA_ERROR_NOT_READY and errors before cuInit are no errors
// here.
void note(const char* function, CUresult result);
// More about the error that the calling entry is going to return.
void explain(const char* message);

void add_callback(CUlogsCallback callback, void* data, CUlogsCallbackHandle* handle);
bool remove_callback(CUlogsCallbackHandle handle);  // false: there is none
// The place of the next message: how many there were.
CUlogIterator current();
// From `*iterator` (null: the oldest) to now, and `*iterator` becomes now.
CUresult dump_to_file(CUlogIterator* iterator, const char* path);
CUresult dump_to_memory(CUlogIterator* iterator, char* buffer, size_t* size);

}  // namespace fargpu::client::error_log
