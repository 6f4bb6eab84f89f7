// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tidemark::compat`: classes with the names, constructors and rules of the standard's memory resources.
/// Each owns the memory it took from its upstream.
///
/// A program changes to them by a `using`, and to `pool`, `synchronized_pool` and `upstream_arena`, which do
/// more, class by class when it likes. docs/compat.md lists every difference to the standard.
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

/// The lists and the store of a `pool`, with the interface of the standard's and a mutex that is locked in
/// each call. All memory is the upstream's, and construction allocates nothing.
template <class Mutex>
class standard_pool : public distinct_resource {
 public:
  standard_pool() : standard_pool{std::pmr::get_default_resource()} {}
  explicit standard_pool(std::pmr::memory_resource* upstream) : standard_pool{{}, upstream} {}
  explicit standard_pool(std::pmr::pool_options const& options)
      : standard_pool{options, std::pmr::get_default_resource()} {}
  /// @param options a limit of 0 stands for the default: blocks of 16 KiB, 2^16 blocks a chunk. A limit that
  /// is too large stands for the largest: blocks of 1 MiB, 2^16 blocks a chunk.
  /// @pre `upstream` is not null and outlives the resource.
  standard_pool(std::pmr::pool_options const& options, std::pmr::memory_resource* upstream)
      : options_{standard_limits(options)},
        upstream_{upstream},
        lists_{standard_classes(options_.largest_required_pool_block)},
        store_{lists_.classes(), lists_, standard_slabs(options_, upstream), most, 0} {
    lists_.set_watermark(most);
  }
  /// Returns everything to the upstream, also live blocks; the resource can be used as before. So does the
  /// destructor. O(chunks + large blocks).
  void release() {
    const std::scoped_lock lock{mutex_};
    store_.release();
    lists_.forget();
  }
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }
  /// The limits that hold, neither of them 0.
  [[nodiscard]] std::pmr::pool_options options() const noexcept { return options_; }

 protected:
  /// @throws what the upstream throws; nothing has changed then.
  [[nodiscard]] void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    if (void* const block = lists_.take(bytes, align)) return block;
    if (bytes > most / 8 || align > most / 8) {
      // The upstream refuses what no memory has room for: the standard's resources throw only its exceptions.
      bytes = most;
      align = most / 2 + 1;
      upstream_->deallocate(upstream_->allocate(bytes, align), bytes, align);
      throw std::bad_alloc{};
    }
    const auto relieve = [] { return std::size_t{0}; };
    const std::size_t index = lists_.classes().index_of(bytes, align);
    if (index == size_classes::none) return store_.allocate_large(bytes, align, relieve);
    if (lists_.listed_blocks(index) == 0) lists_.put_all(index, store_.refill(index, most, most, relieve));
    return lists_.take_from(index, bytes);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    if (block == nullptr) return;
    const std::scoped_lock lock{mutex_};
    if (lists_.give(block, bytes, align) != free_result::not_listed) return;
    const std::size_t index = lists_.classes().index_of(bytes, align);
    if (index == size_classes::none) return store_.deallocate_large(block, bytes, align);
    (void)lists_.give_to(index, block, bytes);
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

/// `std::pmr::unsynchronized_pool_resource` with the blocks of a `pool`, which has statistics and keeps large
/// blocks. One thread at a time.
class unsynchronized_pool_resource : public detail::standard_pool<detail::no_mutex> {
 public:
  using standard_pool::standard_pool;
};

/// `std::pmr::synchronized_pool_resource` with the blocks of a `pool` and a mutex, so that it has blocks of 8
/// bytes and can be released at any time. `synchronized_pool`, which has a cache for each thread, is faster.
/// Any thread, any function, except construction and destruction, also in a child that is forked.
class synchronized_pool_resource : public detail::standard_pool<detail::fork_safe<>> {
 public:
  using standard_pool::standard_pool;
};

/// `std::pmr::monotonic_buffer_resource`, unchanged: an `upstream_arena`, which has marks, scopes and reuse
/// besides, keeps records in the heap, and its chunks double. One thread at a time.
class monotonic_buffer_resource : public std::pmr::monotonic_buffer_resource {
 public:
  using std::pmr::monotonic_buffer_resource::monotonic_buffer_resource;
};

}  // namespace tidemark::compat
