// SPDX-License-Identifier: Apache-2.0
#include <tidemark/diagnose/expect_resource.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>

#include "code_symbols.hpp"

namespace tidemark {
namespace detail {

constinit thread_local missed_blocks* innermost_scope = nullptr;

namespace {

constinit thread_local std::size_t allowances = 0;          // live allowances on this thread
constinit thread_local bool operator_new_was_seen = false;  // set during an allowance

// Reads the vtable of std::pmr::memory_resource, in the Itanium ABI: two destructors, then do_allocate.
std::uintptr_t allocate_function_of(std::pmr::memory_resource const* resource) noexcept {
  std::uintptr_t const* vtable = nullptr;
  std::memcpy(static_cast<void*>(&vtable), static_cast<void const*>(resource), sizeof vtable);
  return vtable[2];
}

}  // namespace

/// Counts of a scope, and the link to the thread's next outer scope.
///
/// Invariants: `total` is the sum of the counts of `places` and of blocks at further places; `seen_blocks <=
/// total.blocks`.
/// Not thread-safe: one thread at a time.
class missed_blocks {
 public:
  missed_blocks(std::pmr::memory_resource const* expected, char const* scope_name)
      : name{scope_name}, expected_{expected}, expected_allocate_{allocate_function_of(expected)} {
    places_.reserve(expect_resource::max_places);
  }

  /// Counts a block, unless a resource allocated it for itself.
  /// @param from resource that served the block; null: `operator new`
  void on_allocate(std::size_t bytes, std::pmr::memory_resource const* from,
                   call_stack const& stack) noexcept {
    if (from == expected_ || is_of_a_resource(stack)) return;
    place here;
    here.is_of_new = from == nullptr;
    if (allocation_site const* const site = allocation_site::innermost()) {
      here.label = site->label();
      here.site = site->where();
    }
    fill_calls(here, stack);
    total.add(bytes);
    for (place& known : places_)
      if (known.is_same(here)) return known.missed.add(bytes);
    if (places_.size() == expect_resource::max_places) return;
    here.missed.add(bytes);
    places_.push_back(here);
  }

  /// @throws std::bad_alloc.
  std::string report(bool default_resource_is_watched) const {
    std::vector<place> order = places_;
    std::ranges::sort(order, std::greater{}, &place::missed);
    std::string text = std::string{"expect_resource '"} + name + "': ";
    text += (total.blocks == 0 ? "no block" : total.text()) + " came from elsewhere\n";
    bool is_stripped = false;
    counts further = total;
    for (place const& of : order) {
      further.blocks -= of.missed.blocks, further.bytes -= of.missed.bytes;
      text += "  " + of.missed.text() + " from " + of.source();
      if (of.site.line() != 0)
        text += std::string{", at "} + of.site.file_name() + ':' + std::to_string(of.site.line());
      if (of.label[0] != '\0') text += std::string{" ("} + of.label + ')';
      text += '\n';
      for (std::uintptr_t const call : of.calls) {
        if (call == 0) break;
        const code_place code = find_code(call);
        text += "    " + code_text(code) + '\n';
        if (code.function.empty()) is_stripped = true;
      }
    }
    if (further.blocks != 0) text += "  " + further.text() + " from further places\n";
    if (is_stripped)
      text +=
          "  functions have no names, so that what resources take for themselves may be among these blocks\n";
    if (!operator_new_is_watched)
      text += "  operator new was not watched: include <tidemark/diagnose/watched_new.hpp> in one source\n";
    if (!default_resource_is_watched)
      text += "  the default resource is no longer watched: the program has set another in this scope\n";
    return text;
  }
  /// Reports all counts as one violation.
  void report_violation() const noexcept {
    place const& most =
        *std::ranges::max_element(places_, {}, [](place const& of) { return of.missed.bytes; });
    std::string where;
    try {
      where = most.calls[0] != 0 ? code_text(find_code(most.calls[0])) : "a place that is not known";
    } catch (std::bad_alloc const&) {
      where.clear();  // no memory for the place
    }
    detail::report_violation(violation_kind::missed_resource, name,
                             "expect_resource '%s': %llu block%s of %llu bytes came from elsewhere, %llu of "
                             "these bytes from %s in %s",
                             name, static_cast<unsigned long long>(total.blocks),
                             total.blocks == 1 ? "" : "s", static_cast<unsigned long long>(total.bytes),
                             static_cast<unsigned long long>(most.missed.bytes), most.source(),
                             where.c_str());
  }

  struct counts {
    std::uint64_t bytes = 0, blocks = 0;
    void add(std::size_t block_bytes) noexcept { ++blocks, bytes += block_bytes; }
    [[nodiscard]] std::string text() const {
      return std::to_string(blocks) + (blocks == 1 ? " block of " : " blocks of ") + std::to_string(bytes) +
             " bytes";
    }
    friend auto operator<=>(counts const&, counts const&) = default;
  };

  char const* const name;
  counts total;
  std::uint64_t seen_blocks = 0;   ///< `total.blocks` when the caller last read the counts
  missed_blocks* outer = nullptr;  ///< the thread's next outer scope
  bool operator_new_is_watched = false;
  int exceptions_at_begin = 0;  ///< exceptions in flight at the beginning

 private:
  // Blocks that share one entry of a report.
  struct place {
    bool is_of_new = false;  // otherwise from the default resource
    char const* label = "";
    std::source_location site{};                                      // line() == 0 if unknown
    std::array<std::uintptr_t, expect_resource::max_frames> calls{};  // 0 after the last call
    counts missed;

    [[nodiscard]] char const* source() const noexcept {
      return is_of_new ? "operator new" : "the default resource";
    }
    [[nodiscard]] bool is_same(place const& other) const noexcept {
      return calls == other.calls && is_of_new == other.is_of_new && label == other.label &&
             site.file_name() == other.site.file_name() && site.line() == other.site.line();
    }
  };
  bool is_of_a_resource(call_stack const& stack) noexcept {
    for (stack_frame const& frame : stack.frames())
      if (frame.function == expected_allocate_) return true;
    for (stack_frame const& frame : stack.frames()) {
      const code_owner owner = owners_.owner_at(frame.call);
      if (owner != code_owner::standard) return owner == code_owner::resource;
    }
    return false;
  }
  void fill_calls(place& to, call_stack const& stack) noexcept {
    std::size_t n = 0;
    for (stack_frame const& frame : stack.frames()) {
      const code_owner owner = owners_.owner_at(frame.call);
      const bool is_programs = owner == code_owner::program || owner == code_owner::main;
      if (is_programs) to.calls[n++] = frame.call;
      if (owner == code_owner::main || n == to.calls.size()) return;
    }
  }

  std::pmr::memory_resource const* expected_;
  std::uintptr_t expected_allocate_;  // first address of its do_allocate
  std::vector<place> places_;         // at most max_places; has room for all
  code_owner_cache<1024> owners_;
};

namespace {

// Counts a block in the calling thread's scopes, unless an allowance lives. Null `from` means `operator new`.
void count_missed(std::size_t bytes, std::pmr::memory_resource const* from,
                  void const* return_address) noexcept {
  if (allowances != 0) return;
  const expect_resource::allowance recording;  // the count may allocate records of modules
  const call_stack stack{return_address};
  for (missed_blocks* scope = innermost_scope; scope != nullptr; scope = scope->outer)
    scope->on_allocate(bytes, from, stack);
}

bool is_operator_new_watched() noexcept {
  const expect_resource::allowance here;
  operator_new_was_seen = false;
  // Calls through a pointer, because a compiler may omit a call whose result is unused.
  void* (*volatile const allocate)(std::size_t, std::nothrow_t const&) = &::operator new;
  ::operator delete(allocate(1, std::nothrow));
  return operator_new_was_seen;
}

}  // namespace

void on_operator_new(std::size_t bytes, void const* caller) noexcept {
  operator_new_was_seen = true;
  count_missed(bytes, nullptr, caller);
}

}  // namespace detail

using detail::innermost_scope;

namespace {

// Replaces the default resource while a scope is open. Forwards every request to the previous default
// resource, and counts it in the calling thread's scopes. Thread-safety: as the upstream.
struct watching_resource final : std::pmr::memory_resource {
  explicit watching_resource(std::pmr::memory_resource* watched) noexcept : upstream{watched} {}

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    constexpr char const* watcher_name = "expect_resource";
    if (innermost_scope == nullptr) [[likely]]
      return detail::allocate_from(*upstream, watcher_name, bytes, align);
    void* block = nullptr;
    {
      const expect_resource::allowance passing_on;  // the upstream may call operator new
      block = detail::allocate_from(*upstream, watcher_name, bytes, align);
    }
    detail::count_missed(bytes, upstream, __builtin_return_address(0));
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    upstream->deallocate(block, bytes, align);
  }
  // Equal to the upstream too, because each may deallocate the other's blocks.
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other || *upstream == other;
  }

  std::pmr::memory_resource* upstream;
};

struct watch_list {
  detail::fork_safe<> mutex;
  // One watcher for each resource that was ever the default. Watchers are never destroyed and have no state
  // of a scope, because containers keep their address beyond the scope.
  std::map<std::pmr::memory_resource*, watching_resource> watchers;  // by the watched resource
  std::size_t open_scopes = 0;

  static watch_list& instance() {
    static auto& list = *new detail::until_unload<watch_list>;
    return list.value;
  }
  [[nodiscard]] watching_resource* find(std::pmr::memory_resource const* resource) noexcept {
    for (auto& [watched, watcher] : watchers)
      if (&watcher == resource) return &watcher;
    return nullptr;
  }

  // Counts one more open scope. Another thread may set a default resource at any moment; that resource is
  // then watched. Throws std::bad_alloc, with nothing changed.
  void watch() {
    const std::scoped_lock lock{mutex};
    std::pmr::memory_resource* current = std::pmr::get_default_resource();
    while (find(current) == nullptr) {
      std::pmr::memory_resource* const before =
          std::pmr::set_default_resource(&watchers.try_emplace(current, current).first->second);
      if (before == current) break;
      current = before;
    }
    ++open_scopes;
  }
  // Counts one scope less. The last scope restores the default resource, unless the program has set another.
  void unwatch() noexcept {
    const std::scoped_lock lock{mutex};
    if (--open_scopes != 0) return;
    watching_resource* const current = find(std::pmr::get_default_resource());
    if (current == nullptr) return;
    std::pmr::memory_resource* const before = std::pmr::set_default_resource(current->upstream);
    if (before != current) std::pmr::set_default_resource(before);  // another thread has just set it
  }
  [[nodiscard]] bool is_watching() noexcept {
    const std::scoped_lock lock{mutex};
    return find(std::pmr::get_default_resource()) != nullptr;
  }
};

}  // namespace

expect_resource::expect_resource(std::pmr::memory_resource const* expected, char const* name) {
  name = detail::name_or(name, "expect_resource");
  const allowance own_records;
  if (expected == nullptr)
    throw std::invalid_argument(std::string{"expect_resource '"} + name + "': the expected resource is null");
  missed_ = std::make_unique<detail::missed_blocks>(expected, name);
  watch_list::instance().watch();
  missed_->exceptions_at_begin = std::uncaught_exceptions();
  missed_->outer = std::exchange(innermost_scope, missed_.get());
  missed_->operator_new_is_watched = detail::is_operator_new_watched();
}

// Usually the innermost scope; scopes on the heap may end in another order.
expect_resource::~expect_resource() {
  const allowance own_records;
  watch_list::instance().unwatch();
  detail::missed_blocks** link = &innermost_scope;
  while (*link != nullptr && *link != missed_.get()) link = &(*link)->outer;
  if (*link == nullptr) {
    // Keeps the records, because the scope's thread may be writing to them.
    char const* const name = missed_.release()->name;
    detail::report_violation(violation_kind::wrong_thread, name,
                             "expect_resource '%s': the scope must end on the thread that began it", name);
    return;
  }
  *link = missed_->outer;
  if (missed_->total.blocks != missed_->seen_blocks &&
      std::uncaught_exceptions() <= missed_->exceptions_at_begin)
    missed_->report_violation();
}

std::uint64_t expect_resource::missed_blocks() const noexcept {
  return missed_->seen_blocks = missed_->total.blocks;
}

std::uint64_t expect_resource::missed_bytes() const noexcept {
  (void)missed_blocks();
  return missed_->total.bytes;
}

std::string expect_resource::report() const {
  const allowance own_text;
  (void)missed_blocks();
  return missed_->report(watch_list::instance().is_watching());
}

expect_resource::allowance::allowance() noexcept { ++detail::allowances; }
expect_resource::allowance::~allowance() { --detail::allowances; }

}  // namespace tidemark
