// SPDX-License-Identifier: Apache-2.0
#include <tidemark/diagnose/expect_resource.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <forward_list>
#include <memory>
#include <mutex>
#include <new>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/new_watch.hpp>

#include "call_stack.hpp"
#include "code_symbols.hpp"

// Declared here instead of by <cxxabi.h>, because a program's include path may lead to another C++ library's
// header.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming): the ABI's name
extern "C" char* __cxa_demangle(char const* name, char* buffer, std::size_t* bytes, int* status);

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

std::string count_text(std::uint64_t blocks, std::uint64_t bytes) {
  return std::to_string(blocks) + (blocks == 1 ? " block of " : " blocks of ") + std::to_string(bytes) +
         " bytes";
}

// "load(model&) at trainer(+0x1a2b)"
std::string code_text(code_place const& place) {
  std::string text;
  if (place.function != nullptr) {
    const std::unique_ptr<char, decltype(&std::free)> name{
        __cxa_demangle(place.function, nullptr, nullptr, nullptr), &std::free};
    text = std::string{name != nullptr ? name.get() : place.function} + " at ";
  }
  if (place.module != nullptr) {
    const std::string_view path = place.module;
    text += path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  }
  char offset[32];
  std::snprintf(offset, sizeof offset, "(+0x%zx)", static_cast<std::size_t>(place.offset));
  return text + offset;
}

}  // namespace

/// Counts of a scope, and the link to the thread's next outer scope.
///
/// Invariants: `blocks_` is the sum of `blocks` over `places_[0, place_count_)` and `further_`; `bytes_`
/// likewise; `reported_blocks_ <= blocks_`.
/// Not thread-safe: one thread at a time.
class missed_blocks {
 public:
  missed_blocks(std::pmr::memory_resource const* expected, char const* name) noexcept
      : expected_{expected}, expected_allocate_{allocate_function_of(expected)}, name_{name} {}

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
    counts& missed = counts_of(here);
    ++missed.blocks, missed.bytes += bytes;
    ++blocks_, bytes_ += bytes;
  }

  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// Blocks missed since the caller last read the counts.
  [[nodiscard]] std::uint64_t unseen_blocks() const noexcept { return blocks_ - seen_blocks_; }
  void mark_seen() noexcept { seen_blocks_ = blocks_; }

  /// @throws std::bad_alloc.
  std::string report(bool default_resource_is_watched) const {
    std::vector<place const*> order;
    order.reserve(place_count_);
    for (place const& of : std::span{places_}.first(place_count_)) order.push_back(&of);
    std::ranges::sort(order, [](place const* a, place const* b) {
      return std::tuple{b->missed.bytes, b->missed.blocks, a} <
             std::tuple{a->missed.bytes, a->missed.blocks, b};
    });
    std::string text = std::string{"expect_resource '"} + name_ + "': ";
    text += (blocks_ == 0 ? "no block" : count_text(blocks_, bytes_)) + std::string{" came from elsewhere\n"};
    bool is_stripped = false;
    for (place const* of : order) {
      text += "  " + count_text(of->missed.blocks, of->missed.bytes);
      text += of->is_of_new ? " from operator new" : " from the default resource";
      if (of->site.line() != 0)
        text += std::string{", at "} + of->site.file_name() + ':' + std::to_string(of->site.line());
      if (of->label[0] != '\0') text += std::string{" ("} + of->label + ')';
      text += '\n';
      for (std::uintptr_t const call : of->calls) {
        if (call == 0) break;
        const code_place code = find_code(call);
        text += "    " + code_text(code) + '\n';
        if (code.function == nullptr) is_stripped = true;
      }
    }
    if (further_.blocks != 0)
      text += "  " + count_text(further_.blocks, further_.bytes) + " from further places\n";
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
    place const& most = *std::ranges::max_element(std::span{places_}.first(place_count_), {},
                                                  [](place const& of) { return of.missed.bytes; });
    std::string where;
    try {
      where = most.calls[0] != 0 ? code_text(find_code(most.calls[0])) : "a place that is not known";
    } catch (std::bad_alloc const&) {
      where.clear();  // no memory for the place
    }
    detail::report_violation(violation_kind::missed_resource, name_,
                             "expect_resource '%s': %llu block%s of %llu bytes came from elsewhere, %llu of "
                             "these bytes from %s in %s",
                             name_, static_cast<unsigned long long>(blocks_), blocks_ == 1 ? "" : "s",
                             static_cast<unsigned long long>(bytes_),
                             static_cast<unsigned long long>(most.missed.bytes),
                             most.is_of_new ? "operator new" : "the default resource", where.c_str());
  }

  missed_blocks* outer = nullptr;  ///< the thread's next outer scope
  bool operator_new_is_watched = false;
  int exceptions_at_begin = 0;  ///< exceptions in flight at the beginning

 private:
  struct counts {
    std::uint64_t blocks = 0, bytes = 0;
  };
  // Blocks that share one entry of a report.
  struct place {
    bool is_of_new = false;  // otherwise from the default resource
    char const* label = "";
    std::source_location site{};  // NOLINT(readability-redundant-member-init): line() == 0 if unknown
    std::array<std::uintptr_t, expect_resource::max_frames> calls{};  // 0 after the last call
    counts missed;
  };
  bool is_of_a_resource(call_stack const& stack) noexcept {
    const auto is_expected = [this](stack_frame const& frame) {
      return frame.function == expected_allocate_;
    };
    if (std::ranges::any_of(stack.frames(), is_expected)) return true;
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
  counts& counts_of(place const& sought) noexcept {
    for (place& known : std::span{places_}.first(place_count_)) {
      if (known.calls == sought.calls && known.is_of_new == sought.is_of_new && known.label == sought.label &&
          known.site.file_name() == sought.site.file_name() && known.site.line() == sought.site.line())
        return known.missed;
    }
    if (place_count_ == places_.size()) return further_;
    return (places_[place_count_++] = sought).missed;
  }

  std::pmr::memory_resource const* expected_;
  std::uintptr_t expected_allocate_;  // first address of its do_allocate
  char const* name_;
  std::uint64_t blocks_ = 0, bytes_ = 0;
  std::uint64_t seen_blocks_ = 0;
  std::size_t place_count_ = 0;
  counts further_;  // at places beyond max_places
  std::array<place, expect_resource::max_places> places_;
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
  std::forward_list<watching_resource> watchers;
  std::size_t open_scopes = 0;

  static watch_list& instance() {
    static auto& list = *new detail::until_unload<watch_list>;
    return list.value;
  }
  [[nodiscard]] watching_resource* find(std::pmr::memory_resource const* resource) noexcept {
    for (watching_resource& known : watchers)
      if (&known == resource) return &known;
    return nullptr;
  }
  [[nodiscard]] watching_resource* watcher_of(std::pmr::memory_resource* upstream) {
    for (watching_resource& known : watchers)
      if (known.upstream == upstream) return &known;
    return &watchers.emplace_front(upstream);
  }

  // Counts one more open scope. Another thread may set a default resource at any moment; that resource is
  // then watched. Throws std::bad_alloc, with nothing changed.
  void watch() {
    const std::scoped_lock lock{mutex};
    std::pmr::memory_resource* current = std::pmr::get_default_resource();
    while (find(current) == nullptr) {
      std::pmr::memory_resource* const before = std::pmr::set_default_resource(watcher_of(current));
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
    detail::missed_blocks const* const left = missed_.release();
    detail::report_violation(violation_kind::wrong_thread, left->name(),
                             "expect_resource '%s': the scope must end on the thread that began it",
                             left->name());
    return;
  }
  *link = missed_->outer;
  if (missed_->unseen_blocks() != 0 && std::uncaught_exceptions() <= missed_->exceptions_at_begin)
    missed_->report_violation();
}

std::uint64_t expect_resource::missed_blocks() const noexcept {
  missed_->mark_seen();
  return missed_->blocks();
}

std::uint64_t expect_resource::missed_bytes() const noexcept {
  missed_->mark_seen();
  return missed_->bytes();
}

std::string expect_resource::report() const {
  const allowance own_text;
  missed_->mark_seen();
  return missed_->report(watch_list::instance().is_watching());
}

expect_resource::allowance::allowance() noexcept { ++detail::allowances; }
expect_resource::allowance::~allowance() { --detail::allowances; }

}  // namespace tidemark
