// SPDX-License-Identifier: Apache-2.0
#include "step_kinds.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <random>
#include <stdexcept>
#include <utility>

namespace tidemark::tools {
namespace {

/// Writes a trace event by event.
class trace_writer {
 public:
  std::size_t allocate(std::size_t bytes) {
    made_.trace.events.push_back(
        {.allocates = true, .thread = 0, .block = made_.trace.blocks, .bytes = bytes});
    bytes_.push_back(bytes);
    is_live_.push_back(true);
    live_bytes_ += bytes;
    made_.trace.peak_live_bytes = std::max(made_.trace.peak_live_bytes, live_bytes_);
    return made_.trace.blocks++;
  }
  void free(std::size_t block) {
    made_.trace.events.push_back({.allocates = false, .thread = 0, .block = block, .bytes = bytes_[block]});
    is_live_[block] = false;
    live_bytes_ -= bytes_[block];
  }
  void free_newest_first(std::vector<std::size_t>& blocks) {
    for (; !blocks.empty(); blocks.pop_back()) free(blocks.back());
  }
  void begin_step() { first_event_ = made_.trace.events.size(); }
  void end_step() {
    made_.steps.push_back({.first_event = first_event_, .last_event = made_.trace.events.size() - 1});
  }
  stepped_trace finish() {
    for (std::size_t block = 0; block < made_.trace.blocks; ++block) {
      made_.trace.ids.push_back(block);
      if (is_live_[block])
        made_.trace.left.push_back({.allocates = false, .thread = 0, .block = block, .bytes = bytes_[block]});
    }
    made_.trace.threads = 1;
    return std::move(made_);
  }

 private:
  stepped_trace made_;
  std::vector<std::size_t> bytes_;  // by block
  std::vector<char> is_live_;
  std::size_t live_bytes_ = 0, first_event_ = 0;
};

// ---- networks ---------------------------------------------------------------------------------------------

constexpr std::size_t batch = 32, layers = 12;

constexpr std::size_t width(std::size_t layer) { return std::size_t{64} << (layer % 4); }

/// A layered network that trains, evaluates and generates text.
class network {
 public:
  explicit network(trace_writer& trace) : trace_{trace} {}

  /// Activations live until the backward pass needs them. The loss lives until the next step has a loss.
  void train() {
    std::vector<std::size_t> activations{trace_.allocate(batch * width(0) * 4)};
    for (std::size_t layer = 0; layer < layers; ++layer) activations.push_back(run(layer));
    const std::size_t loss = trace_.allocate(batch * 4);
    for (std::size_t block : std::exchange(losses_, {loss})) trace_.free(block);
    std::size_t gradient = trace_.allocate(batch * width(layers) * 4);
    for (std::size_t layer = layers; layer-- > 0;) {
      const std::size_t of_weights = trace_.allocate(width(layer) * width(layer + 1) * 4);
      const std::size_t below = trace_.allocate(batch * width(layer) * 4);
      trace_.free(std::exchange(gradient, below));
      trace_.free(activations.back());
      activations.pop_back();
      trace_.free(of_weights);
    }
    trace_.free(gradient);
    trace_.free_newest_first(activations);
  }
  /// Only the result of each layer is kept, for the next layer.
  void evaluate(std::size_t batches = 2) {
    for (std::size_t i = 0; i < batches; ++i) {
      std::size_t activation = trace_.allocate(batch * width(0) * 4);
      for (std::size_t layer = 0; layer < layers; ++layer) trace_.free(std::exchange(activation, run(layer)));
      const std::size_t score = trace_.allocate(4);
      trace_.free(activation);
      trace_.free(score);
    }
  }
  /// Keys and values of each token live until the end.
  void generate(std::size_t tokens = 8) {
    const std::size_t input = trace_.allocate(batch * width(0) * 4);
    std::vector<std::size_t> cache;
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::size_t layer = 0; layer < 3; ++layer) {
        cache.push_back(trace_.allocate(width(layer) * 8));
        const std::size_t scores = trace_.allocate((token + 1) * 64);
        trace_.free(scores);
      }
      const std::size_t logits = trace_.allocate(5000);
      trace_.free(logits);
    }
    trace_.free_newest_first(cache);
    trace_.free(input);
  }

 private:
  std::size_t run(std::size_t layer) {
    const std::size_t temporary = trace_.allocate(batch * width(layer + 1) * 4);
    const std::size_t result = trace_.allocate(batch * width(layer + 1) * 4);
    trace_.free(temporary);
    return result;
  }

  trace_writer& trace_;
  std::vector<std::size_t> losses_;  // of the previous step
};

/// A recurrent network. Its states live until the backward pass.
void train_recurrent(trace_writer& trace, std::size_t length) {
  std::vector<std::size_t> states{trace.allocate(2048)};
  for (std::size_t t = 0; t < length; ++t) {
    const std::size_t gates = trace.allocate(8192);
    states.push_back(trace.allocate(2048));
    trace.free(gates);
  }
  std::size_t gradient = trace.allocate(2048 + 64);
  const std::size_t of_weights = trace.allocate(65'536);
  for (std::size_t t = 0; t < length; ++t) {
    const std::size_t gates = trace.allocate(8192 + 256);
    const std::size_t below = trace.allocate(2048 + 64);
    trace.free(gates);
    trace.free(std::exchange(gradient, below));
    trace.free(states.back());
    states.pop_back();
  }
  trace.free(of_weights);
  trace.free(gradient);
  trace.free_newest_first(states);
}

/// A U-Net. Results of a level on the way down are kept for the level of that size on the way up, and all
/// results for the backward pass. Sides halve from level to level, and channels double.
void train_unet(trace_writer& trace) {
  constexpr std::size_t levels = 5;
  const auto bytes = [](std::size_t level) { return (std::size_t{16} << 20) >> level; };
  std::vector<std::pair<std::size_t, std::size_t>> kept;  // blocks and their bytes
  const auto run_layer = [&](std::size_t size) {
    const std::size_t columns = trace.allocate(size / 2);
    kept.emplace_back(trace.allocate(size), size);
    trace.free(columns);
  };
  for (std::size_t level = 0; level < levels; ++level) {
    run_layer(bytes(level));
    run_layer(bytes(level));
  }
  for (std::size_t level = levels; level-- > 0;) {
    const std::size_t enlarged = trace.allocate(bytes(level));
    run_layer(2 * bytes(level));
    trace.free(enlarged);
    run_layer(bytes(level));
  }
  std::size_t gradient = trace.allocate(bytes(0));
  for (; !kept.empty(); kept.pop_back()) {
    const auto [block, size] = kept.back();
    const std::size_t below = trace.allocate(size);
    trace.free(std::exchange(gradient, below));
    trace.free(block);
  }
  trace.free(gradient);
}

/// A training of six steps. The first step allocates the optimizer's state with the gradients that need it,
/// and the last step frees it.
void train_restarted(trace_writer& trace, std::size_t step, std::vector<std::size_t>& state) {
  const std::size_t at = step % 6;
  std::vector<std::size_t> activations;
  for (std::size_t layer = 0; layer < layers; ++layer)
    activations.push_back(trace.allocate(batch * width(layer) * 4));
  for (std::size_t layer = layers; layer-- > 0;) {
    const std::size_t gradient = trace.allocate(width(layer) * 64);
    if (at == 0) {
      for (int moment = 0; moment < 2; ++moment) state.push_back(trace.allocate(width(layer) * 64));
    }
    trace.free(activations[layer]);
    trace.free(gradient);
  }
  if (at == 5) trace.free_newest_first(state);
}

// ---- recorded steps ---------------------------------------------------------------------------------------

/// Repeats recorded steps. Blocks that outlive a step are freed at the events that freed the previous step's
/// blocks in the recording.
class recorded_player {
 public:
  explicit recorded_player(std::string const& name)
      : recorded_{read_trace(std::string{TIDEMARK_TRACES "/"} + name + ".csv")},
        steps_{steps_in_order(recorded_)} {}

  void play(trace_writer& trace, std::size_t step) {
    constexpr std::size_t unknown = static_cast<std::size_t>(-1);
    std::vector<std::size_t> copy(recorded_.blocks, unknown);
    std::deque<std::size_t> live;  // of this step, oldest first
    for (std::size_t i = steps_[step].first_event; i <= steps_[step].last_event; ++i) {
      trace_event const& event = recorded_.events[i];
      if (event.allocates) {
        live.push_back(copy[event.block] = trace.allocate(event.bytes));
      } else if (copy[event.block] != unknown) {
        trace.free(copy[event.block]);
        std::erase(live, copy[event.block]);
      } else if (!of_last_step_.empty()) {
        trace.free(of_last_step_.front());
        of_last_step_.pop_front();
      }
    }
    for (std::size_t block : of_last_step_) trace.free(block);
    of_last_step_ = live;
  }

 private:
  recorded_trace recorded_;
  std::vector<trace_step> steps_;
  std::deque<std::size_t> of_last_step_;
};

// ---- programs ---------------------------------------------------------------------------------------------

constexpr std::array programs{"cycle", "random", "lengths", "growing", "restarted", "many", "transformer"};

/// Returns a function that plays step i and returns its kind.
std::function<std::uint64_t(std::size_t)> find_program(std::string const& name, trace_writer& trace) {
  auto one_of_three = [net = network{trace}](std::size_t which) mutable {
    if (which == 0) net.train();
    else if (which == 1) net.evaluate();
    else net.generate();
    return which;
  };
  if (name == "cycle") return [=](std::size_t i) mutable { return one_of_three(i % 3); };
  if (name == "random")
    return [=, random = std::mt19937_64{1}](std::size_t) mutable { return one_of_three(random() % 3); };
  if (name == "lengths")
    return [&trace, random = std::mt19937_64{2}](std::size_t) mutable {
      const std::size_t length = 16 + 4 * (random() % 8);
      train_recurrent(trace, length);
      return length;
    };
  if (name == "unet")
    return [&trace](std::size_t) {
      train_unet(trace);
      return 0;
    };
  if (name == "growing")
    return [&trace](std::size_t i) {
      train_recurrent(trace, 8 + i);
      return 8 + i;
    };
  if (name == "restarted")
    return [&trace, state = std::vector<std::size_t>{}](std::size_t i) mutable {
      train_restarted(trace, i, state);
      return i % 6 == 0 ? 0 : i % 6 == 5 ? 2 : 1;
    };
  if (name == "many")
    return [net = network{trace}](std::size_t i) mutable {
      net.generate(3 + i % 12);
      return i % 12;
    };
  if (name == "transformer")
    return [&trace, recorded = recorded_player{"torch_gpt"}](std::size_t i) mutable {
      recorded.play(trace, 1 + i % 4);
      return i % 4;
    };
  throw std::invalid_argument{"there is no program '" + name + "' of steps"};
}

}  // namespace

std::span<char const* const> generated_programs() noexcept { return programs; }

stepped_trace generate_steps(std::string const& program, std::size_t steps) {
  trace_writer trace;
  const auto play = find_program(program, trace);
  std::vector<std::uint64_t> kinds;
  for (std::size_t i = 0; i < steps; ++i) {
    trace.begin_step();
    kinds.push_back(play(i));
    trace.end_step();
  }
  stepped_trace made = trace.finish();
  made.kinds = std::move(kinds);
  return made;
}

}  // namespace tidemark::tools
