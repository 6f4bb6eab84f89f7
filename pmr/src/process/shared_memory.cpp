// SPDX-License-Identifier: Apache-2.0
#include <tidemark/process/shared_memory.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <stdexcept>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/process/detail/file_calls.hpp>
#include <tidemark/process/shared_memory_view.hpp>

#include "../core/system_limits.hpp"

namespace tidemark {
namespace {

using detail::lock_byte;
using detail::page_access;

// Addresses that processes of a 48-bit system have free. They lie above the program and its heap, which are
// below 0x5656'0000'0000 unless the system moves them further. They lie below libraries and stacks, which
// grow down from the top. AddressSanitizer, ThreadSanitizer (since LLVM 18) and MemorySanitizer leave them to
// the program.
constexpr byte_range usually_free{0x5700'0000'0000u, 0x0300'0000'0000u};
constexpr std::size_t place_alignment = 2 * MiB;
constexpr int max_places_tried = 8;

std::string sentence(shared_memory_options const& options, char const* what) {
  return std::string{"shared_memory '"} + options.name + "': " + what;
}

}  // namespace

shared_memory::shared_memory(shared_memory_options options)
    : options_{std::move(options)}, granularity_{system_memory().page_size()} {
  if (options_.name == nullptr) options_.name = "shared memory";
}

byte_range shared_memory::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  const std::size_t bytes = std::max(least_bytes, wanted_bytes);
  if (file_.get() >= 0 || bytes >= std::numeric_limits<std::size_t>::max() / 2) return {};
  const std::size_t least = detail::align_up(std::max<std::size_t>(least_bytes, 1), granularity_);
  // The kernel would kill the process for a larger file.
  const std::size_t wanted = std::min(bytes, detail::align_down(detail::max_file_bytes(), granularity_));

  file_descriptor file = detail::create_memory_file(options_.name);
  if (file.get() < 0) detail::throw_file_error(sentence(options_, "a file in memory cannot be created"));
  if (!detail::try_lock(file.get(), lock_byte::writer, true)) {
    detail::throw_file_error(sentence(options_, "its file cannot be locked"));
  }
  detail::refused_call refused;
  const byte_range range = detail::reserve_by_halves(
      least, wanted,
      [&](std::size_t tried) {
        const std::size_t size = detail::align_up(tried, granularity_);
        const byte_range made = detail::resize_file(file.get(), size) ? map(file.get(), size) : byte_range{};
        if (made.empty()) refused = {errno, size, false};
        if (made.empty() && errno != ENOMEM && errno != EAGAIN && errno != EFBIG) throw_refused(refused);
        return made;
      },
      [&] { return detail::fair_share_bytes(refused); });
  if (range.empty()) throw_refused(refused);
  // After the mapping, because a later mapping could not be written through.
  if (!detail::seal_file(file.get())) {
    const int error = errno;
    detail::unmap(range);
    errno = error;
    detail::throw_file_error(sentence(options_, "its file cannot be sealed"));
  }
  file_ = std::move(file);
  return range_ = range;
}

void shared_memory::throw_refused(detail::refused_call const& refused) const {
  std::string text =
      sentence(options_, "its file cannot be mapped, with ") + std::to_string(refused.bytes) + " bytes";
  char const* const limit = detail::limit_behind(refused);
  if (*limit != '\0') text += std::string{"; "} + limit;
  errno = refused.error;
  detail::throw_file_error(text);
}

// Returns an empty range, with errno set, if the system refuses.
byte_range shared_memory::map(int file, std::size_t bytes) const {
  const auto map_at = [&](std::uintptr_t address) {
    return detail::map_file(file, bytes, address, page_access::none);
  };
  if (options_.address != 0) {
    const byte_range range = map_at(options_.address);
    if (!range.empty() || errno != EEXIST) return range;
    detail::throw_addresses_taken(sentence(options_, ""), {options_.address, bytes});
  }
  for (int i = 0; i < max_places_tried && bytes < usually_free.size; ++i) {
    std::uint64_t random = 0;
    if (!system_memory().entropy(&random, sizeof random)) break;
    const std::size_t places = (usually_free.size - bytes) / place_alignment + 1;
    const byte_range range = map_at(usually_free.begin + random % places * place_alignment);
    if (!range.empty()) return range;
  }
  return map_at(0);
}

std::size_t shared_memory::commit(byte_range part, std::size_t least_bytes) noexcept {
  return detail::commit_at_least(part, least_bytes, [this](byte_range taken) {
    if (!detail::protect(taken, page_access::read_write)) return false;
    if (detail::allocate_file(file_.get(), taken.begin - range_.begin, taken.size)) return true;
    (void)detail::protect(taken, page_access::none);  // harmless if it fails: the pages stay unused
    return false;
  });
}

void shared_memory::release(byte_range range) noexcept {
  if (!options_.path.empty()) {
    detail::remove_link(options_.path.c_str(), detail::descriptor_path{::getpid(), file_.get()}.text);
  }
  detail::unmap(range);
  file_ = {};
}

file_descriptor shared_memory::export_file() const {
  file_descriptor exported = detail::open_to_read(detail::descriptor_path{0, file_.get()}.text);
  if (exported.get() < 0) detail::throw_file_error(sentence(options_, "its file cannot be opened again"));
  return exported;
}

void shared_memory::link() const {
  if (options_.path.empty()) throw std::logic_error{sentence(options_, "link without a path in its options")};
  const detail::descriptor_path target{::getpid(), file_.get()};
  if (!detail::replace_link(options_.path.c_str(), target.text)) {
    detail::throw_file_error(sentence(options_, "it cannot be given the name ") + "'" + options_.path + "'");
  }
}

bool shared_memory::try_exclude_views() const noexcept {
  return detail::try_lock(file_.get(), lock_byte::views, true);
}

void shared_memory::admit_views() const noexcept { detail::unlock(file_.get(), lock_byte::views); }

// ---- the view in another process

shared_memory_view::shared_memory_view(int file, std::uintptr_t address, std::string const& name) {
  const std::string who = name + ": ";
  file_descriptor own = detail::open_to_read(detail::descriptor_path{0, file}.text);
  if (own.get() < 0) detail::throw_file_error(who + "the file cannot be opened again");
  if (!detail::is_sealed(own.get())) {
    throw shared_memory_error{shared_memory_refusal::not_sealed,
                              who + "the file is not sealed and could be truncated while it is read"};
  }
  if (!detail::try_lock(own.get(), lock_byte::views, false)) {
    if (errno != EAGAIN && errno != EACCES) detail::throw_file_error(who + "the file cannot be locked");
    throw shared_memory_error{shared_memory_refusal::busy,
                              who + "its writer frees the memory at this moment"};
  }
  const std::int64_t bytes = detail::file_size(own.get());
  if (bytes < 0) detail::throw_file_error(who + "the size of the file cannot be read");
  const byte_range wanted{address, static_cast<std::size_t>(bytes)};
  range_ = detail::map_file(own.get(), wanted.size, address, page_access::read);
  if (range_.empty()) {
    if (errno == EEXIST) detail::throw_addresses_taken(who, wanted);
    detail::throw_file_error(who + "the file cannot be mapped");
  }
  file_ = std::move(own);
}

shared_memory_view::shared_memory_view(shared_memory_view&& other) noexcept
    : file_{std::move(other.file_)}, range_{std::exchange(other.range_, {})} {}

shared_memory_view& shared_memory_view::operator=(shared_memory_view&& other) noexcept {
  shared_memory_view moved{std::move(other)};
  std::swap(file_, moved.file_);
  std::swap(range_, moved.range_);
  return *this;
}

shared_memory_view::~shared_memory_view() {
  if (!range_.empty()) detail::unmap(range_);
}

bool shared_memory_view::writer_is_alive() const noexcept {
  return detail::is_locked(file_.get(), lock_byte::writer);
}

file_descriptor open_shared_memory(std::string const& path) {
  file_descriptor file = detail::open_to_read(path.c_str());
  if (file.get() < 0) detail::throw_file_error("open_shared_memory: '" + path + "' cannot be opened");
  return file;
}

}  // namespace tidemark
