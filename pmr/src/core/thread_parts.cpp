// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/thread_parts.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <new>
#include <utility>
#include <vector>

#include <tidemark/core/detail/thread_specific.hpp>

namespace tidemark::detail {

namespace {
constexpr std::array<thread_slot, 2> no_slots{};  // a table with one slot, after its mask
}

constinit thread_local thread_slot* thread_slots = const_cast<thread_slot*>(&no_slots[1]);

namespace {

/// All parts of a thread; ends the parts when the thread ends.
class parts_of_thread {
 public:
  parts_of_thread() { thread_slots = &table_[1]; }
  parts_of_thread(parts_of_thread const&) = delete;
  parts_of_thread& operator=(parts_of_thread const&) = delete;
  ~parts_of_thread() {
    // Unless another thread destroys the parts of this one.
    if (thread_slots == &table_[1]) thread_slots = const_cast<thread_slot*>(&no_slots[1]);
    for (entry const& each : entries_) each.anchor->end(each.part);
  }

  [[nodiscard]] void* find(std::shared_ptr<owner_anchor> const& anchor) const noexcept {
    const auto found = std::ranges::find(entries_, anchor, &entry::anchor);
    return found != entries_.end() ? found->part : nullptr;
  }
  // Drops entries of destroyed objects before it grows the list.
  void add(std::shared_ptr<owner_anchor> anchor, unsigned long long number, void* part) {
    if (entries_.size() == entries_.capacity())
      std::erase_if(entries_, [](entry const& each) { return each.anchor->is_abandoned(); });
    entries_.push_back({std::move(anchor), number, part});
    if (slot_of(number).owner != 0) grow_table();
    slot_of(number) = {number, part};
  }
  void remove(std::shared_ptr<owner_anchor> const& anchor) noexcept {
    std::erase_if(entries_, [&](entry const& each) { return each.anchor == anchor; });
  }

 private:
  struct entry {
    std::shared_ptr<owner_anchor> anchor;
    unsigned long long number;
    void* part;
  };

  [[nodiscard]] thread_slot& slot_of(unsigned long long number) noexcept {
    return table_[1 + (number & table_.front().owner) / sizeof(thread_slot)];
  }
  // Grows the table until no two parts share a slot, it has 8 to 16 slots per part, or memory is lacking.
  // Objects made in sequence need only as many slots as objects.
  void grow_table() noexcept {
    const std::size_t parts = std::bit_ceil(entries_.size());
    bool meets = true;
    for (std::size_t slots = (std::max)(parts, 2 * (table_.size() - 1)); meets && slots <= 8 * parts;
         slots *= 2) {
      std::vector<thread_slot> larger;
      try {
        larger.resize(1 + slots);
      } catch (std::bad_alloc const&) {
        return;
      }
      larger.front().owner = (slots - 1) * sizeof(thread_slot);
      table_.swap(larger);
      meets = false;
      for (entry const& each : entries_) {
        thread_slot& own = slot_of(each.number);
        meets = meets || own.owner != 0;
        own = {each.number, each.part};
      }
      thread_slots = &table_[1];
    }
  }

  std::vector<entry> entries_;
  std::vector<thread_slot> table_ = std::vector<thread_slot>(2);  // the mask, then the slots
};

using thread_entries = thread_specific<parts_of_thread>;

}  // namespace

std::shared_ptr<owner_anchor> make_owner_anchor(void* owner, owner_anchor::end_function end_part) {
  return std::make_shared<owner_anchor>(owner, end_part);
}

void* find_thread_part(std::shared_ptr<owner_anchor> const& anchor) noexcept {
  auto const* const parts = thread_entries::find();
  return parts != nullptr ? parts->find(anchor) : nullptr;
}

void add_thread_part(std::shared_ptr<owner_anchor> anchor, unsigned long long number, void* part) {
  thread_entries::get().add(std::move(anchor), number, part);
}

void remove_thread_part(std::shared_ptr<owner_anchor> const& anchor) noexcept {
  if (auto* const parts = thread_entries::find()) parts->remove(anchor);
}

unsigned long long next_owner_number() noexcept {
  static std::atomic<unsigned long long> last{0};
  return last += sizeof(thread_slot);
}

}  // namespace tidemark::detail
