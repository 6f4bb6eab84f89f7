// SPDX-License-Identifier: Apache-2.0
// Strategy: the recorded training steps and a random program on a `device_pool` and on allocators that are
// simulated by their documented rules. The test compares the held bytes at the peak, divided by the most live
// bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

#include "modelled_device.hpp"
#include "recorded_trace.hpp"
#include "simulated_allocators.hpp"

namespace tidemark {
namespace {

/// Ours in the form of the others. The host runs one step of 25 ms ahead of the device.
class pool_of_ours final : public test::simulated_allocator {
 public:
  ~pool_of_ours() override {
    const pool_stats stats = pool_.stats();
    EXPECT_LE(pool_.moved_units(),
              std::max(std::uint64_t{1000}, (stats.allocations + stats.deallocations) / 100));
    pool_.release();
  }

  std::uintptr_t allocate(std::size_t bytes) override {
    device_.run_ahead_by(25'000);
    device_.work(1, 1);
    const auto block = reinterpret_cast<std::uintptr_t>(pool_.allocate(bytes));
    sizes_[block] = bytes;
    held_bytes_ = device_.peak_held_bytes();
    return block;
  }
  void deallocate(std::uintptr_t block) override {
    const auto found = sizes_.find(block);
    pool_.deallocate(reinterpret_cast<void*>(block), found->second);
    sizes_.erase(found);
  }

 private:
  test::modelled_device device_{200 * GiB};
  device_pool pool_{device_pool_options{}, device_};
  std::map<std::uintptr_t, std::size_t> sizes_;
};

struct contender {
  char const* name;
  std::unique_ptr<test::simulated_allocator> (*make)();
};

template <class Allocator, bool... Argument>
std::unique_ptr<test::simulated_allocator> make() {
  return std::make_unique<Allocator>(Argument...);
}

constexpr contender ours{"device_pool", make<pool_of_ours>},
    native{"PyTorch", make<test::simulated_pytorch, false>},
    expandable{"PyTorch, expandable segments", make<test::simulated_pytorch, true>},
    best_fit{"best fit", make<test::simulated_range, false>}, tlsf{"TLSF", make<test::simulated_range, true>},
    size_classes{"size classes", make<test::simulated_classes>};

/// Blocks by number, and the most live bytes, each rounded up to 512.
class program {
 public:
  explicit program(contender const& on) : memory_{on.make()} {}

  void allocate(std::size_t number, std::size_t bytes) {
    if (number >= blocks_.size()) blocks_.resize(number + 1);
    blocks_[number] = {memory_->allocate(bytes), bytes};
    live_ += (bytes + 511) / 512 * 512;
    most_live_ = std::max(most_live_, live_);
  }
  /// If the block is live.
  void deallocate(std::size_t number) {
    if (number >= blocks_.size() || blocks_[number].first == 0) return;
    auto const [block, bytes] = std::exchange(blocks_[number], {0, 0});
    memory_->deallocate(block);
    live_ -= (bytes + 511) / 512 * 512;
  }
  [[nodiscard]] std::size_t live_bytes() const { return live_; }
  [[nodiscard]] double held() const {
    return static_cast<double>(memory_->held_bytes()) / static_cast<double>(most_live_);
  }

 private:
  std::unique_ptr<test::simulated_allocator> memory_;
  std::vector<std::pair<std::uintptr_t, std::size_t>> blocks_;
  std::size_t live_ = 0, most_live_ = 0;
};

/// 60 steps of a recorded program, whose sizes are multiplied by a scale. Sizes that no weight has are also
/// multiplied by the step's share of tokens.
double held_by_steps(contender const& on, std::string const& name, std::size_t scale, auto next_step,
                     std::function<double()> const& next_share = {}) {
  static std::map<std::string, std::pair<tools::recorded_trace, std::vector<tools::trace_step>>> known;
  auto& [trace, steps] = known[name];
  if (steps.empty()) {
    trace = tools::read_trace(std::string{TIDEMARK_TRACES} + "/torch_" + name + ".csv");
    steps = tools::steps_in_order(trace);
  }
  program run{on};
  std::set<std::size_t> weights;
  for (std::size_t i = 0; i < steps.front().first_event; ++i) weights.insert(trace.events[i].bytes);
  const auto play = [&](std::size_t first, std::size_t end) {
    const double share = next_share ? next_share() : 1;
    for (std::size_t i = first; i < end; ++i) {
      tools::trace_event const& event = trace.events[i];
      const double bytes = static_cast<double>(event.bytes * scale);
      run.deallocate(event.block);
      if (event.allocates)
        run.allocate(event.block,
                     static_cast<std::size_t>(weights.contains(event.bytes) ? bytes : bytes * share));
    }
  };
  play(0, steps.front().last_event + 1);  // the first step makes the state of the optimizer
  for (int i = 0; i < 60; ++i) {
    tools::trace_step const& step = steps[next_step(steps.size())];
    play(step.first_event, step.last_event + 1);
  }
  return run.held();
}

double held_by_length(contender const& on, std::size_t step) {
  return held_by_steps(on, "gpt", 170, [&](std::size_t) { return step; });
}

double held_by_random_lengths(contender const& on) {
  std::mt19937 random{5};
  return held_by_steps(on, "gpt", 170, [&](std::size_t steps) { return 1 + random() % (steps - 1); });
}

/// Batches of about 4,096 tokens and 16 lengths up to 1,024, as in the program that was measured on hardware.
double held_by_batches(contender const& on, std::uint32_t seed) {
  std::mt19937 random{seed};
  return held_by_steps(
      on, "gpt", 70, [](std::size_t) { return std::size_t{1}; },
      [&] {
        const std::uint32_t length = 64 * (1 + random() % 16);
        return length * (4096 / length + random() % 3) / 4096.0;
      });
}

double held_by_perceptron(contender const& on) {
  return held_by_steps(on, "mlp", 7200, [](std::size_t) { return std::size_t{1}; });
}

/// Blocks of 1 B to 1 GiB, some 40 GiB of them live.
double held_by_random_requests(contender const& on) {
  std::mt19937_64 random{1};
  program run{on};
  std::vector<std::size_t> live;
  std::size_t next = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    if (live.empty() || random() % 100 < (run.live_bytes() < 40 * GiB ? 52u : 48u)) {
      const std::size_t bytes = std::size_t{1} << random() % 30;
      run.allocate(live.emplace_back(next++), bytes + random() % bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      run.deallocate(live.back());
      live.pop_back();
    }
  }
  return run.held();
}

// On an H100 with another, larger transformer, PyTorch held 1.14 with a fixed length, and 1.007 with
// expandable segments. For random lengths it held 1.8 to 2.0, and 1.014.
TEST(device_memory_peers, pytorch_simulations_hold_about_as_much_memory_as_hardware) {
  for (std::size_t step = 1; step <= 4; ++step) {
    SCOPED_TRACE(step);
    EXPECT_GE(held_by_length(native, step), 1.05);
    EXPECT_LE(held_by_length(native, step), 1.2);
    EXPECT_LE(held_by_length(expandable, step), 1.04);
  }
  for (std::uint32_t seed = 5; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const double held = held_by_batches(native, seed);
    EXPECT_TRUE(held >= 1.4 && held <= 2.0) << held;
    EXPECT_LE(held_by_batches(expandable, seed), 1.035);
  }
}

TEST(device_memory_peers, device_pool_holds_the_least_memory_for_training_steps) {
  struct result {
    double by_length = 0, by_random_lengths = 0, by_perceptron = 0;
  };
  const auto play = [](contender const& on) {
    result held{.by_random_lengths = held_by_random_lengths(on), .by_perceptron = held_by_perceptron(on)};
    for (std::size_t step = 1; step <= 4; ++step)
      held.by_length = std::max(held.by_length, held_by_length(on, step));
    return held;
  };
  const result own = play(ours);
  for (contender const& peer : {native, expandable, best_fit, tlsf, size_classes}) {
    const result its = play(peer);
    EXPECT_LE(own.by_length, its.by_length) << peer.name;
    EXPECT_LE(own.by_random_lengths, its.by_random_lengths) << peer.name;
    EXPECT_LE(own.by_perceptron, its.by_perceptron) << peer.name;
  }
}

// PyTorch's native allocator and size classes hold 1.2 and 2.3 times the most live bytes.
TEST(device_memory_peers, a_device_pool_holds_the_least_memory_for_a_million_random_requests) {
  const double held = held_by_random_requests(ours);
  for (contender const& peer : {expandable, best_fit, tlsf})
    EXPECT_LE(held, held_by_random_requests(peer)) << peer.name;
}

}  // namespace
}  // namespace tidemark
