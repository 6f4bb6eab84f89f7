// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tidemark::compat`: classes with the names, constructors and rules of the standard's memory resources.
/// Each resource owns the memory that it took from its upstream.
///
/// A program switches to these classes by a `using`. It can then move class by class to `pool`,
/// `synchronized_pool` and `upstream_arena`, which do more. docs/compat.md lists every difference from the
/// standard.
///
/// ```cpp
/// namespace pmr = tidemark::compat;  // was: namespace pmr = std::pmr;
/// pmr::unsynchronized_pool_resource nodes{{.largest_required_pool_block = 256}, upstream};
/// ```
#pragma once

#include <memory_resource>
#include <mutex>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/pool/detail/block_store.hpp>

namespace tidemark::detail {

/// A mutex for one thread.
struct no_mutex {
  void lock() noexcept {}
  void unlock() noexcept {}
};

/// A `pool`'s lists and store behind the interface of the standard's pool resources. Each call locks the
/// mutex. All memory comes from the upstream; construction allocates nothing.
template <class Mutex>
class standard_pool : public distinct_resource {
 public:
  standard_pool() : standard_pool{std::pmr::get_default_resource()} {}
  explicit standard_pool(std::pmr::memory_resource* upstream) : standard_pool{{}, upstream} {}
  explicit standard_pool(std::pmr::pool_options const& options)
      : standard_pool{options, std::pmr::get_default_resource()} {}
  /// @param options a limit of 0 selects the default: blocks of 16 KiB, 2^16 blocks a chunk. A limit that is
  /// too large selects the maximum: blocks of 1 MiB, 2^16 blocks a chunk.
  /// @pre `upstream` is not null and outlives the resource.
  standard_pool(std::pmr::pool_options const& options, std::pmr::memory_resource* upstream)
      : options_{standard_limits(options)},
        upstream_{upstream},
        lists_{standard_classes(options_.largest_required_pool_block)},
        store_{lists_.classes(), lists_, standard_slabs(options_, upstream), most, 0} {
    lists_.set_watermark(most);
  }
  /// Returns all memory to the upstream, including live blocks. The resource can be used afterwards. The
  /// destructor does the same. O(chunks + large blocks).
  void release() {
    const std::scoped_lock lock{mutex_};
    store_.release();
    lists_.forget();
  }
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }
  /// The effective limits; both are nonzero.
  [[nodiscard]] std::pmr::pool_options options() const noexcept { return options_; }

 protected:
  /// @throws the upstream's exception, with nothing changed.
  [[nodiscard]] void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    if (void* const block = lists_.try_allocate(bytes, align)) return block;
    if (bytes > most / 8 || align > most / 8) {
      // Requests an impossible block from the upstream, because the standard's resources throw only the
      // upstream's exceptions.
      bytes = most;
      align = most / 2 + 1;
      upstream_->deallocate(upstream_->allocate(bytes, align), bytes, align);
      throw std::bad_alloc{};
    }
    const auto relieve = [] { return std::size_t{0}; };
    const std::size_t index = lists_.classes().index_of(bytes, align);
    if (index == size_classes::none) return store_.allocate_large(bytes, align, relieve);
    if (lists_.listed_blocks(index) == 0) lists_.push_all(index, store_.refill(index, most, most, relieve));
    return lists_.pop_block(index, bytes);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    if (block == nullptr) return;
    const std::scoped_lock lock{mutex_};
    if (lists_.try_deallocate(block, bytes, align) != free_result::not_listed) return;
    const std::size_t index = lists_.classes().index_of(bytes, align);
    if (index == size_classes::none) return store_.deallocate_large(block, bytes, align);
    (void)lists_.push_block(index, block, bytes);
  }

 private:
  static constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();

  Mutex mutex_;
  std::pmr::pool_options options_;
  std::pmr::memory_resource* upstream_;
  block_cache lists_;
  block_store<block_cache> store_;
};

}  // namespace tidemark::detail

namespace tidemark::compat {

/// `std::pmr::unsynchronized_pool_resource` with the blocks of a `pool`. Use `pool` itself for statistics and
/// for keeping large blocks. Not thread-safe: one thread at a time.
class unsynchronized_pool_resource : public detail::standard_pool<detail::no_mutex> {
 public:
  using standard_pool::standard_pool;
};

/// `std::pmr::synchronized_pool_resource` with the blocks of a `pool` and a mutex. It serves blocks of 8
/// bytes and can be released at any time. `synchronized_pool` is faster, because it has a cache per thread.
/// Thread-safe, except construction and destruction. A forked child can use it.
class synchronized_pool_resource : public detail::standard_pool<detail::fork_safe<>> {
 public:
  using standard_pool::standard_pool;
};

/// `std::pmr::monotonic_buffer_resource`, unchanged. It is not an `upstream_arena`, because an arena keeps
/// records in the heap and doubles its chunks. Use an `upstream_arena` for marks, scopes and reuse. Not
/// thread-safe: one thread at a time.
class monotonic_buffer_resource : public std::pmr::monotonic_buffer_resource {
 public:
  using std::pmr::monotonic_buffer_resource::monotonic_buffer_resource;
};

}  // namespace tidemark::compat
