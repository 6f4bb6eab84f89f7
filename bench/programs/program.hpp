// SPDX-License-Identifier: Apache-2.0
// The interface of a whole program with exchangeable memory.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tidemark::bench {

/// The source of the blocks of a thread's steps.
class step_memory {
 public:
  step_memory() = default;
  step_memory(step_memory const&) = delete;
  step_memory& operator=(step_memory const&) = delete;
  virtual ~step_memory() = default;

  [[nodiscard]] virtual std::pmr::memory_resource* resource() = 0;
  virtual void begin_step() {}
  virtual void end_step() {}
  /// True if the resource is malloc, so that code with hooks for malloc does not need them.
  [[nodiscard]] virtual bool is_malloc() const { return false; }
  /// True if `end_step` frees all blocks of the step, so that they need not be deallocated.
  [[nodiscard]] virtual bool end_frees_all() const { return false; }
};

/// Marks a time in which the calling thread allocates, for samples of the share of allocation.
class allocating {
 public:
  allocating() { is_now = 1; }
  allocating(allocating const&) = delete;
  allocating& operator=(allocating const&) = delete;
  ~allocating() { is_now = 0; }

  static inline thread_local volatile std::sig_atomic_t is_now = 0;
};

/// A step of a program, and the object that it builds. At the end the object is destroyed, unless the memory
/// frees all blocks at once.
template <class Root>
class step {
 public:
  template <class... Arguments>
  explicit step(step_memory& memory, Arguments&&... arguments) : memory_{memory} {
    memory_.begin_step();
    std::construct_at(&root_, std::forward<Arguments>(arguments)..., memory_.resource());
  }
  step(step const&) = delete;
  step& operator=(step const&) = delete;
  ~step() {
    if (!memory_.end_frees_all()) std::destroy_at(&root_);
    memory_.end_step();
  }
  [[nodiscard]] Root& operator*() { return root_; }
  [[nodiscard]] Root* operator->() { return &root_; }

 private:
  step_memory& memory_;
  union {
    Root root_;  // never destroyed if the memory frees all blocks
  };
};

/// One thread of a running program, with its input.
class worker {
 public:
  worker() = default;
  worker(worker const&) = delete;
  worker& operator=(worker const&) = delete;
  virtual ~worker() = default;

  /// @return a checksum of the step's results, equal on every memory
  virtual std::uint64_t step(unsigned number) = 0;
};

/// The size of a program: large for measurements, or small for tests.
enum class extent { full, small };

struct program {
  std::string_view name;
  std::string_view work;   ///< description of a step
  std::string_view ours;   ///< the best of tidemark's resources for it, by name
  std::string_view other;  ///< a less suitable resource of tidemark for comparison; may be empty
  unsigned threads;
  unsigned warm_up;  ///< steps before the measured steps
  unsigned steps;    ///< measured steps of each thread
  std::unique_ptr<worker> (*start)(step_memory& memory, unsigned thread, extent size);
};

[[nodiscard]] std::vector<program> const& programs();

/// Mixes a number into a checksum that depends on the order.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t sum, std::uint64_t number) {
  return (sum ^ number) * 0x9e3779b97f4a7c15 + (sum >> 29);
}

// Each is in its own file.
std::unique_ptr<worker> start_json(step_memory&, unsigned thread, extent);
std::unique_ptr<worker> start_rational(step_memory&, unsigned thread, extent);
std::unique_ptr<worker> start_kd_tree(step_memory&, unsigned thread, extent);
std::unique_ptr<worker> start_gradients(step_memory&, unsigned thread, extent);
std::unique_ptr<worker> start_tape(step_memory&, unsigned thread, extent);
std::unique_ptr<worker> start_join(step_memory&, unsigned thread, extent);
std::unique_ptr<worker> start_syntax(step_memory&, unsigned thread, extent);
std::unique_ptr<worker> start_cache(step_memory&, unsigned thread, extent);

}  // namespace tidemark::bench
