// SPDX-License-Identifier: Apache-2.0
#include <tidemark/owner.hpp>

#include <stdexcept>
#include <string>

namespace tidemark {

owner::owner(epoch_resource& resource, char const* name)
    : resource_{resource}, group_{resource.acquire_group()}, name_{name} {
  try {
    group_.open_as_owner(name);
  } catch (...) {
    resource_.give_up_group(group_);
    throw;
  }
}

owner::~owner() {
  if (group_.resource() == nullptr) return;  // which has reported it, and closed it
  (void)resource_.end_frame(group_);
  resource_.give_up_group(group_);
}

epoch_summary owner::close() noexcept {
  const epoch_summary summary = resource_.end_frame(group_);
  group_.open_as_owner(name_);  // cannot fail: there was a frame
  return summary;
}

bool owner::add_storage(detail::storage& storage) {
  if (!storage.is_live()) return false;
  if (storage.resource() != &resource_) {
    throw std::invalid_argument(std::string{"owner \""} + name_ + "\" of epoch_resource '" +
                                resource_.name() + "': the buffer is of " +
                                (storage.resource() == nullptr
                                     ? std::string{"none"}
                                     : "epoch_resource '" + std::string{storage.resource()->name()} + "'"));
  }
  group_.reserve_one();
  const auto adopt = [&](detail::tracked_block& record, detail::block_state now) {
    if (!record.load().is_noted()) resource_.table_.note(record.address);
    group_.adopt(record, storage.bytes(), now);
  };
  if (storage.record() == nullptr) {
    detail::tracked_block& record = resource_.table_.find_or_add(storage.address());
    adopt(record, {record.load().life() + 1, storage.align(), {}});
    storage.set_record(record);
    return true;
  }
  detail::tracked_block& record = *storage.record();
  for (;;) {
    const detail::block_state before = record.load();
    if (before.life() != storage.life()) return false;
    if (before.is_held()) {
      if (group_.holds(record)) return false;
      if (!resource_.remove(record, before, before.as(detail::block_status::untracked))) continue;
    }
    adopt(record, before);
    return true;
  }
}

}  // namespace tidemark
