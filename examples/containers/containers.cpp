// SPDX-License-Identifier: Apache-2.0
// containers: code that misses its arena, the report of `expect_resource`, and the same code on the arena.
// docs/containers.md shows all samples.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
import tidemark;

namespace {

constexpr std::string_view long_name = "a name that is longer than a string keeps within itself";

}  // namespace

// The samples contain the faults that these checks warn of.
// NOLINTBEGIN(performance-unnecessary-copy-initialization, modernize-use-emplace)
// NOLINTBEGIN(bugprone-unused-local-non-trivial-variable)

void forgotten_argument(std::pmr::memory_resource*) { std::pmr::vector<float> gradient(1000); }

void forgotten_argument_fixed(std::pmr::memory_resource* step) {
  std::pmr::vector<float> gradient(1000, step);
}

void copied(std::pmr::memory_resource* step) {
  std::pmr::vector<float> weights(1000, step);
  auto copy = weights;
  auto first = [weights] { return weights[0]; };
}

void copied_fixed(std::pmr::memory_resource* step) {
  std::pmr::vector<float> weights(1000, step);
  std::pmr::vector<float> copy(weights, step);
  auto first = [&weights] { return weights[0]; };
  first();
}

void moved_to_another_resource(std::pmr::memory_resource* step) {
  std::pmr::vector<float> result;
  std::pmr::vector<float> weights(1000, step);
  result = std::move(weights);  // copies: a vector keeps its resource for life
}

void moved_to_another_resource_fixed(std::pmr::memory_resource* step) {
  std::pmr::vector<float> result(step);
  std::pmr::vector<float> weights(1000, step);
  result = std::move(weights);  // passes the memory on
  std::pmr::vector<float> other =
      std::move(result);  // so does a move construction, which takes the resource along
}

void elements_of_another_type(std::pmr::memory_resource* step) {
  std::pmr::vector<std::string> names(step);
  names.emplace_back(long_name);
}

void elements_of_another_type_fixed(std::pmr::memory_resource* step) {
  std::pmr::vector<std::pmr::string> names(step);
  names.emplace_back(long_name);
  std::pmr::map<std::pmr::string, std::pmr::vector<int>> lines(step);
  lines[names[0]].push_back(1);
  std::pmr::vector<std::tuple<std::pmr::string, int>> counts(step);
  counts.emplace_back(long_name, 1);
}

void temporaries(std::pmr::memory_resource* step) {
  std::pmr::vector<std::pmr::string> names(step);
  names.push_back(std::pmr::string{long_name});
  std::pmr::string joined = names[0] + "…";
  std::pmr::string end = names[0].substr(1);
}

void temporaries_fixed(std::pmr::memory_resource* step) {
  std::pmr::vector<std::pmr::string> names(step);
  names.emplace_back(long_name);
  std::pmr::string joined(names[0], step);
  joined += "…";
  std::pmr::string end(names[0], 1, step);
}

void wrapped(std::pmr::memory_resource* step) {
  std::pmr::vector<std::optional<std::pmr::string>> names(step);
  names.emplace_back(std::in_place, long_name);
}

void wrapped_fixed(std::pmr::memory_resource* step) {
  std::pmr::vector<std::optional<std::pmr::string>> names(step);
  names.emplace_back(std::in_place, long_name, step);
}

struct sample {
  std::pmr::string name;
};

void members(std::pmr::memory_resource* step) {
  std::pmr::vector<sample> samples(step);
  samples.push_back({std::pmr::string(long_name, step)});
  samples.push_back(samples[0]);
}

struct aware_sample {
  using allocator_type = std::pmr::polymorphic_allocator<>;
  explicit aware_sample(std::string_view text, allocator_type memory = {}) : name(text, memory) {}
  aware_sample(aware_sample const& other, allocator_type memory = {}) : name(other.name, memory) {}
  aware_sample(aware_sample&& other) noexcept = default;
  aware_sample(aware_sample&& other, allocator_type memory) : name(std::move(other.name), memory) {}
  std::pmr::string name;
};

void members_fixed(std::pmr::memory_resource* step) {
  std::pmr::vector<aware_sample> samples(step);
  samples.emplace_back(long_name);
  samples.push_back(samples[0]);
}

void objects(std::pmr::memory_resource*) {
  auto weights = std::make_shared<float[]>(1000);
  tidemark::arena nodes;
  nodes.make<std::vector<float>>(1000u);
  std::function<float()> first = [weights] { return weights[0]; };
}

void objects_fixed(std::pmr::memory_resource* step) {
  auto weights = std::allocate_shared<float[]>(std::pmr::polymorphic_allocator<>{step}, 1000);
  tidemark::arena nodes;
  nodes.make<std::pmr::vector<float>>(1000u, &nodes);
  auto body = [weights] { return weights[0]; };
  std::function<float()> first = std::ref(body);  // takes no allocator, and refers to an object of any size
}

void streams(std::pmr::memory_resource*) {
  std::ostringstream text;
  text << long_name;
  std::string line = text.str();
}

void streams_fixed(std::pmr::memory_resource* step) {
  std::pmr::string buffer(step);
  std::basic_ostringstream<char, std::char_traits<char>, std::pmr::polymorphic_allocator<char>> text(
      std::move(buffer), std::ios::ate);
  text << long_name;
  text << text.view().size();  // str() copies, view() does not
}

// NOLINTEND(bugprone-unused-local-non-trivial-variable)
// NOLINTEND(performance-unnecessary-copy-initialization, modernize-use-emplace)

int main() try {
  constexpr struct {
    char const* name;
    void (*run)(std::pmr::memory_resource*);
  } samples[] = {
      {"forgotten_argument", forgotten_argument},
      {"forgotten_argument_fixed", forgotten_argument_fixed},
      {"copied", copied},
      {"copied_fixed", copied_fixed},
      {"moved_to_another_resource", moved_to_another_resource},
      {"moved_to_another_resource_fixed", moved_to_another_resource_fixed},
      {"elements_of_another_type", elements_of_another_type},
      {"elements_of_another_type_fixed", elements_of_another_type_fixed},
      {"temporaries", temporaries},
      {"temporaries_fixed", temporaries_fixed},
      {"wrapped", wrapped},
      {"wrapped_fixed", wrapped_fixed},
      {"members", members},
      {"members_fixed", members_fixed},
      {"objects", objects},
      {"objects_fixed", objects_fixed},
      {"streams", streams},
      {"streams_fixed", streams_fixed},
  };
  for (auto const& sample : samples) {
    tidemark::arena step;
    tidemark::expect_resource expected{&step, "step"};
    sample.run(&step);
    std::printf("%s\n%s\n", sample.name, expected.report().c_str());
  }
} catch (std::exception const& error) {
  std::fprintf(stderr, "containers: %s\n", error.what());
  return EXIT_FAILURE;
}
