#include "client/image/linked.h"

#include "client/object/image_records.h"
#include "client/process/session.h"

namespace fargpu::client {

std::optional<Image> linked_image(Session& session, const void* image) {
  std::optional<Image> found;
  session.handles.for_each([&](Object& object) {
    if (object.kind() != rpc::HandleKind::kLinkState) return;
    auto& record = static_cast<LinkRecord&>(object);
    // A locked link is being added to or completed. Its image has not been returned yet, and
    // waiting here would hold up the table.
    const std::unique_lock lock(record.mutex, std::try_to_lock);
    if (!lock || record.image.empty() || record.image.data() != image) return;
    found.emplace();
    found->kind = ImageKind::kElf;
    found->bytes = record.image;
    found->layouts = record.layouts;
  });
  return found;
}

}  // namespace fargpu::client
