// SPDX-License-Identifier: Apache-2.0
// The network, its training on any of five allocators, and the times of these.
module;
#include "standard.hpp"
export module digits.training;

import digits.input;
import digits.tape;
import tidemark;

// The standard fixes the numbers of its engines, but not of its distributions. This one is in [0, 1).
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

export void shuffle(std::span<std::size_t> x, std::mt19937_64& random) {
  for (std::size_t n = x.size(); n > 1; --n) {
    std::swap(x[n - 1], x[static_cast<std::size_t>(uniform(random) * static_cast<double>(n))]);
  }
}

export inline constexpr std::size_t hidden_count = 128;  // values between the two layers

export class network {
 public:
  network(bool adam, std::mt19937_64& random, std::pmr::memory_resource* permanent)
      : adam_{adam}, permanent_{permanent} {
    for (tensor* weights : {&weights1_, &weights2_}) {
      const double bound = std::sqrt(6.0 / static_cast<double>(weights->rows));  // He et al. 2015, for ReLU
      for (float& w : weights->values) w = static_cast<float>((2 * uniform(random) - 1) * bound);
    }
  }

  // Returns a row of 10 scores for each image.
  tensor& scores(tape& step, dataset const& data, std::span<std::size_t const> images) {
    tensor& x = step.constant(images.size(), pixels_per_image);
    auto row = x.values.begin();
    for (const std::size_t i : images) row = std::copy_n(data.image(i), pixels_per_image, row);
    return step.linear(step.relu(step.linear(x, weights1_, bias1_)), weights2_, bias2_);
  }

  tensor& loss(tape& step, dataset const& data, std::span<std::size_t const> images) {
    tidemark::arena::scope temporary = tidemark::scratch(step.memory());
    const auto labels = temporary.push_array<unsigned char>(images.size(), tidemark::uninitialized);
    std::ranges::transform(images, labels.begin(), [&](std::size_t i) { return data.labels[i]; });
    return step.cross_entropy(scores(step, data, images), labels);
  }

  // Returns the number of images that have their highest score at their label.
  double count_right(tape& step, dataset const& data, std::span<std::size_t const> images) {
    float const* row = scores(step, data, images).values.data();
    return static_cast<double>(std::ranges::count_if(images, [&](std::size_t i) {
      float const* first = std::exchange(row, row + label_count);
      return std::max_element(first, row) - first == data.labels[i];
    }));
  }

  // Returns the trained parameters: weights and bias of both layers in sequence.
  std::vector<float> parameters() const {
    std::vector<float> all;
    for (tensor const* parameter : {&weights1_, &bias1_, &weights2_, &bias2_}) {
      all.insert(all.end(), parameter->values.begin(), parameter->values.end());
    }
    return all;
  }

  // Returns the same parameters with their gradients.
  std::array<tensor*, 4> variables() { return {&weights1_, &bias1_, &weights2_, &bias2_}; }

  // Moves the parameters against their gradients, and sets the gradients to zero. Adam: Kingma and Ba 2015.
  void update() {
    const float rate = 0.0002F / (1 - std::pow(0.9F, ++updates_));
    const float scale = 1 / (1 - std::pow(0.999F, updates_));
    float *mean = means_.data(), *square = squares_.data();
    for (tensor* parameter : variables()) {
      for (std::size_t i = 0; i < parameter->values.size(); ++i, ++mean, ++square) {
        const float slope = std::exchange(parameter->gradient[i], 0.0F);
        *mean = 0.9F * *mean + slope;
        if (adam_) *square = 0.999F * *square + 0.001F * slope * slope;
        parameter->values[i] -= *mean * (adam_ ? rate / (std::sqrt(scale * *square) + 1e-8F) : 0.05F);
      }
    }
  }

  static constexpr std::size_t parameter_count =
      (pixels_per_image + 1) * hidden_count + (hidden_count + 1) * label_count;

 private:
  bool adam_;  // false: SGD with momentum
  float updates_ = 0;
  std::pmr::memory_resource* permanent_;
  // Weights are inputs x outputs. A batch has an image per row and is multiplied by them from the right.
  tensor weights1_{pixels_per_image, hidden_count, true, permanent_},
      bias1_{1, hidden_count, true, permanent_};
  tensor weights2_{hidden_count, label_count, true, permanent_}, bias2_{1, label_count, true, permanent_};
  std::pmr::vector<float> means_{parameter_count, permanent_};    // of the gradients, running
  std::pmr::vector<float> squares_{parameter_count, permanent_};  // of the gradients, running, for Adam
};

// The memory of a training: permanent() for its whole duration, step() for the rest.
struct training_memory {
  allocator_kind kind;
  std::pmr::memory_resource* heap = std::pmr::new_delete_resource();
  tidemark::arena permanent_arena{{.name = "permanent"}}, step_arena{{.name = "step"}};
  std::vector<std::byte> buffer = std::vector<std::byte>(tidemark::MiB);  // more than a step of 32 needs
  std::pmr::monotonic_buffer_resource monotonic{buffer.data(), buffer.size()};
  tidemark::pool blocks{{.name = "blocks"}};
  tidemark::epoch_resource epochs{&blocks};
  tidemark::planned_arena planned{{.fallback = heap, .name = "planned"}};

  std::pmr::memory_resource* permanent() { return kind == allocator_kind::arena ? &permanent_arena : heap; }

  // Calls body with an empty tape on the step's resource, then frees all allocations of the step. Returns
  // body's result.
  template <class Body>
  double step(Body body, int kind_of_step = 0) {
    if (kind == allocator_kind::arena) {
      tidemark::arena::scope scope{step_arena};
      return body(*scope.push<tape>(tidemark::no_destructor, step_arena));  // the scope frees all of it
    }
    if (kind == allocator_kind::monotonic) {
      const double result = body(*std::pmr::polymorphic_allocator<>{&monotonic}.new_object<tape>(monotonic));
      monotonic.release();  // no destructor runs here either
      return result;
    }
    if (kind == allocator_kind::epoch_resource) {
      // No destructor runs here either: the returned buffer is kept, and the end of the epoch reclaims the
      // rest.
      return tidemark::with_epoch(epochs, "step", [&] {
        tidemark::buffer<double> result{epochs, 1};
        result[0] = body(*std::pmr::polymorphic_allocator<>{&epochs}.new_object<tape>(epochs));
        return result;
      })[0];
    }
    if (kind == allocator_kind::planned) {
      const tidemark::planned_arena::step repeated{
          planned, kind_of_step};  // records the first of its kind, then repeats it
      tape step{planned};
      return body(step);
    }
    tape step{*heap};
    return body(step);  // its destructor frees its parts one by one
  }

  // Returns the memory taken for steps, if known.
  std::optional<std::size_t> step_bytes() const {
    if (kind == allocator_kind::arena) return step_arena.stats().peak_bytes;
    if (kind == allocator_kind::epoch_resource) return blocks.stats().held_bytes;
    if (kind == allocator_kind::planned) return planned.stats().committed_bytes;
    return {};
  }

  std::vector<tidemark::arena_stats> stats() const {
    return {permanent_arena.stats(), step_arena.stats(),
            tidemark::scratch(tidemark::no_conflicts).arena().stats()};
  }
};

// Forwards allocations to malloc and records them.
export struct recorder final : std::pmr::memory_resource {
  using block = std::tuple<std::size_t, std::size_t, void*>;  // bytes, alignment, address
  std::vector<block> blocks;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    void* address = std::pmr::new_delete_resource()->allocate(bytes, align);
    return std::get<void*>(blocks.emplace_back(bytes, align, address));
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(p, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

using std::chrono::steady_clock;
export double seconds_now() {
  return std::chrono::duration<double>{steady_clock::now().time_since_epoch()}.count();
}

export double median(std::vector<double> x) {
  std::ranges::nth_element(x, x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2));
  return x[x.size() / 2];
}

export struct training_result {
  double loss = 0;            // mean over the training images, in the last epoch
  double accuracy = 0;        // percentage of test images recognised
  std::vector<double> steps;  // seconds of each, from filling the batch to freeing its memory
  std::vector<tidemark::arena_stats> warm, end;  // the arenas after the first epoch and after the last
  std::optional<tidemark::epoch_stats> epochs;   // of all steps, if they are epochs
  std::optional<tidemark::planned_arena_stats> planned;  // of all steps, if they run by plans
  std::optional<std::size_t> step_bytes;                 // taken for steps, if known
  std::vector<recorder::block> blocks;                   // allocations of one step
  std::vector<float> parameters;                         // of both layers: weights and bias, row by row
  std::vector<std::size_t> tests;                        // the images that were tested
};

// Trains a network from the beginning. Calls after_epoch(number, result so far).
export training_result train(options const& chosen, allocator_kind kind, dataset const& data,
                             std::function<void(std::size_t, training_result const&)> const& after_epoch) {
  training_memory memory{kind};
  std::mt19937_64 random{chosen.seed};
  network model{chosen.adam, random, memory.permanent()};
  std::pmr::vector<std::size_t> order(data.size(), memory.permanent());
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, random);
  const auto tests = std::span{order}.last(data.test_count());
  const auto images = std::span{order}.first(order.size() - tests.size());
  const auto batch = [&](auto x, auto i) { return x.subspan(i, std::min(chosen.batch, x.size() - i)); };
  training_result result;
  for (std::size_t epoch = 1; epoch <= chosen.epochs; ++epoch) {
    shuffle(images, random);
    result.loss = 0;
    for (std::size_t i = 0; i < images.size(); i += chosen.batch) {
      const double begin = seconds_now();
      const double loss = memory.step([&](tape& step) {
        const double loss_of_batch = model.loss(step, data, batch(images, i)).values[0];
        step.play_backwards();
        model.update();
        return loss_of_batch;
      });
      result.loss += loss * static_cast<double>(batch(images, i).size());
      result.steps.push_back(seconds_now() - begin);
    }
    result.loss /= static_cast<double>(images.size());
    result.accuracy = 0;
    for (std::size_t i = 0; i < tests.size(); i += chosen.batch) {
      result.accuracy +=
          memory.step([&](tape& step) { return model.count_right(step, data, batch(tests, i)); }, 1);
    }
    result.accuracy *= 100 / static_cast<double>(tests.size());
    result.end = memory.stats();
    if (epoch == 1) result.warm = result.end;
    after_epoch(epoch, result);
  }
  if (kind == allocator_kind::epoch_resource) result.epochs = memory.epochs.stats();
  if (kind == allocator_kind::planned) result.planned = memory.planned.stats();
  result.step_bytes = memory.step_bytes();
  recorder record;
  tape step{record};
  model.loss(step, data, batch(images, std::size_t{0}));
  step.play_backwards();
  result.blocks = record.blocks;
  result.parameters = model.parameters();
  result.tests.assign(tests.begin(), tests.end());
  return result;
}

// Returns the seconds of a step's allocations alone, without computing or writing.
export double seconds_alone(allocator_kind kind, std::vector<recorder::block> blocks) {
  training_memory memory{kind};
  const auto replay = [&](tape& step) {
    for (auto& [bytes, align, address] : blocks) address = step.memory()->allocate(bytes, align);
    if (kind == allocator_kind::malloc || kind == allocator_kind::planned) {
      for (auto& [bytes, align, address] : blocks) step.memory()->deallocate(address, bytes, align);
    }
    return 0.0;
  };
  std::vector<double> rounds(15);
  for (double& seconds : rounds) {
    const double begin = seconds_now();
    for (int i = 0; i < 500; ++i) (void)memory.step(replay);
    seconds = (seconds_now() - begin) / 500;
  }
  return median(rounds);
}
