// SPDX-License-Identifier: Apache-2.0
// A compiler's front end: source text becomes a syntax tree with scopes of names, which is folded and
// dropped.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <memory_resource>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {
namespace {

/// Finds a string by a view.
struct hash_of_text {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_of_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '_'; }

enum class kind : std::uint8_t { number, name, binary, call, let, block, function };

struct node {
  node(kind is, std::string_view word, std::pmr::memory_resource* memory)
      : what{is}, text{word, memory}, below{memory} {}
  kind what;
  bool is_constant = false;
  std::int64_t value = 0;
  std::pmr::string text;  // a name or an operator
  node const* declared = nullptr;
  std::pmr::vector<node*> below;
};

/// `unit = {function}; function = "fn" name "(" name ")" block; block = "{" {let | block} sum "}";
/// let = "let" name "=" sum ";"; sum = product {("+" | "-") product}; product = term {"*" term};
/// term = number | name ["(" sum ")"] | "(" sum ")"`
class syntax_tree {
 public:
  syntax_tree(std::string_view source, std::pmr::memory_resource* memory)
      : memory_{memory}, rest_{source}, nodes_{memory}, scopes_{memory} {
    scopes_.emplace_back();
    advance();
    while (!token_.empty()) checksum_ = mixed(checksum_, fold(*function()));
  }
  syntax_tree(syntax_tree const&) = delete;
  syntax_tree& operator=(syntax_tree const&) = delete;
  ~syntax_tree() {
    for (node* each : nodes_) memory_.delete_object(each);
  }

  [[nodiscard]] std::uint64_t checksum() const { return checksum_; }

 private:
  node* make(kind is, std::string_view text = {}) {
    nodes_.push_back(memory_.new_object<node>(is, text, memory_.resource()));
    return nodes_.back();
  }

  void advance() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
    std::size_t n = 0;
    while (n < rest_.size() && is_of_word(rest_[n])) ++n;
    token_ = rest_.substr(0, std::max<std::size_t>(n, 1));  // a single character, or the rest of the source
    rest_.remove_prefix(token_.size());
  }
  bool accept(std::string_view word) {
    if (token_ != word) return false;
    advance();
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word))
      throw std::invalid_argument{"the source has '" + std::string{token_} + "' in place of '" +
                                  std::string{word} + "'"};
  }
  std::string_view word() {
    const std::string_view taken = token_;
    advance();
    return taken;
  }

  node* function() {
    expect("fn");
    node* const made = make(kind::function, word());
    scopes_.back().insert_or_assign(made->text, made);
    expect("(");
    node* const parameter = make(kind::name, word());
    expect(")");
    scopes_.emplace_back();
    scopes_.back().insert_or_assign(parameter->text, parameter);
    made->below = {parameter, block()};
    scopes_.pop_back();
    return made;
  }
  node* block() {
    node* const made = make(kind::block);
    expect("{");
    scopes_.emplace_back();
    while (token_ == "let" || token_ == "{") made->below.push_back(token_ == "{" ? block() : let());
    made->below.push_back(sum());
    scopes_.pop_back();
    expect("}");
    return made;
  }
  node* let() {
    expect("let");
    node* const made = make(kind::let, word());
    expect("=");
    made->below.push_back(sum());
    expect(";");
    scopes_.back().insert_or_assign(made->text, made);
    return made;
  }
  node* sum() {
    node* left = product();
    while (token_ == "+" || token_ == "-") left = binary(left, &syntax_tree::product);
    return left;
  }
  node* product() {
    node* left = term();
    while (token_ == "*") left = binary(left, &syntax_tree::term);
    return left;
  }
  node* binary(node* left, node* (syntax_tree::*right)()) {
    node* const made = make(kind::binary, word());
    made->below = {left, (this->*right)()};
    return made;
  }
  node* term() {
    if (accept("(")) {
      node* const inner = sum();
      expect(")");
      return inner;
    }
    const std::string_view text = word();
    if (!text.empty() && is_digit(text.front())) {
      node* const made = make(kind::number, text);
      std::from_chars(text.data(), text.data() + text.size(), made->value);
      return made;
    }
    node* const made = make(token_ == "(" ? kind::call : kind::name, text);
    made->declared = find(text);
    if (accept("(")) {
      made->below.push_back(sum());
      expect(")");
    }
    return made;
  }

  [[nodiscard]] node const* find(std::string_view name) const {
    for (std::size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].find(name);
      if (found != scopes_[i].end()) return found->second;
    }
    return nullptr;
  }

  /// Folds constants. @return a checksum of the tree
  static std::uint64_t fold(node& top) {
    std::uint64_t sum = top.text.size() + (top.declared == nullptr ? 0 : top.declared->text.size());
    for (node* each : top.below) sum = mixed(sum, fold(*each));
    top.is_constant = top.what == kind::number;
    if (top.what == kind::binary && top.below[0]->is_constant && top.below[1]->is_constant) {
      top.is_constant = true;
      const auto a = static_cast<std::uint64_t>(top.below[0]->value),
                 b = static_cast<std::uint64_t>(top.below[1]->value);
      top.value = static_cast<std::int64_t>(top.text == "+" ? a + b : top.text == "-" ? a - b : a * b);
    }
    return mixed(
        sum, top.is_constant ? static_cast<std::uint64_t>(top.value) : static_cast<std::uint64_t>(top.what));
  }

  std::pmr::polymorphic_allocator<> memory_;
  std::string_view rest_, token_;
  std::pmr::deque<node*> nodes_;
  std::pmr::vector<std::pmr::unordered_map<std::pmr::string, node const*, hash_of_text, std::equal_to<>>>
      scopes_;
  std::uint64_t checksum_ = 0;
};

/// Generates a random program of that language.
class source_writer {
 public:
  explicit source_writer(unsigned functions) {
    for (unsigned i = 0; i < functions; ++i) {
      text += "fn function_" + std::to_string(i) + "(argument) ";
      write_block(2);
    }
  }
  std::string text;

 private:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  void write_block(unsigned depth) {
    text += "{\n";
    for (unsigned i = 0, lets = 2 + below(4); i < lets; ++i) {
      text += "  let variable_" + std::to_string(i) + " = ";
      write_sum(3);
      text += ";\n";
      if (depth > 0 && below(3) == 0) write_block(depth - 1);
    }
    write_sum(2);
    text += "\n}\n";
  }
  void write_sum(unsigned depth) {
    write_term(depth);
    for (unsigned i = below(3); i > 0; --i) {
      text += below(2) == 0 ? " + " : below(2) == 0 ? " - " : " * ";
      write_term(depth);
    }
  }
  void write_term(unsigned depth) {
    switch (depth == 0 ? below(2) : below(5)) {
      case 0:
        text += std::to_string(below(1000));
        break;
      case 1:
        text += "variable_" + std::to_string(below(3));
        break;
      case 2:
        text += "argument";
        break;
      case 3:
        text += "function_" + std::to_string(below(50)) + "(", write_sum(depth - 1), text += ")";
        break;
      default:
        text += "(", write_sum(depth - 1), text += ")";
        break;
    }
  }

  std::mt19937 random_{13};
};

class compiler final : public worker {
 public:
  compiler(step_memory& memory, extent size)
      : memory_{memory}, source_{source_writer{size == extent::full ? 600U : 8U}.text} {}

  std::uint64_t step(unsigned) override { return bench::step<syntax_tree>{memory_, source_}->checksum(); }

 private:
  step_memory& memory_;
  std::string source_;
};

}  // namespace

std::unique_ptr<worker> start_syntax(step_memory& memory, unsigned, extent size) {
  return std::make_unique<compiler>(memory, size);
}

}  // namespace tidemark::bench
