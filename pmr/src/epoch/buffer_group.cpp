// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/buffer_group.hpp>

#include <stdexcept>
#include <string>

#include <tidemark/core/detail/request.hpp>

namespace tidemark {

buffer_group::buffer_group(epoch_resource& resource, char const* name)
    : resource_{resource}, group_{resource.acquire_group()}, name_{detail::name_or(name, "buffer_group")} {
  (void)group_.open(name_, true);  // cannot fail for the first frame
}

buffer_group::~buffer_group() {
  if (group_.resource() == nullptr) return;  // the destroyed resource has reported and closed the group
  (void)resource_.end_frame(group_);
  group_.mark_consistent();
  resource_.release_group(group_);
}

epoch_summary buffer_group::close() noexcept {
  const epoch_summary summary = resource_.end_frame(group_);
  (void)group_.open(name_, true);  // cannot fail, because a frame was open before
  return summary;
}

bool buffer_group::add_storage(detail::storage& storage) {
  if (!storage.is_live()) return false;
  if (storage.resource != &resource_) {
    throw std::invalid_argument(std::string{"buffer_group \""} + name_ + "\" of epoch_resource '" +
                                resource_.name() + "': the buffer is of epoch_resource '" +
                                storage.resource->name() + "'");
  }
  group_.reserve_one();
  if (storage.record == nullptr) {
    detail::tracked_block& added = resource_.table_.find_or_add(detail::address_of(storage.address));
    added.store({added.load().generation() + 1, storage.align, detail::block_status::untracked});
    storage.set_record(added);
  }
  detail::tracked_block& record = *storage.record;
  for (;;) {
    const detail::block_state before = record.load();
    if (before.generation() != storage.generation) return false;
    if (before.is_held()) {
      if (group_.holds(record)) return false;
      if (!resource_.remove(record, before, before.as(detail::block_status::untracked))) continue;
    }
    if (!before.is_in_filter()) resource_.filter_.insert(record.address);
    group_.adopt(record, storage.bytes, before);
    return true;
  }
}

}  // namespace tidemark
