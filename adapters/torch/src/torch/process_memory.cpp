// SPDX-License-Identifier: Apache-2.0
#include "process_memory.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <tidemark/core/violation.hpp>

namespace tidemark::torch {
namespace {

std::mutex instance_mutex;
process_memory* the_instance = nullptr;

// Prints violations: users of PyTorch neither install tidemark's handlers nor expect the process to end.
void report_misuse() {
  const violation_handler before = set_violation_handler(nullptr);
  const bool is_default = before == get_violation_handler();
  set_violation_handler(
      is_default ? [](violation const& found) { std::fprintf(stderr, "tidemark_torch: %s\n", found.message); }
                 : before);
  if (get_warning_handler() == nullptr)
    set_warning_handler(
        [](warning const& found) { std::fprintf(stderr, "tidemark_torch: %s\n", found.message); });
}

void close_trace_at_exit() {
  const std::scoped_lock lock{instance_mutex};
  if (the_instance == nullptr) return;
  try {
    the_instance->close_trace();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "tidemark_torch: %s\n", error.what());
  }
}

}  // namespace

process_memory& process_memory::instance() {
  const std::scoped_lock lock{instance_mutex};
  if (the_instance == nullptr) {
    report_misuse();
    the_instance = new process_memory{gpu::default_driver()};
  }
  return *the_instance;
}

void process_memory::restart() {
  const std::scoped_lock lock{instance_mutex};
  delete the_instance;
  the_instance = nullptr;
}

void process_memory::choose(settings const& chosen) {
  const std::scoped_lock lock{mutex_};
  if (!devices_.empty())
    throw std::logic_error{"PyTorch has memory of tidemark already; choose before the first tensor"};
  chosen_ = chosen;
}

settings process_memory::chosen() const {
  const std::scoped_lock lock{mutex_};
  return chosen_ ? *chosen_ : settings_from_environment();
}

device_memory& process_memory::of(gpu::device_number device) {
  const std::scoped_lock lock{mutex_};
  if (const auto found = devices_.find(device); found != devices_.end()) return *found->second;
  if (!chosen_) chosen_ = settings_from_environment();
  if (!chosen_->trace.empty() && !log_) {
    log_.emplace(trace_log_options{.csv = chosen_->trace});
    std::atexit(close_trace_at_exit);
  }
  auto made = std::make_unique<device_memory>(device, *chosen_, log_ ? &*log_ : nullptr, *driver_);
  if (step_) made->begin_step(*step_);
  return *devices_.emplace(device, std::move(made)).first->second;
}

void process_memory::begin_step(std::int64_t kind) {
  const std::scoped_lock lock{mutex_};
  step_ = kind;
  for (auto const& [device, memory] : devices_) memory->begin_step(kind);
}

void process_memory::end_step() noexcept {
  const std::scoped_lock lock{mutex_};
  step_.reset();
  for (auto const& [device, memory] : devices_) memory->end_step();
}

device_memory* process_memory::find(gpu::device_number device) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = devices_.find(device);
  return found == devices_.end() ? nullptr : found->second.get();
}

void process_memory::close_trace() {
  const std::scoped_lock lock{mutex_};
  if (log_) log_->close();
}

}  // namespace tidemark::torch
