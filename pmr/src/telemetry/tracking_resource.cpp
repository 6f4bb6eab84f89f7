// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/tracking_resource.hpp>

namespace tidemark {

tracking_resource::~tracking_resource() { detail::report_leak(kind_, name(), ledger_); }

void* tracking_resource::allocate(std::size_t bytes, std::size_t align,
                                  std::optional<std::source_location> site) {
  return allocate_counted(bytes, align, [&](void* block) {
    const std::scoped_lock lock{mutex_};
    ledger_.add(detail::block_here(block, bytes, align, ledger_.next_number(), site));
  });
}

void tracking_resource::deallocate(void* block, std::size_t bytes, std::size_t align) {
  if (block == nullptr) return;
  {
    detail::late_reports late;
    const std::scoped_lock lock{mutex_};
    if (!ledger_.remove(kind_, name(), block, bytes, align)) return;
  }
  resource_adaptor::deallocate(block, bytes, align);
}

}  // namespace tidemark
