// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch_resource`: memory that can be taken back all at once, but for what is kept. Owns no memory but its
/// records; blocks are the upstream's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>
#include <vector>

#include <tidemark/detail/block_group.hpp>
#include <tidemark/detail/block_table.hpp>
#include <tidemark/detail/ended_lives.hpp>
#include <tidemark/detail/storage.hpp>
#include <tidemark/epoch_options.hpp>
#include <tidemark/epoch_stats.hpp>
#include <tidemark/macros.hpp>

namespace tidemark {

/// Hands out an upstream's memory and remembers, while the calling thread has an `epoch` open, what it handed
/// out. The end of the epoch gives all of it back to the upstream, whoever still points to it, except what
/// was given back before and what was kept.
///
/// Use it where a phase makes temporaries that die with it and a few results that do not, and where they come
/// and go in any order: a training step, a request. Where they die in stack order an `arena` is faster.
///
/// ```cpp
/// pool blocks;
/// epoch_resource memory{&blocks};
/// buffer<float> weights{memory, 4096};  // no epoch: an ordinary owner
/// for (int step = 0; step < 100; ++step) {
///   epoch e{memory, "step"};
///   buffer<float> hidden{memory, 4096}, loss{memory, 1};  // hidden dies here, whatever happens
///   if (step == 99) e.keep(loss);                         // loss outlives the step
/// }
/// ```
/// With no epoch open on the thread, allocation and deallocation go straight to the upstream, but for addresses
/// that an epoch had, and those that share a note with one: these are looked up first, without a lock, so that a
/// late deallocation is recognised. Level 2 looks all up.
/// Blocks carry no header and are never touched, so the upstream's memory may be a device's; see
/// `epoch_options`.
///
/// **A container that outlives its epoch.** Its storage is gone; reading or writing it is an error like any
/// use of freed memory. Giving it back late, as the container's destructor does, is recognised and ignored as
/// long as the upstream has not handed the same address out again through this resource; after that the
/// address is somebody else's block, which would be freed. At check level 2 reclaimed storage stays in
/// quarantine, so that a late deallocation is recognised, and reported, while the storage is there. `buffer`
/// knows its storage's life and is always safe to destroy.
///
/// Invariants, checked by `check_invariants()`: that of `epoch_stats`, and those of `detail::block_group`.
///
/// Memory: 48 bytes for each address that was ever handed out in an epoch and up to 64 in tables; the
/// upstream decides how many these are. Complexity: O(1) expected for each call, amortised; the end of an
/// epoch O(its blocks). Thread-safety: any thread, if the upstream is so. Epochs are of the thread that opens
/// them; blocks may be given back by any thread, also while their epoch ends: as a `buffer` always, as a raw
/// block as far as a late one is recognised. Construction and destruction want the resource
/// for themselves.
class epoch_resource final : public std::pmr::memory_resource {
 public:
  /// @param upstream where memory comes from; null: `std::pmr::get_default_resource()`. Must outlive this.
  explicit epoch_resource(std::pmr::memory_resource* upstream = nullptr)
      : epoch_resource{epoch_options{}, upstream} {}
  explicit epoch_resource(epoch_options const& options) : epoch_resource{options, options.upstream} {}
  epoch_resource(epoch_options const& options, std::pmr::memory_resource* upstream);
  epoch_resource(epoch_resource const&) = delete;
  epoch_resource& operator=(epoch_resource const&) = delete;
  /// Reports epochs and owners that are still there, and gives back what they hold. They may be destroyed
  /// afterwards, and an epoch ended, which does nothing then; buffers may not.
  ~epoch_resource() override;

  /// A block of the upstream, tracked if this thread has an epoch open.
  /// @throws what the upstream throws, after giving back what is in quarantine and asking once more;
  /// std::bad_alloc if there is no memory for records. Nothing is handed out then and nothing has changed.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    if (detail::block_group* const group = own_group()) [[unlikely]]
      return allocate_tracked(*group, bytes, align);
    void* const block = ask_upstream(bytes, align);
    if (must_look_up(block)) [[unlikely]]
      note_untracked(block);
    return block;
  }

  /// Gives a block back to the upstream. One that its epoch has reclaimed is left alone, and counted as late;
  /// level 2 reports it, a tracked block given back as another size, and one that was ever tracked given back
  /// twice.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) noexcept {
    if (!must_look_up(block) || may_deallocate(block, bytes, align))
      upstream_->deallocate(block, bytes, align);
  }

  /// Epochs that are open on this thread.
  [[nodiscard]] std::size_t depth() const noexcept {
    detail::block_group const* const group = own_group();
    return group == nullptr ? 0 : group->depth();
  }

  /// Gives all blocks in quarantine to the upstream. @return bytes. O(blocks). To be called before an
  /// upstream takes its memory back by itself, as an arena does when it is rewound.
  std::size_t release_quarantine() noexcept { return shrink_quarantine(0); }

  /// A snapshot. O(threads that had epochs open at once).
  [[nodiscard]] epoch_stats stats() const noexcept;

  /// The options that hold.
  [[nodiscard]] epoch_options const& options() const noexcept { return options_; }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(blocks). @pre no
  /// other thread uses the resource.
  void check_invariants() const noexcept;

 private:
  friend class epoch;
  friend class owner;
  friend class detail::storage;

  [[nodiscard]] detail::block_group* own_group() const noexcept {
    detail::block_group* group = detail::open_groups;
    while (group != nullptr && group->resource() != this) group = group->outer_on_thread;
    return group;
  }
  // Whether anything may be known of a block that matters.
  [[nodiscard]] bool must_look_up(void const* block) const noexcept {
    return check_level >= 2 ? !table_.empty() : table_.may_be_noted(block);
  }
  [[nodiscard]] void* ask_upstream(std::size_t bytes, std::size_t align) {
    try {
      return upstream_->allocate(bytes, align);
    } catch (std::bad_alloc const&) {
      return ask_upstream_again(bytes, align);
    }
  }
  [[nodiscard]] TIDEMARK_COLD void* ask_upstream_again(std::size_t bytes, std::size_t align);
  [[nodiscard]] detail::tracked_block& allocate_in(detail::block_group& group, std::size_t bytes,
                                                   std::size_t align);
  // `allocate` in two halves, for the vtable: a function that ends with one of them has no register to save
  // before.
  [[nodiscard]] void* allocate_tracked(detail::block_group& group, std::size_t bytes, std::size_t align);
  [[nodiscard]] void* allocate_untracked(std::size_t bytes, std::size_t align);
  void note_untracked(void* block) noexcept;
  // Nothing is known any more of a block that no group holds.
  void forget(detail::tracked_block& block, detail::block_state then) noexcept;
  void note_late(detail::tracked_block const& block) noexcept;
  [[nodiscard]] bool may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;
  // Takes a held block out of its group. False if somebody else did meanwhile.
  bool remove(detail::tracked_block& block, detail::block_state before, detail::block_state then) noexcept;
  void remember_end_of(detail::tracked_block const& block) noexcept;

  // For `storage`: gives a block back if its life is still that one.
  bool release(detail::tracked_block& block, std::uint64_t life) noexcept;

  // For `epoch` and `owner`.
  [[nodiscard]] detail::block_group& acquire_group();
  void give_up_group(detail::block_group& group) noexcept;
  [[nodiscard]] detail::block_group& group_of_this_thread();
  void leave_group_of_this_thread(detail::block_group& group) noexcept;
  epoch_summary end_frame(detail::block_group& group) noexcept;
  // A block in quarantine. The upstream may hand it out all the same: then the record is in another life.
  struct withheld {
    detail::tracked_block* block;
    detail::block_state state;
    std::size_t bytes;
  };
  void withhold(detail::tracked_block& block) noexcept;
  std::size_t let_out(withheld const& entry) noexcept;
  std::size_t shrink_quarantine(std::size_t target_bytes) noexcept;

  // For the use-after-epoch detector.
  [[nodiscard]] std::optional<detail::ending> ending_of(detail::tracked_block const& block,
                                                        std::uint64_t life) const noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    detail::block_group* const group = own_group();
    return group != nullptr ? allocate_tracked(*group, bytes, align) : allocate_untracked(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  epoch_options options_;
  std::pmr::memory_resource* upstream_;
  detail::block_table table_;
  std::atomic<std::uint64_t> late_{0};
  detail::ended_lives ended_lives_;

  std::atomic<detail::block_group*> last_given_up_{
      nullptr};                      // mostly nobody's, and had without the lock then
  mutable std::mutex groups_mutex_;  // for the next
  std::vector<std::unique_ptr<detail::block_group>> groups_;

  mutable std::mutex quarantine_mutex_;   // for the next two
  std::pmr::deque<withheld> quarantine_;  // the oldest first
  std::size_t quarantined_bytes_ = 0;
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, epoch_resource>);
static_assert(!std::is_copy_constructible_v<epoch_resource>, "blocks know their resource by its address");

}  // namespace tidemark
