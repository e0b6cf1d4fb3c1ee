// Functions of halves of calls about objects that several processes share. Any thread.
#pragma once

#include <functional>

#include "client/manual/common.h"
#include "client/manual/memory/handle_file.h"

namespace fargpu::client {

// Runs `share`. Another process could observe that a copy has returned before its end, so from here
// on no copy does, unless `share` fails.
CUresult sharing(Session& session, const std::function<CUresult()>& share);

// A descriptor for the program with the export handle, for call `name`. As with a driver, a program
// started by exec inherits descriptors of pools (`inherited`), but not of memory.
CUresult give_handle_file(const char* name, const ExportHandleBytes& export_handle, bool inherited,
                          int* descriptor);

// Refuses memory of a device that CUDA_VISIBLE_DEVICES hides, with a line for call `name`.
CUresult refuse_hidden_device(const char* name);

// Runs import(session, context) for the session whose server gave the export handle out: the
// current one, or else another one. CUDA_ERROR_NOT_PERMITTED, which is said: none did.
CUresult at_its_server(const char* name,
                       const std::function<CUresult(Session&, uint16_t context)>& import);

}  // namespace fargpu::client
