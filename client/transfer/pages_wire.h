// PagesWire: how runs of changed bytes travel between Pages and the worker's mirrors. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "client/entry/call_target.h"
#include "client/memory/pages.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {

class PagesWire final : public Pages::Wire {
 public:
  explicit PagesWire(Session& session) : session_(session) {}
  size_t limit() const override { return std::min<uint64_t>(session_.piece_bytes(), kMost); }
  CUresult push(std::span<const std::byte> runs) override {
    return wire::fgPagesPush(session_, 0, runs.data(), runs.size());
  }
  CUresult fetch(uint64_t from, std::span<std::byte> buffer, Fetched* fetched) override {
    unsigned long long next = 0, pushes = 0;
    const CUresult result = wire::fgPagesFetch(session_, 0, from, buffer.size(), &next, &pushes,
                                               &fetched->bytes, buffer.data());
    fetched->next = next;
    fetched->pushes = pushes;
    return result;
  }
  CUresult fetch_part(uint64_t address, uint64_t bytes, std::span<std::byte> buffer,
                      Fetched* fetched) override {
    unsigned long long next = 0, pushes = 0;
    const CUresult result = wire::fgPagesFetchPart(session_, 0, address, bytes, buffer.size(),
                                                   &next, &pushes, &fetched->bytes, buffer.data());
    fetched->next = next;
    fetched->pushes = pushes;
    return result;
  }
  CUresult fetch_always(uint64_t address) override {
    return wire::fgPagesOnDemand(session_, 0, address, 0);
  }

 private:
  // Enough to fill a link.
  static constexpr size_t kMost = 4u << 20;
  Session& session_;
};

}  // namespace fargpu::client
