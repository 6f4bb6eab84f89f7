// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/thread_parts.hpp>

#include <algorithm>
#include <array>
#include <atomic>
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

/// All parts of a thread, in an open hash table with linear probing; ends the parts when the thread ends.
///
/// Invariant: a slot has an anchor if and only if it holds a part.
class parts_of_thread {
 public:
  parts_of_thread() { thread_slots = &table_[1]; }
  parts_of_thread(parts_of_thread const&) = delete;
  parts_of_thread& operator=(parts_of_thread const&) = delete;
  ~parts_of_thread() {
    // Unless another thread destroys the parts of this one.
    if (thread_slots == &table_[1]) thread_slots = const_cast<thread_slot*>(&no_slots[1]);
    for (std::size_t i = 0; i < anchors_.size(); ++i)
      if (anchors_[i] != nullptr) anchors_[i]->end(table_[1 + i].part);
  }

  [[nodiscard]] void* find(unsigned long long number) noexcept {
    const std::size_t first = first_index(number), found = index_of(number);
    if (found == none) return nullptr;
    std::swap(table_[1 + first], table_[1 + found]);
    std::swap(anchors_[first], anchors_[found]);
    return table_[1 + first].part;
  }
  // Grows the table until the first slot of the part is unused, the table has 8 to 16 slots per part, or
  // memory is lacking. Objects made in sequence need only as many slots as objects.
  void add(std::shared_ptr<owner_anchor> anchor, unsigned long long number, void* part) {
    try {
      while (is_in_use(anchors_[first_index(number)]) && anchors_.size() <= 8 * count_parts()) grow();
    } catch (std::bad_alloc const&) {
      if (count_parts() == anchors_.size()) throw;
    }
    insert(std::move(anchor), {number, part});
  }
  void remove(unsigned long long number) noexcept {
    const std::size_t found = index_of(number);
    if (found == none) return;
    table_[1 + found] = {removed, nullptr};
    anchors_[found].reset();
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  static constexpr unsigned long long removed = 1;  // no object's number

  static bool is_in_use(std::shared_ptr<owner_anchor> const& anchor) noexcept {
    return anchor != nullptr && !anchor->is_abandoned();
  }
  [[nodiscard]] std::size_t count_parts() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(anchors_, is_in_use));
  }
  [[nodiscard]] std::size_t first_index(unsigned long long number) const noexcept {
    return (number & table_.front().owner) / sizeof(thread_slot);
  }
  [[nodiscard]] std::size_t index_of(unsigned long long number) const noexcept {
    for (std::size_t n = 0, i = first_index(number); n < anchors_.size(); ++n, i = next(i)) {
      if (table_[1 + i].owner == number) return i;
      if (table_[1 + i].owner == 0) break;
    }
    return none;
  }
  [[nodiscard]] std::size_t next(std::size_t index) const noexcept {
    return (index + 1) & (anchors_.size() - 1);
  }
  // Parts of destroyed objects make room. @pre a slot is unused
  void insert(std::shared_ptr<owner_anchor> anchor, thread_slot added) noexcept {
    std::size_t i = first_index(added.owner);
    while (is_in_use(anchors_[i])) i = next(i);
    table_[1 + i] = added;
    anchors_[i] = std::move(anchor);
  }
  void grow() {
    const std::size_t slots = 2 * anchors_.size();
    std::vector<thread_slot> table(1 + slots);
    std::vector<std::shared_ptr<owner_anchor>> anchors(slots);
    table.front().owner = (slots - 1) * sizeof(thread_slot);
    table_.swap(table);
    anchors_.swap(anchors);
    thread_slots = &table_[1];
    for (std::size_t i = 0; i < anchors.size(); ++i)
      if (is_in_use(anchors[i])) insert(std::move(anchors[i]), table[1 + i]);
  }

  std::vector<thread_slot> table_ = std::vector<thread_slot>(2);  // the mask, then the slots
  std::vector<std::shared_ptr<owner_anchor>> anchors_ = std::vector<std::shared_ptr<owner_anchor>>(1);
};

using thread_entries = thread_specific<parts_of_thread>;

}  // namespace

std::shared_ptr<owner_anchor> make_owner_anchor(void* owner, owner_anchor::end_function end_part) {
  return std::make_shared<owner_anchor>(owner, end_part);
}

void* find_thread_part(unsigned long long number) noexcept {
  auto* const parts = thread_entries::find();
  return parts != nullptr ? parts->find(number) : nullptr;
}

void add_thread_part(std::shared_ptr<owner_anchor> anchor, unsigned long long number, void* part) {
  thread_entries::get().add(std::move(anchor), number, part);
}

void remove_thread_part(unsigned long long number) noexcept {
  if (auto* const parts = thread_entries::find()) parts->remove(number);
}

unsigned long long next_owner_number() noexcept {
  static std::atomic<unsigned long long> last{0};
  return last += sizeof(thread_slot);
}

}  // namespace tidemark::detail
