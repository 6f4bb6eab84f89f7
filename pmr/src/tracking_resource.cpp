// SPDX-License-Identifier: Apache-2.0
#include <tidemark/tracking_resource.hpp>

#include <tidemark/detail/block_report.hpp>

namespace tidemark {

tracking_resource::~tracking_resource() { detail::report_leak("tracking_resource", name(), ledger_); }

void* tracking_resource::allocate_at(std::size_t bytes, std::size_t align,
                                     std::optional<std::source_location> site) {
  const auto number = detail::add_shared<std::uint64_t>(requests_, 1);
  void* const block = take(bytes, align);
  try {
    const std::scoped_lock lock{mutex_};
    ledger_.add(block, detail::entry_here(bytes, align, number, site));
  } catch (...) {
    upstream_resource()->deallocate(block, bytes, align);
    counter_.refused();
    throw;
  }
  counter_.handed_out(bytes);
  return block;
}

void tracking_resource::deallocate(void* block, std::size_t bytes, std::size_t align) {
  {
    const std::scoped_lock lock{mutex_};
    if (!ledger_.remove("tracking_resource", name(), block, bytes, align)) return;
  }
  counter_.given_back(bytes);
  upstream_resource()->deallocate(block, bytes, align);
}

std::vector<live_block> tracking_resource::leaks() const {
  const std::scoped_lock lock{mutex_};
  return detail::live_blocks(ledger_);
}

std::size_t tracking_resource::print_leaks(std::FILE* out) const {
  const std::vector<live_block> blocks = leaks();
  detail::print_blocks(out, "tracking_resource", name(), blocks);
  return blocks.size();
}

}  // namespace tidemark
