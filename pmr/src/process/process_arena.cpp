// SPDX-License-Identifier: Apache-2.0
#include <tidemark/process/process_arena.hpp>

#include <atomic>
#include <bit>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark {

template class detail::arena_state<shared_memory>;

namespace {

char const* name_of(process_arena_options const& options) noexcept {
  return detail::name_or(options.name, process_arena_options{}.name);
}

template <class... Types>
std::uint64_t hash_of_types(std::uint64_t hash) noexcept {
  ((hash = detail::fnv_more(hash, detail::type_layout<Types>())), ...);
  return hash;
}

}  // namespace

std::uint64_t detail::library_layout(std::uint64_t layout_version) noexcept {
  std::uint64_t hash = detail::fnv_more(detail::fnv_basis, layout_version);
  hash = detail::fnv_more(hash, std::endian::native == std::endian::little);
  hash = detail::fnv_more(hash, std::numeric_limits<char>::is_signed);
  hash = hash_of_types<void*, int, long, long double, wchar_t, std::max_align_t>(hash);
  return hash_of_types<std::pmr::string, std::pmr::vector<int>, std::pmr::vector<bool>, std::pmr::deque<int>,
                       std::pmr::list<int>, std::pmr::map<int, int>, std::pmr::unordered_map<int, int>>(hash);
}

process_arena::process_arena(process_arena_options const& options)
    : arena_{shared_memory{{.address = options.address, .path = options.path, .name = name_of(options)}},
             arena_options{.reserve = options.reserve,
                           .commit_step = options.commit_step,
                           .growable = false,
                           .name = name_of(options)}},
      header_{arena_.push<detail::process_header>()},
      begin_{arena_.mark()} {
  header_->format = {.magic = detail::process_format::expected_magic,
                     .version = detail::process_format::newest_version,
                     .header_bytes = sizeof(detail::process_header),
                     .address = detail::address_of(header_),
                     .bytes = arena_.stats().reserved_bytes,
                     .layout = detail::library_layout(options.layout_version)};
}

std::uint64_t process_arena::offset_of(void const* address) const noexcept {
  return detail::address_of(address) - detail::address_of(header_);
}

std::uint64_t process_arena::publish(void const* root, std::size_t bytes, std::uint64_t type) {
  auto const* const last = static_cast<std::byte const*>(root) + (bytes - 1);
  if (!owns(root) || !owns(last) || offset_of(root) < sizeof(detail::process_header)) {
    throw std::invalid_argument(std::string{"process arena '"} + name() +
                                "': cannot publish an object outside the arena");
  }
  // Lies above all published objects. `deallocate` reclaims only the newest block, and thus none of them.
  auto* const made = arena_.push<detail::publication>();
  *made = {.generation = generation_ + 1,
           .root = detail::address_of(root),
           .root_type = type,
           .end = detail::address_of(made) + sizeof(detail::publication)};
  // A reader of the offset sees all earlier writes, of this function and of the program.
  header_->newest.store(offset_of(made), std::memory_order_release);
  return ++generation_;
}

void process_arena::link() const {
  if (header_->newest.load(std::memory_order_relaxed) == 0) {
    throw std::logic_error(std::string{"process arena '"} + name() +
                           "': cannot link before the first publish");
  }
  arena_.space().link();
}

bool process_arena::try_reset() noexcept {
  shared_memory const& space = arena_.space();
  if (!space.try_exclude_views()) return false;
  header_->newest.store(0, std::memory_order_release);
  arena_.rewind(begin_);  // this mark stays valid
  space.admit_views();
  return true;
}

void process_arena::check_invariants() const noexcept {
  arena_.check_invariants();
  const detail::invariant_check require{"process arena", name()};
  const std::uint64_t newest = header_->newest.load(std::memory_order_relaxed);
  if (newest == 0) return;
  require(newest + sizeof(detail::publication) <= arena_.position(), "newest publication <= position");
  auto const& published = *reinterpret_cast<detail::publication const*>(detail::address_of(header_) + newest);
  require(published.end == detail::address_of(&published + 1), "newest is the offset of a publication");
  require(published.generation == generation_, "newest publication is that of generation()");
}

}  // namespace tidemark
