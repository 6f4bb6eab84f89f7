// SPDX-License-Identifier: Apache-2.0
#include "functions.hpp"

#include <cstddef>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/thread_specific.hpp>

#include "process_memory.hpp"

namespace {

using tidemark::torch::device_memory;
using tidemark::torch::process_memory;
using tidemark::torch::settings;

// The string that the thread returned to Python last. A thread_local string would keep the object loaded.
std::string& said() { return tidemark::detail::thread_specific<std::string>::get(); }

// Runs a call that must not throw, and prints its exception.
template <class Call>
void or_print(char const* what, Call call) noexcept {
  try {
    call();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "tidemark_torch: %s: %s\n", what, error.what());
  }
}

// Runs a call and returns its error sentence for Python.
template <class Call>
char const* message_or_null(Call call) noexcept {
  try {
    call();
    return nullptr;
  } catch (std::bad_alloc const&) {
    return "tidemark_torch: there is no memory on the host";
  } catch (std::exception const& error) {
    said() = std::string{"tidemark_torch: "} + error.what();
    return said().c_str();
  }
}

void print_unknown_block(char const* what, void const* block) noexcept {
  std::fprintf(stderr, "tidemark_torch: %s at %p is ignored: no live block of tidemark begins there\n", what,
               block);
}

}  // namespace

// PyTorch's programs search for "CUDA out of memory." in a RuntimeError.
void* tidemark_torch_alloc(std::size_t bytes, int device, CUstream_st* stream) {
  if (bytes == 0) return nullptr;
  try {
    return process_memory::instance().of(device).allocate(bytes, stream);
  } catch (std::bad_alloc const& error) {
    throw std::runtime_error{"CUDA out of memory. tidemark_torch, " + std::to_string(bytes) +
                             " bytes on device " + std::to_string(device) + ": " + error.what()};
  } catch (std::exception const& error) {
    throw std::runtime_error{std::string{"tidemark_torch: "} + error.what()};
  }
}

void tidemark_torch_free(void* block, std::size_t bytes, int device, CUstream_st*) noexcept {
  if (block == nullptr) return;
  or_print("free", [&] {
    device_memory* const memory = process_memory::instance().find(device);
    if (memory == nullptr) print_unknown_block("free", block);
    else memory->deallocate(block, bytes);
  });
}

void tidemark_torch_record_stream(void* block, CUstream_st* stream) {
  process_memory::instance().any([&](device_memory& memory) { return memory.record_stream(block, stream); });
}

void tidemark_torch_reset() noexcept {
  or_print("reset", [] {
    process_memory::instance().any([](device_memory& memory) {
      memory.collect();
      return false;
    });
  });
}

void tidemark_torch_memory_fraction(double fraction, int device) {
  process_memory::instance().of(device).set_memory_fraction(fraction);
}

void* tidemark_torch_base_alloc(void*, std::size_t*) {
  throw std::runtime_error{
      "tidemark_torch: a tensor cannot be sent to another process, because its memory is part of a larger "
      "range or of a pool of the driver's; send a copy on the host"};
}

void tidemark_torch_begin_pool(int device, std::pair<unsigned long long, unsigned long long> pool,
                               std::function<bool(CUstream_st*)> filter) {
  process_memory::instance().of(device).begin_pool(pool, std::move(filter));
}

void tidemark_torch_end_pool(int device, std::pair<unsigned long long, unsigned long long> pool) {
  process_memory::instance().of(device).end_pool(pool);
}

void tidemark_torch_release_pool(int device,
                                 std::pair<unsigned long long, unsigned long long> pool) noexcept {
  or_print("release_pool", [&] {
    device_memory* const memory = process_memory::instance().find(device);
    if (memory == nullptr || !memory->release_pool(pool))
      std::fprintf(stderr, "tidemark_torch: release of pool (%llu, %llu), which device %d does not have\n",
                   pool.first, pool.second, device);
  });
}

void* tidemark_torch_segment_alloc(std::size_t bytes, int device, CUstream_st*) {
  if (bytes == 0) return nullptr;
  try {
    return process_memory::instance().of(device).segments().allocate(bytes);
  } catch (std::bad_alloc const&) {
    return nullptr;
  } catch (std::exception const& error) {
    throw std::runtime_error{std::string{"tidemark_torch: "} + error.what()};
  }
}

void tidemark_torch_segment_free(void* segment, std::size_t, int device, CUstream_st*) noexcept {
  if (segment == nullptr) return;
  or_print("segment_free", [&] {
    device_memory* const memory = process_memory::instance().find(device);
    if (memory == nullptr || !memory->segments().deallocate(segment))
      print_unknown_block("segment_free", segment);
  });
}

char const* tidemark_torch_configure(char const* resource, long long max_cached_bytes, char const* trace,
                                     long long max_kinds) noexcept {
  return message_or_null([&] {
    process_memory& all = process_memory::instance();
    settings chosen = all.chosen();
    if (resource != nullptr) chosen.resource = tidemark::torch::resource_named(resource, "resource");
    if (max_cached_bytes >= 0) chosen.max_cached_bytes = static_cast<std::size_t>(max_cached_bytes);
    if (max_kinds >= 0) chosen.max_kinds = static_cast<std::size_t>(max_kinds);
    if (trace != nullptr) chosen.trace = trace;
    all.choose(chosen);
  });
}

char const* tidemark_torch_begin_step(long long kind) noexcept {
  return message_or_null([=] { process_memory::instance().begin_step(kind); });
}

char const* tidemark_torch_end_step() noexcept {
  return message_or_null([] { process_memory::instance().end_step(); });
}

char const* tidemark_torch_close_trace() noexcept {
  return message_or_null([] { process_memory::instance().close_trace(); });
}

char const* tidemark_torch_stats(int device) noexcept {
  try {
    device_memory* const memory = process_memory::instance().find(device);
    said() = memory == nullptr ? "{}" : memory->statistics();
    return said().c_str();
  } catch (std::exception const&) {
    return "{}";
  }
}
