// SPDX-License-Identifier: Apache-2.0
// graph_replay: captures a step once into a graph, and replays it with its inputs changed in place.
//
// The step is the inference of the network of examples/digits, from a batch of images to probabilities of the
// ten digits. A CUDA graph contains the addresses of its memory. The temporaries of a captured step must
// therefore keep their addresses, and must not be reused, while the graph lives. They lie in a graph arena.
//
//   1. rehearse   a real run with memory of a caching allocator; it returns the memory that the step needs
//   2. capture    the same step, on a graph arena of exactly this size
//   3. launch     for each batch: copy it to the graph's input, launch, copy the graph's output
//
// Without a GPU or nvcc the step runs on the host. The host cannot capture, and launches do nothing there.
// The step then runs again for each batch, on an arena with the graph's layout.
//
// The program prints the time of a batch in eager execution and in replay, and the memory of the temporaries.
// The exit status is 1 if the results differ in a single bit, and 2 for an invalid option.
//
// Read `infer` first, then `replay_on`. operations.hpp has the operations of the step.
#include "operations.hpp"
#include "standard.hpp"

import digits.input;
import digits.training;
import tidemark;
import tidemark.cuda;

namespace {

// A matrix with its own memory. Its alignment is that of a graph arena. The blocks that the rehearsal returns
// to a cache of exact sizes and alignments then match the requests of eager execution.
struct tensor {
  std::size_t rows, columns;
  tidemark::unique_block block;

  tensor(std::pmr::memory_resource& memory, std::size_t n, std::size_t m)
      : rows{n},
        columns{m},
        block{&memory, n * m * sizeof(float), tidemark::graph_arena::default_alignment} {}
  operator matrix() const { return {block.as<float>().data(), rows, columns}; }
};

struct inputs {
  tensor images, parameters;
};

tensor linear(machine& on, std::pmr::memory_resource& memory, matrix x, matrix weights, matrix bias) {
  const tensor sums{memory, x.rows, weights.columns};  // deallocated at the end of this function
  tensor result{memory, x.rows, weights.columns};
  on.run(product{x, weights, sums});
  on.run(add_row{sums, bias, result});
  return result;
}

// The step, written once. It does not know whether it is rehearsed, captured or run.
void infer(machine& on, std::pmr::memory_resource& memory, inputs const& in, tensor const& probabilities) {
  float* next = in.parameters.block.as<float>().data();
  const auto parameter = [&](std::size_t rows, std::size_t columns) {
    return matrix{std::exchange(next, next + rows * columns), rows, columns};
  };
  const matrix weights1 = parameter(pixels_per_image, hidden_count), bias1 = parameter(1, hidden_count);
  const matrix weights2 = parameter(hidden_count, label_count), bias2 = parameter(1, label_count);

  const tensor hidden = linear(on, memory, in.images, weights1, bias1);
  const tensor active{memory, hidden.rows, hidden.columns};
  on.run(relu{hidden, active});
  const tensor scores = linear(on, memory, active, weights2, bias2);
  on.run(softmax{scores, probabilities});
}

// Runs the operations as loops, which are complete when they return.
class host_machine final : public machine {
 public:
  void run(operation const& work) override {
    std::visit(
        [](auto const& loop) {
          for (std::size_t i = 0; i < loop.threads(); ++i) loop(i);
        },
        work);
  }
  void copy(void const* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void finish() override {}
};

struct place {
  machine& on;
  std::pmr::memory_resource& memory;              // of the machine
  std::pmr::memory_resource& staging;             // of the host, for copies to the machine and back
  tidemark::gpu::stream_handle stream = nullptr;  // null: on the host
};

// One of the two ways through all batches, with its times.
struct execution {
  std::pmr::vector<float> probabilities;  // of all images
  std::vector<double> seconds;            // of each batch
  std::size_t temporaries = 0;            // blocks allocated by steps

  execution(std::size_t results, std::pmr::memory_resource& memory) : probabilities(results, &memory) {}
};

// Copies each batch of images to the step's input, runs the step, and copies its output.
void all_batches(machine& on, std::pmr::vector<float> const& images, tensor const& in, tensor const& out,
                 execution& how, auto const& run_step) {
  float* to = how.probabilities.data();
  for (std::size_t i = 0; i < images.size(); i += in.rows * in.columns, to += out.rows * out.columns) {
    const auto begin = std::chrono::steady_clock::now();
    on.copy(&images[i], in.block.data(), in.block.bytes());
    run_step();
    on.copy(out.block.data(), to, out.block.bytes());
    on.finish();
    how.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}

void print(char const* name, execution const& one) {
  const double per_batch = static_cast<double>(one.temporaries) / static_cast<double>(one.seconds.size());
  std::printf("%-9s %14.1f us %23.2f\n", name, 1e6 * median(one.seconds), per_batch);
}

void print_footprint(tidemark::graph_layout const& rehearsed, tidemark::graph_arena_stats const& arena,
                     std::size_t cache_bytes) {
  std::printf(
      "\nmemory of the %zu temporaries in bytes\n"
      "rehearsed                     %10zu\n"
      "graph arena                   %10zu, used up to %zu\n"
      "live at once, at most         %10zu\n"
      "held by the cache of eager    %10zu\n\n",
      std::size_t{arena.allocations}, rehearsed.bytes, arena.reserved_bytes, arena.high_water_bytes,
      arena.peak_bytes, cache_bytes);
}

// Returns the test images one after the other. A graph fixes shapes like addresses, so blank images fill the
// last batch. Their results are ignored.
std::pmr::vector<float> whole_batches(std::size_t rows, dataset const& data,
                                      std::vector<std::size_t> const& tests,
                                      std::pmr::memory_resource& memory) {
  const std::size_t batches = (tests.size() + rows - 1) / rows;
  std::printf("batches: %zu of %zu images; blank ones that fill the last batch up: %zu\n", batches, rows,
              batches * rows - tests.size());
  std::pmr::vector<float> images(batches * rows * pixels_per_image, &memory);
  auto end = images.begin();
  for (const std::size_t i : tests) end = std::copy_n(data.image(i), pixels_per_image, end);
  return images;
}

void replay_on(place const& where, std::size_t rows, dataset const& data, training_result const& trained) {
  std::pmr::vector<float> const images = whole_batches(rows, data, trained.tests, where.staging);
  // 1. Rehearse with the first batch. Eager execution takes temporaries from a cache, like a framework.
  tidemark::statistics_resource upstream{&where.memory};
  tidemark::reuse_cache cache{&upstream};
  const auto step = [&](std::pmr::memory_resource& memory, inputs const& in, tensor const& out) {
    infer(where.on, memory, in, out);
  };
  inputs in{{where.memory, rows, pixels_per_image}, {where.memory, 1, trained.parameters.size()}};
  const tensor eager_out{where.memory, rows, label_count};
  where.on.copy(images.data(), in.images.block.data(), in.images.block.bytes());
  where.on.copy(trained.parameters.data(), in.parameters.block.data(), in.parameters.block.bytes());
  const tidemark::graph_layout layout =
      tidemark::rehearse([&](std::pmr::memory_resource& memory) { step(memory, in, eager_out); }, &cache);
  where.on.finish();

  // 2. Capture. From here on the graph owns `in` and its output `out`.
  auto arena = std::make_unique<tidemark::graph_arena>(layout, &upstream);
  tensor out{where.memory, rows, label_count};
  tidemark::host_backend host;
  auto graph = where.stream != nullptr
                   ? tidemark::capture(where.stream, std::move(arena), std::move(in), std::move(out), step)
                   : tidemark::capture(host, std::move(arena), std::move(in), std::move(out), step);
  std::optional<tidemark::graph_arena> stand_in;  // for the graph's arena if launches do nothing
  if (!graph.is_replay_capable()) stand_in.emplace(layout, &upstream);

  // 3. Launch each batch, and also execute it eagerly. In turns, so that a disturbance affects both.
  const std::size_t results = images.size() / pixels_per_image * label_count;
  execution eager{results, where.staging}, replay{results, where.staging};
  tidemark::statistics_resource counted{&cache};
  const std::size_t taken = upstream.stats().allocations;
  tensor const& read = graph.inputs().images;
  for (int round = 0; round < 5; ++round) {
    all_batches(where.on, images, read, eager_out, eager, [&] { step(counted, graph.inputs(), eager_out); });
    all_batches(where.on, images, read, graph.outputs(), replay, [&] {
      graph.launch();
      if (!stand_in) return;
      stand_in->reset();  // the first block gets the first address again
      step(*stand_in, graph.inputs(), graph.outputs());
      replay.temporaries += stand_in->stats().allocations;
    });
  }
  eager.temporaries = counted.stats().allocations;

  std::puts("\nexecution   time per batch   temporaries per batch");
  print("eager", eager);
  print("replay", replay);
  std::printf("is_replay_capable(): %s, launch_count(): %zu, blocks taken from upstream meanwhile: %zu\n",
              graph.is_replay_capable() ? "true" : "false", std::size_t{graph.launch_count()},
              std::size_t{upstream.stats().allocations} - taken);
  print_footprint(layout, graph.arena().stats(), cache.stats().held_bytes);
  if (std::memcmp(eager.probabilities.data(), replay.probabilities.data(), results * sizeof(float)) != 0) {
    throw std::runtime_error{"replay has other results than eager execution, which is a bug."};
  }
  float const* row = replay.probabilities.data();
  const auto right = std::ranges::count_if(trained.tests, [&](std::size_t i) {
    float const* const first = std::exchange(row, row + label_count);
    return std::max_element(first, row) - first == data.labels[i];
  });
  std::printf("same results, to the last bit; test accuracy: %.2f %%\n",
              100 * static_cast<double>(right) / static_cast<double>(trained.tests.size()));
}

// Returns the reason why no device can be used, or an empty text.
std::string why_no_device() {
  if (!GRAPH_REPLAY_KERNELS) return "this was built without nvcc";
  tidemark::gpu::driver& driver = tidemark::gpu::default_driver();
  int devices = 0;
  const tidemark::gpu::status found = driver.device_count(devices);
  if (found != tidemark::gpu::status::success) {
    return driver.error_name(found) + std::string{": "} + driver.error_string(found);
  }
  return devices == 0 ? "the driver counts none" : "";
}

constexpr option known_options[] = {{"epochs", 1, nullptr, 'e'}, {"batch", 1, nullptr, 'b'},
                                    {"seed", 1, nullptr, 's'},   {"data", 1, nullptr, 'd'},
                                    {"help", 0, nullptr, 'h'},   {nullptr, 0, nullptr, 0}};
constexpr char const* help_text =
    "usage: graph_replay [options]\n\n"
    "Trains a network, captures its inference once, and replays it on images outside the training set.\n\n"
    "  --epochs N   passes over the training images, 1 to 1000 (default 20)\n"
    "  --batch N    images of a captured step, 1 to 10000 (default 32)\n"
    "  --seed N     seed of the training: a whole number (default 1), or 'random' for a seed from the "
    "system\n"
    "  --data FILE  other images: on each line 64 pixels 0..16 and a label 0..9\n"
    "  --help       print this";

int run(int argc, char** argv) {
  const options chosen = parse_options(argc, argv, known_options);
  if (chosen.help) return std::puts(help_text) < 0 ? 1 : 0;
  std::pmr::memory_resource& heap = *std::pmr::new_delete_resource();
  const dataset data = read_digits(chosen.data, heap);
  options training = chosen;
  training.batch = options{}.batch;
  const training_result trained = train(training, allocator_kind::arena, data, [](auto, auto const&) {});
  std::printf("A 64-128-10 network, trained on %zu images with seed %zu, recognises %.2f %% of %zu others.\n",
              data.size() - data.test_count(), chosen.seed, trained.accuracy, data.test_count());
  if (const std::string reason = why_no_device(); !reason.empty()) {
    std::printf(
        "There is no CUDA device to use (%s): the step runs on the host backend.\n"
        "That captures nothing. A launch does nothing, and replay runs the step again for each batch.\n",
        reason.c_str());
    host_machine on;
    replay_on({on, heap, heap}, chosen.batch, data, trained);
  } else if constexpr (GRAPH_REPLAY_KERNELS) {
    std::puts("The step is captured into a CUDA graph, and replayed on the device.");
    tidemark::gpu::device_resource memory;
    tidemark::gpu::pinned_resource staging;
    const tidemark::gpu::stream stream;
    replay_on({*cuda_machine(stream), memory, staging, stream}, chosen.batch, data, trained);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    return std::fflush(stdout) == 0 ? status : throw std::runtime_error{"cannot write the output."};
  } catch (std::exception const& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "graph_replay: %s\n", error.what());
    return dynamic_cast<input_error const*>(&error) != nullptr ? 2 : 1;
  }
}
