// SPDX-License-Identifier: Apache-2.0
#include "missed_blocks.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/new_watch.hpp>

// Not by <cxxabi.h>: among other libraries' headers a program may have the one of another C++ library.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming): the ABI's name
extern "C" char* __cxa_demangle(char const* name, char* buffer, std::size_t* bytes, int* status);

namespace tidemark {
namespace detail {

constinit thread_local missed_blocks* innermost_scope = nullptr;

namespace {

constinit thread_local std::size_t allowances = 0;          // that live on this thread
constinit thread_local bool operator_new_was_seen = false;  // while there was one

// The vtable of std::pmr::memory_resource, in the Itanium ABI: two destructors, then do_allocate.
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

missed_blocks::missed_blocks(std::pmr::memory_resource const* expected, char const* name) noexcept
    : expected_{expected}, expected_allocate_{allocate_function_of(expected)}, name_{name} {}

void missed_blocks::on_allocate(std::size_t bytes, std::pmr::memory_resource const* from,
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

code_owner missed_blocks::owner_at(std::uintptr_t address) noexcept {
  known_code& entry = known_[(address ^ address >> 10) % known_.size()];
  if (entry.address != address) entry = {address, owner_of(address)};
  return entry.owner;
}

bool missed_blocks::is_of_a_resource(call_stack const& stack) noexcept {
  const auto is_expected = [this](stack_frame const& frame) { return frame.function == expected_allocate_; };
  if (std::ranges::any_of(stack.frames(), is_expected)) return true;
  for (stack_frame const& frame : stack.frames()) {
    const code_owner owner = owner_at(frame.call);
    if (owner != code_owner::standard) return owner == code_owner::resource;
  }
  return false;
}

void missed_blocks::fill_calls(place& to, call_stack const& stack) noexcept {
  std::size_t n = 0;
  for (stack_frame const& frame : stack.frames()) {
    const code_owner owner = owner_at(frame.call);
    const bool is_programs = owner == code_owner::program || owner == code_owner::main;
    if (is_programs) to.calls[n++] = frame.call;
    if (owner == code_owner::main || n == to.calls.size()) return;
  }
}

missed_blocks::counts& missed_blocks::counts_of(place const& sought) noexcept {
  for (place& known : std::span{places_}.first(place_count_)) {
    if (known.calls == sought.calls && known.is_of_new == sought.is_of_new && known.label == sought.label &&
        known.site.file_name() == sought.site.file_name() && known.site.line() == sought.site.line())
      return known.missed;
  }
  if (place_count_ == places_.size()) return further_;
  return (places_[place_count_++] = sought).missed;
}

std::string missed_blocks::report(bool default_resource_is_watched) const {
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

void missed_blocks::report_violation() const noexcept {
  place const& most = *std::ranges::max_element(std::span{places_}.first(place_count_), {},
                                                [](place const& of) { return of.missed.bytes; });
  std::string where;
  try {
    where = most.calls[0] != 0 ? code_text(find_code(most.calls[0])) : "a place that is not known";
  } catch (std::bad_alloc const&) {
    where.clear();  // there is no memory to say where
  }
  detail::report_violation(violation_kind::missed_resource, name_,
                           "expect_resource '%s': %llu block%s of %llu bytes came from elsewhere, %llu of "
                           "these bytes from %s in %s",
                           name_, static_cast<unsigned long long>(blocks_), blocks_ == 1 ? "" : "s",
                           static_cast<unsigned long long>(bytes_),
                           static_cast<unsigned long long>(most.missed.bytes),
                           most.is_of_new ? "operator new" : "the default resource", where.c_str());
}

void count_missed(std::size_t bytes, std::pmr::memory_resource const* from,
                  void const* return_address) noexcept {
  if (allowances != 0) return;
  const expect_resource::allowance recording;  // may allocate records of modules
  const call_stack stack{return_address};
  for (missed_blocks* scope = innermost_scope; scope != nullptr; scope = scope->outer)
    scope->on_allocate(bytes, from, stack);
}

void on_operator_new(std::size_t bytes, void const* caller) noexcept {
  operator_new_was_seen = true;
  count_missed(bytes, nullptr, caller);
}

bool is_operator_new_watched() noexcept {
  const expect_resource::allowance here;
  operator_new_was_seen = false;
  // Through a pointer, because a compiler may leave out a call whose result is not used.
  void* (*volatile const allocate)(std::size_t, std::nothrow_t const&) = &::operator new;
  ::operator delete(allocate(1, std::nothrow));
  return operator_new_was_seen;
}

}  // namespace detail

expect_resource::allowance::allowance() noexcept { ++detail::allowances; }
expect_resource::allowance::~allowance() { --detail::allowances; }

}  // namespace tidemark
