// Small copies to host memory that the driver does not know: the stream copies into shared memory
// and then writes a word, which the caller watches.
#include "client/entry/stream_wait.h"
#include "client/managed/managed_memory.h"
#include "client/transfer/routes.h"

namespace fargpu::client {
namespace {

bool fits(Transfer& transfer) {
  if (transfer.bytes > StreamWords::kDataBytes || ManagedMemory::is_own_work()) return false;
  transfer.words = words_for(transfer.session, transfer.stream);
  return transfer.words != nullptr;
}

// The copy may have failed although the wait has not: its error was kept then. Or that of an
// earlier call, which the call returns as well.
CUresult take_kept_error(const Transfer& transfer) {
  Context* const context = transfer.session.find_context(transfer.context);
  const int error = context == nullptr ? transfer.session.kept.exchange(CUDA_SUCCESS)
                                       : context->kept.exchange(CUDA_SUCCESS);
  return static_cast<CUresult>(error);
}

CUresult carry(Transfer& transfer) {
  StreamWords::Word word(transfer.words.get());
  if (!word) return kFrameRoute.carry(transfer);
  const std::span<const std::byte> arrived(word.data(), transfer.bytes);
  const copy::Piece all{transfer.shape, 0, 0, 0, 0, transfer.bytes};
  const copy::Rows rows = copy::dense(reinterpret_cast<uint64_t>(arrived.data()), transfer.shape);
  CUresult result = send_copy(transfer, transfer.piece(all, copy::Location::shared(rows)));
  if (result != CUDA_SUCCESS) return result;
  transfer.passed = transfer.answered = true;
  result = wait_by_word(transfer.session, transfer.context, transfer.stream, word);
  if (result == CUDA_SUCCESS) result = take_kept_error(transfer);
  if (result == CUDA_SUCCESS) unpack(transfer.shape, transfer.host.rows, 0, arrived);
  return result;
}

}  // namespace

const Route kWordRoute{report::Route::kStaged, fits, carry};

}  // namespace fargpu::client
