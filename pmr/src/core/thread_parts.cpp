// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/thread_parts.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <tidemark/core/detail/thread_specific.hpp>

namespace tidemark::detail {

constinit thread_local std::array<thread_slot, thread_slot_count> thread_slots{};

namespace {

/// All parts of a thread; when it ends, it gives them up.
class parts_of_thread {
 public:
  parts_of_thread() = default;
  parts_of_thread(parts_of_thread const&) = delete;
  parts_of_thread& operator=(parts_of_thread const&) = delete;
  ~parts_of_thread() {
    thread_slots = {};
    for (entry const& each : entries_) each.anchor->end(each.part);
  }

  [[nodiscard]] void* find(std::shared_ptr<owner_anchor> const& anchor) const noexcept {
    const auto found = std::ranges::find(entries_, anchor, &entry::anchor);
    return found != entries_.end() ? found->part : nullptr;
  }
  // What belongs to objects that are gone is dropped before more memory is taken.
  void add(std::shared_ptr<owner_anchor> anchor, void* part) {
    if (entries_.size() == entries_.capacity())
      std::erase_if(entries_, [](entry const& each) { return each.anchor->is_abandoned(); });
    entries_.push_back({std::move(anchor), part});
  }
  void remove(std::shared_ptr<owner_anchor> const& anchor) noexcept {
    std::erase_if(entries_, [&](entry const& each) { return each.anchor == anchor; });
  }

 private:
  struct entry {
    std::shared_ptr<owner_anchor> anchor;
    void* part;
  };
  std::vector<entry> entries_;
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

void add_thread_part(std::shared_ptr<owner_anchor> anchor, void* part) {
  thread_entries::get().add(std::move(anchor), part);
}

void remove_thread_part(std::shared_ptr<owner_anchor> const& anchor) noexcept {
  if (auto* const parts = thread_entries::find()) parts->remove(anchor);
}

unsigned long long next_owner_number() noexcept {
  static std::atomic<unsigned long long> last{0};
  return ++last;
}

}  // namespace tidemark::detail
