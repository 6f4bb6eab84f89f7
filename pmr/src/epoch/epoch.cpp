// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/epoch.hpp>

#include <utility>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark {

epoch::epoch(epoch_resource& resource, char const* name)
    : resource_{resource},
      group_{resource.group_of_this_thread()},
      name_{detail::name_or(name, "epoch")},
      depth_{group_.open(name_)} {}  // cannot fail for the first frame

epoch_summary epoch::end() noexcept {
  const std::size_t depth = std::exchange(depth_, 0);
  if (depth == 0) {
    if constexpr (check_level >= 2) {
      detail::report_violation(violation_kind::scope_order, resource_.name(),
                               "epoch_resource '%s': epoch \"%s\" was ended twice", resource_.name(), name_);
    }
    return {};
  }
  if (group_.resource() == nullptr) return {};  // the destroyed resource has reported and ended the epoch
  if (resource_.own_group() != &group_) {
    detail::report_violation(violation_kind::wrong_thread, resource_.name(),
                             "epoch_resource '%s': epoch \"%s\" was ended on a thread that did not open it",
                             resource_.name(), name_);
    return {};
  }
  if (group_.depth() != depth) {
    detail::report_violation(
        violation_kind::scope_order, resource_.name(),
        "epoch_resource '%s': epoch %zu \"%s\" was ended while epoch %zu \"%s\" inside it "
        "was still open",
        resource_.name(), depth, name_, group_.depth(), group_.innermost().name);
    group_.abandon(depth);
    return {};
  }
  const epoch_summary summary = resource_.end_frame(group_);
  while (group_.depth() != 0 && group_.innermost().is_abandoned) (void)resource_.end_frame(group_);
  if (group_.depth() == 0) resource_.release_group_of_this_thread(group_);
  return summary;
}

bool epoch::keep_block(detail::storage const& storage) noexcept {
  return is_open() && storage.record != nullptr && storage.is_live() && group_.keep(*storage.record, depth_);
}

bool epoch::keep_block(void const* address) noexcept {
  if (!is_open() || address == nullptr) return false;
  const auto where = detail::address_of(address);
  if (detail::epoch_slab* const slab = resource_.find_range(address)) {
    if (slab->use.load(std::memory_order_acquire) != detail::epoch_slab::range_use::upstreams) {
      return group_.promote_small(*slab, where, depth_);
    }
  }
  detail::tracked_block* block = resource_.table_.find(where);
  if (block == nullptr || !block->load().is_held() || !group_.holds(*block)) {
    block = group_.find_around(where, depth_);
  }
  return block != nullptr && group_.keep(*block, depth_);
}

}  // namespace tidemark
