// SPDX-License-Identifier: Apache-2.0
#include <tidemark/process/shared_memory_view.hpp>

#include <cerrno>
#include <cstddef>
#include <utility>

#include <tidemark/process/detail/file_calls.hpp>
#include <tidemark/process/shared_memory_error.hpp>

namespace tidemark {

using detail::lock_byte;

shared_memory_view::shared_memory_view(int file, std::uintptr_t address, std::string const& name) {
  const std::string who = name + ": ";
  file_descriptor own = detail::open_to_read(detail::descriptor_path{0, file}.text);
  if (own.get() < 0) detail::throw_file_error(who + "the file cannot be opened again");
  if (!detail::is_sealed(own.get())) {
    throw shared_memory_error{shared_memory_refusal::not_sealed,
                              who + "the file is not sealed, so that it could be truncated while it is read"};
  }
  if (!detail::try_lock(own.get(), lock_byte::views, false)) {
    if (errno != EAGAIN && errno != EACCES) detail::throw_file_error(who + "the file cannot be locked");
    throw shared_memory_error{shared_memory_refusal::busy,
                              who + "its writer frees the memory at this moment"};
  }
  const std::int64_t bytes = detail::file_size(own.get());
  if (bytes < 0) detail::throw_file_error(who + "the size of the file cannot be read");
  const byte_range wanted{address, static_cast<std::size_t>(bytes)};
  range_ = detail::map_file(own.get(), wanted.size, address, detail::page_access::read);
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
