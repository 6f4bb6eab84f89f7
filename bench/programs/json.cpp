// SPDX-License-Identifier: Apache-2.0
// A server's request: a JSON document is parsed into a tree, queried, and dropped.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {
namespace {

struct member;
struct value;
using array = std::pmr::vector<value>;
using object = std::pmr::vector<member>;

struct value {
  std::variant<std::monostate, bool, double, std::pmr::string, array, object> is;
};

struct member {
  std::pmr::string key;
  value held;
};

/// Elements of arrays and objects are stored here until their number is known. An array is then one block, as
/// in RapidJSON and Boost.JSON. Empty between documents.
struct waiting {
  std::vector<value> values;
  std::vector<member> members;
};

/// Parses machine-written text: strings have no escapes except \" and \n.
class parser {
 public:
  parser(std::string_view text, waiting& stacks, std::pmr::memory_resource* memory)
      : rest_{text}, stacks_{stacks}, memory_{memory} {}

  value parse() {
    skip_space();
    switch (rest_.empty() ? '\0' : rest_.front()) {
      case '{':
        return {parse_object()};
      case '[':
        return {parse_array()};
      case '"':
        return {parse_string()};
      case 't':
        return skip("true"), value{true};
      case 'f':
        return skip("false"), value{false};
      case 'n':
        return skip("null"), value{};
      default:
        return {parse_number()};
    }
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }
  void skip(std::string_view word) {
    if (!rest_.starts_with(word)) throw std::invalid_argument{"the document is no JSON"};
    rest_.remove_prefix(word.size());
  }
  bool skip_if(char c) {
    skip_space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  object parse_object() {
    const std::size_t first = stacks_.members.size();
    for (skip("{"); !skip_if('}'); skip_if(',')) {
      skip_space();
      std::pmr::string key = parse_string();
      skip_space(), skip(":");
      stacks_.members.push_back({std::move(key), parse()});
    }
    return popped<object>(stacks_.members, first);
  }
  array parse_array() {
    const std::size_t first = stacks_.values.size();
    for (skip("["); !skip_if(']'); skip_if(',')) stacks_.values.push_back(parse());
    return popped<array>(stacks_.values, first);
  }
  template <class Elements, class Stack>
  Elements popped(Stack& stack, std::size_t first) {
    const auto from = stack.begin() + static_cast<std::ptrdiff_t>(first);
    Elements all{std::make_move_iterator(from), std::make_move_iterator(stack.end()), memory_};
    stack.erase(from, stack.end());
    return all;
  }
  std::pmr::string parse_string() {
    skip("\"");
    std::size_t end = rest_.find_first_of("\"\\"), escapes = 0;
    for (; end < rest_.size() && rest_[end] == '\\'; ++escapes) end = rest_.find_first_of("\"\\", end + 2);
    if (end >= rest_.size()) throw std::invalid_argument{"a string of the document does not end"};
    std::pmr::string text{memory_};
    text.reserve(end - escapes);
    for (std::size_t i = 0; i < end;) {
      if (rest_[i] == '\\') text += rest_[i + 1] == 'n' ? '\n' : rest_[i + 1], i += 2;
      const std::size_t plain = std::min(rest_.find('\\', i), end);
      text += rest_.substr(i, plain - i);
      i = plain;
    }
    rest_.remove_prefix(end + 1);
    return text;
  }
  double parse_number() {
    double number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc{}) throw std::invalid_argument{"the document is no JSON"};
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return number;
  }

  std::string_view rest_;
  waiting& stacks_;
  std::pmr::memory_resource* memory_;
};

value const& at(value const& of, std::string_view key) {
  for (member const& each : std::get<object>(of.is)) {
    if (each.key == key) return each.held;
  }
  throw std::out_of_range{"the document has no such member"};
}

/// Orders of customers, with their items.
std::string document(unsigned orders, unsigned seed) {
  std::mt19937 random{seed};
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  std::string text;
  text.reserve(std::size_t{1300} * orders);  // keeps the peak memory from being that of this text
  text = "{\"version\": 3, \"orders\": [\n";
  for (unsigned order = 0; order < orders; ++order) {
    text += order == 0 ? "" : ",\n";
    text += "{\"id\": " + std::to_string(random()) + ", \"customer\": {\"name\": \"Customer " +
            std::to_string(below(5000)) + "\", \"street\": \"" + std::string(10 + below(30), 'x') +
            " \\\"old\\\" road\", \"country\": \"country " + std::to_string(below(20)) +
            "\"}, \"paid\": " + (below(3) == 0 ? "false" : "true") + ", \"note\": null, \"items\": [";
    for (unsigned item = 0, items = 1 + below(12); item < items; ++item) {
      text += item == 0 ? "" : ", ";
      text += "{\"sku\": \"A-" + std::to_string(random()) + "-" + std::to_string(random()) +
              "\", \"count\": " + std::to_string(1 + below(9)) +
              ", \"price\": " + std::to_string(below(9999)) + ".25, \"tags\": [\"tag number " +
              std::to_string(below(900)) + "\", \"small\"]}";
    }
    text += "]}";
  }
  text += "\n]}\n";
  return text;
}

class request {
 public:
  request(std::string_view text, waiting& stacks, std::pmr::memory_resource* memory)
      : document_{parser{text, stacks, memory}.parse()}, of_countries_{memory} {}

  /// Computes the cost of the paid orders of each country.
  std::uint64_t query() {
    for (value const& order : std::get<array>(at(document_, "orders").is)) {
      if (!std::get<bool>(at(order, "paid").is)) continue;
      double& sum = sum_of(std::get<std::pmr::string>(at(at(order, "customer"), "country").is));
      for (value const& item : std::get<array>(at(order, "items").is)) {
        sum += std::get<double>(at(item, "count").is) * std::get<double>(at(item, "price").is);
      }
    }
    std::uint64_t all = 0;
    for (auto const& [country, sum] : of_countries_)
      all = mixed(all + country.size(), std::bit_cast<std::uint64_t>(sum));
    return all;
  }

 private:
  double& sum_of(std::string_view country) {
    for (auto& [name, sum] : of_countries_) {
      if (name == country) return sum;
    }
    return of_countries_.emplace_back(country, 0.0).second;
  }

  value document_;
  std::pmr::vector<std::pair<std::pmr::string, double>> of_countries_;
};

class json final : public worker {
 public:
  json(step_memory& memory, unsigned thread, extent size)
      : memory_{memory}, text_{document(size == extent::full ? 1000 : 20, thread)} {}
  std::uint64_t step(unsigned) override { return bench::step<request>{memory_, text_, stacks_}->query(); }

 private:
  step_memory& memory_;
  std::string text_;
  waiting stacks_;
};

}  // namespace

std::unique_ptr<worker> start_json(step_memory& memory, unsigned thread, extent size) {
  return std::make_unique<json>(memory, thread, size);
}

}  // namespace tidemark::bench
