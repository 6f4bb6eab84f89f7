// SPDX-License-Identifier: Apache-2.0
#include "data_handler.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

namespace tidemark::numpy {
namespace {

constexpr char capsule_name[] = "mem_handler";  // name that NumPy uses
constexpr char handler_name[] = "tidemark_numpy";

/// A resource of unprepared blocks, for the traced requests.
class unprepared_blocks final : public detail::distinct_resource {
 public:
  explicit unprepared_blocks(array_memory& memory) noexcept : memory_{memory} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override { return memory_.allocate_unprepared(bytes); }
  void do_deallocate(void* block, std::size_t, std::size_t) override { memory_.deallocate(block); }

  array_memory& memory_;
};

}  // namespace

struct data_handler::trace {
  trace(trace_log_options options, array_memory& memory)
      : log{std::move(options)}, blocks{memory}, resource{&blocks, log, handler_name} {}

  trace_log log;
  unprepared_blocks blocks;
  trace_resource resource;
};

// ---- the capsule ------------------------------------------------------------------------------------------

data_handler::data_handler(array_memory_options options) : functions_{}, memory_{options} {
  static_assert(sizeof handler_name <= sizeof functions_.name);
  std::memcpy(functions_.name, handler_name, sizeof handler_name);
  functions_.version = 1;
  functions_.allocator = {this, &allocate, &allocate_zeroed, &reallocate, &deallocate};
}

PyObject* data_handler::make_capsule(array_memory_options options) {
  std::unique_ptr<data_handler> made{new data_handler{options}};
  PyObject* const capsule =
      PyCapsule_New(&made->functions_, capsule_name, [](PyObject* self) noexcept { delete of(self); });
  if (capsule != nullptr) (void)made.release();
  return capsule;
}

data_handler* data_handler::of(PyObject* capsule) noexcept {
  if (!PyCapsule_IsValid(capsule, capsule_name)) return nullptr;
  auto const* const functions = static_cast<PyDataMem_Handler*>(PyCapsule_GetPointer(capsule, capsule_name));
  const bool is_ours = functions->allocator.free == &deallocate;
  return is_ours ? &from(functions->allocator.ctx) : nullptr;
}

// ---- functions that NumPy calls; null means no memory -----------------------------------------------------

void* data_handler::allocate(void* context, std::size_t bytes) noexcept try {
  data_handler& self = from(context);
  if (self.is_traced()) [[unlikely]]
    return self.allocate_traced(bytes, false);
  return self.memory_.allocate(bytes);
} catch (std::bad_alloc const&) {
  return nullptr;
}

void* data_handler::allocate_zeroed(void* context, std::size_t count, std::size_t bytes) noexcept try {
  data_handler& self = from(context);
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
  if (self.is_traced()) [[unlikely]]
    return self.allocate_traced(all, true);
  return self.memory_.allocate_zeroed(all);
} catch (std::bad_alloc const&) {
  return nullptr;
}

void* data_handler::reallocate(void* context, void* block, std::size_t bytes) noexcept try {
  data_handler& self = from(context);
  if (block == nullptr) return allocate(context, bytes);
  if (!self.is_traced()) return self.memory_.reallocate(block, bytes);
  // Never in place, because the trace needs the new size.
  void* const moved = self.allocate_traced(bytes, false);
  std::memcpy(moved, block, std::min(bytes, array_memory::bytes_of(block)));
  self.deallocate_traced(block);
  return moved;
} catch (std::bad_alloc const&) {
  return nullptr;
}

void data_handler::deallocate(void* context, void* block, std::size_t) noexcept {
  data_handler& self = from(context);
  if (self.is_traced()) [[unlikely]]
    return self.deallocate_traced(block);
  self.memory_.deallocate(block);
}

// ---- traces -----------------------------------------------------------------------------------------------

std::shared_ptr<data_handler::trace> data_handler::current_trace() noexcept {
  const std::scoped_lock lock{trace_mutex_};
  return trace_;
}

void* data_handler::allocate_traced(std::size_t bytes, bool zeroed) {
  const auto trace = current_trace();
  return memory_.prepare(
      trace != nullptr ? trace->resource.allocate(bytes) : memory_.allocate_unprepared(bytes), zeroed);
}

void data_handler::deallocate_traced(void* block) noexcept {
  const auto trace = current_trace();
  if (trace == nullptr || block == nullptr) return memory_.deallocate(block);
  trace->resource.deallocate(block, array_memory::bytes_of(block));
}

bool data_handler::open_trace(trace_log_options options) {
  if (is_traced()) return false;
  auto opened = std::make_shared<trace>(std::move(options), memory_);
  const std::scoped_lock lock{trace_mutex_};
  if (trace_ != nullptr) return false;
  trace_ = std::move(opened);
  is_traced_ = true;
  return true;
}

void data_handler::close_trace() {
  std::shared_ptr<trace> closed;
  {
    const std::scoped_lock lock{trace_mutex_};
    closed = std::move(trace_);
    is_traced_ = false;
  }
  if (closed != nullptr) closed->log.close();
}

}  // namespace tidemark::numpy
