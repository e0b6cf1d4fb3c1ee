#include "server/stream/stream_stock.h"

#include <algorithm>

namespace fargpu::server {
namespace {

template <typename Shelves>
auto find_shelf(Shelves& shelves, const StreamStock::Attributes& attributes) {
  return std::ranges::find_if(shelves,
                              [&](const auto& shelf) { return shelf.attributes == attributes; });
}

}  // namespace

void StreamStock::fill() {
  if (filled_ == core_.contexts.count()) return;
  const uint16_t current = core_.contexts.current();
  for (const uint16_t context : core_.contexts.ids()) {
    auto found = stocks_.find(context);
    if (found != stocks_.end() && found->second.is_filled) continue;
    if (core_.contexts.enter(context) != CUDA_SUCCESS) continue;
    if (found == stocks_.end()) found = stocks_.emplace(context, first_stock(context)).first;
    fill(context, found->second);
    set_filled(found->second, true);
  }
  (void)core_.contexts.enter(current);
}

// Of the kinds that the program has made already.
StreamStock::Stock StreamStock::first_stock(uint16_t context) const {
  constexpr size_t kMostAsked = 64;
  Stock stock;
  if (core_.contexts.green(context) != nullptr) {
    stock.shelves.push_back({{CU_STREAM_NON_BLOCKING, 0}, {}});
    return stock;
  }
  stock.shelves = {{{CU_STREAM_NON_BLOCKING, 0}, {}}, {{CU_STREAM_DEFAULT, 0}, {}}};
  const DriverTable& driver = core_.driver;
  if (driver.cuStreamGetFlags == nullptr || driver.cuStreamGetPriority == nullptr) return stock;
  const auto made = core_.handles.streams(context);
  for (void* const stream : made.first(std::min(made.size(), kMostAsked))) {
    Attributes attributes;
    if (driver.cuStreamGetFlags(static_cast<CUstream>(stream), &attributes.flags) == CUDA_SUCCESS &&
        driver.cuStreamGetPriority(static_cast<CUstream>(stream), &attributes.priority) ==
            CUDA_SUCCESS)
      want(stock, attributes);
  }
  return stock;
}

void StreamStock::want(Stock& stock, const Attributes& attributes) {
  if (stock.shelves.size() < kMostShelves &&
      find_shelf(stock.shelves, attributes) == stock.shelves.end())
    stock.shelves.push_back({attributes, {}});
}

// What cannot be made is not tried again before a stream is taken.
void StreamStock::fill(uint16_t context, Stock& stock) const {
  const CUgreenCtx green = core_.contexts.green(context);
  for (Shelf& shelf : stock.shelves) {
    while (shelf.streams.size() < kMostStreams) {
      CUstream made = nullptr;
      if (make(green, shelf.attributes, &made) != CUDA_SUCCESS) break;
      shelf.streams.push_back(made);
    }
  }
}

CUresult StreamStock::make(CUgreenCtx green, const Attributes& attributes, CUstream* stream) const {
  const DriverTable& driver = core_.driver;
  if (green == nullptr) {
    return driver.cuStreamCreateWithPriority == nullptr
               ? CUDA_ERROR_NOT_SUPPORTED
               : driver.cuStreamCreateWithPriority(stream, attributes.flags, attributes.priority);
  }
  return driver.cuGreenCtxStreamCreate == nullptr
             ? CUDA_ERROR_NOT_SUPPORTED
             : driver.cuGreenCtxStreamCreate(stream, green, attributes.flags, attributes.priority);
}

CUstream StreamStock::take(uint16_t context, const Attributes& attributes) {
  const auto found = stocks_.find(context);
  if (found == stocks_.end()) return nullptr;
  Stock& stock = found->second;
  auto shelf = find_shelf(stock.shelves, attributes);
  if (shelf == stock.shelves.end()) {
    want(stock, attributes);
    set_filled(stock, false);
    return nullptr;
  }
  if (shelf->streams.empty()) return nullptr;
  CUstream const stream = shelf->streams.back();
  shelf->streams.pop_back();
  set_filled(stock, false);
  return stream;
}

void StreamStock::set_filled(Stock& stock, bool filled) {
  if (stock.is_filled == filled) return;
  stock.is_filled = filled;
  filled ? ++filled_ : --filled_;
}

void StreamStock::context_ended(const ContextEnd& end) {
  const auto found = stocks_.find(end.id);
  if (found == stocks_.end()) return;
  set_filled(found->second, false);
  stocks_.erase(found);  // the streams go with the context
}

}  // namespace fargpu::server
