// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/tracking_resource.hpp>

namespace tidemark {

tracking_resource::~tracking_resource() { detail::report_leak(kind_, name(), ledger_); }

void* tracking_resource::allocate(std::size_t bytes, std::size_t align,
                                  std::optional<std::source_location> site) {
  struct observer {
    tracking_resource& tracked;
    std::optional<std::source_location> const& site;

    static void before_allocate(std::size_t, std::size_t) noexcept {}
    void failed(std::size_t) const noexcept { tracked.counter_.refused(); }
    void allocated(void* block, std::size_t size, std::size_t alignment) const {
      const std::scoped_lock lock{tracked.mutex_};
      detail::block_ledger& ledger = tracked.ledger_;
      ledger.add(detail::block_here(block, size, alignment, ledger.next_number(), site));
      tracked.counter_.on_allocate(size);
    }
  } recorded{*this, site};
  return allocate_for(recorded, bytes, align);
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
