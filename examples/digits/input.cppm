// SPDX-License-Identifier: Apache-2.0
// The user input of this and other examples: the options, and images in a file of comma-separated values.
module;
#include "standard.hpp"
export module digits.input;

import tidemark;

// A user error: what() is one sentence for stderr, and the exit status is 2.
export using input_error = std::domain_error;

export enum class allocator_kind { arena, malloc, monotonic, epoch_resource, planned };
export constexpr char const* allocator_names[] = {"arena", "malloc", "monotonic", "epoch_resource",
                                                  "planned"};
export constexpr char const* optimizer_names[] = {"sgd", "adam"};

export struct options {
  std::optional<allocator_kind> allocator;  // empty: arenas, and a comparison of all at the end
  bool adam = false;
  std::size_t epochs = 20;
  std::size_t batch = 32;  // images per step; the last step of an epoch takes the rest
  std::size_t seed = 1;
  std::size_t clusters = 10;
  std::size_t iterations = 100;
  std::string data = DIGITS_DATA;
  bool help = false;
};

// The options of digits. Other programs pass their own list to `parse_options`.
export inline constexpr option digits_options[] = {
    {"allocator", 1, nullptr, 'a'}, {"optimizer", 1, nullptr, 'o'}, {"epochs", 1, nullptr, 'e'},
    {"batch", 1, nullptr, 'b'},     {"seed", 1, nullptr, 's'},      {"data", 1, nullptr, 'd'},
    {"help", 0, nullptr, 'h'},      {nullptr, 0, nullptr, 0}};

export options parse_options(int argc, char** argv, option const* known = digits_options) {
  int index = 0;  // of the option in `known`; optarg is its value
  const auto refuse = [&](std::string const& wanted) {
    throw input_error{std::string{"--"} + known[index].name + " needs " + wanted + ", not '" + optarg + "'."};
  };
  const auto name = [&](std::span<char const* const> names, char const* wanted) {
    const auto found = std::ranges::find(names, std::string_view{optarg});
    if (found == names.end()) refuse(wanted);
    return found - names.begin();
  };
  const auto number = [&](std::size_t least, std::size_t most) {
    std::size_t value = 0;
    char const* const end = optarg + std::strlen(optarg);
    const auto [stop, error] = std::from_chars(optarg, end, value);
    const bool good = error == std::errc{} && stop == end && least <= value && value <= most;
    if (!good) refuse("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return value;
  };
  options chosen;
  if (access(chosen.data.c_str(), R_OK) != 0) chosen.data = "examples/data/digits.csv";  // moved since
  opterr = 0;  // the program prints its own messages
  while (optind < argc) {
    const std::string word = argv[optind];
    const int letter = getopt_long(argc, argv, "+:h", known, &index);
    if (letter == 'a')
      chosen.allocator =
          allocator_kind(name(allocator_names, "arena, malloc, monotonic, epoch_resource or planned"));
    if (letter == 'o') chosen.adam = name(optimizer_names, "sgd or adam") == 1;
    if (letter == 'e') chosen.epochs = number(1, 1000);
    if (letter == 'b') chosen.batch = number(1, 10000);
    if (letter == 'c') chosen.clusters = number(1, 1000);
    if (letter == 'i') chosen.iterations = number(2, 10000);
    if (letter == 's')
      chosen.seed = std::string_view{optarg} == "random" ? tidemark::entropy_seed() : number(0, SIZE_MAX);
    if (letter == 'd') chosen.data = optarg;
    if (letter == 'h') chosen.help = true;
    if (letter == ':') throw input_error{word + " needs a value; see --help."};
    if (letter == '?' || letter == -1) throw input_error{"there is no option '" + word + "'; see --help."};
  }
  return chosen;
}

export inline constexpr std::size_t pixels_per_image = 64;  // 8 rows of 8
export inline constexpr std::size_t label_count = 10;

export struct dataset {
  std::pmr::vector<float> pixels;          // size() x 64, scaled to 0..1
  std::pmr::vector<unsigned char> labels;  // size(), 0..9

  std::size_t size() const { return labels.size(); }
  std::size_t test_count() const { return (size() + 4) / 5; }  // a fifth, rounded up: 360 of 1,797
  float const* image(std::size_t i) const { return pixels.data() + i * pixels_per_image; }
};

// Reads lines of 64 pixels 0..16 and a label. Throws input_error with file, line and column of an error.
export dataset read_digits(std::string const& path, std::pmr::memory_resource& memory) {
  // Data of this function alone is scratch. It must not lie on `memory`, which holds the result.
  tidemark::arena::scope temporary = tidemark::scratch(memory);
  std::pmr::vector<float> pixels{&temporary.arena()};
  std::pmr::vector<unsigned char> labels{&temporary.arena()};
  std::pmr::string line{&temporary.arena()};
  std::size_t line_number = 1;
  const auto fail = [&](char const* place, std::string const& mistake) {
    throw input_error{path + ", line " + std::to_string(line_number) + ", column " +
                      std::to_string(place - line.data() + 1) + ": " + mistake + "."};
  };
  std::ifstream file{path, std::ios::binary};
  for (; std::getline(file, line); ++line_number) {
    if (line.ends_with('\r')) line.pop_back();
    char const *field = line.data(), *const end = field + line.size();
    for (std::size_t i = 0; i <= pixels_per_image; ++i) {
      const bool is_pixel = i < pixels_per_image;
      const std::string name = is_pixel ? "pixel " + std::to_string(i + 1) : "the label";
      if (field > end) fail(end, "the line ends where " + name + " should be");
      const unsigned most = is_pixel ? 16 : label_count - 1;
      unsigned value = 0;
      char const* const field_end = std::find(field, end, ',');
      const auto [stop, error] = std::from_chars(field, field_end, value);
      if (error != std::errc{} || stop != field_end || value > most) {
        std::string shown{field, std::min(field_end, field + 12)};
        std::ranges::replace_if(shown, [](char c) { return c < ' ' || c > '~'; }, '?');
        fail(field, name + " is '" + shown.append("', not a whole number from 0 to ") + std::to_string(most));
      }
      if (!is_pixel && field_end != end) fail(field_end, "the line goes on after the label");
      if (is_pixel) pixels.push_back(static_cast<float>(value) / 16);
      if (!is_pixel) labels.push_back(static_cast<unsigned char>(value));
      field = field_end + 1;
    }
  }
  if (!file.eof()) throw input_error{"cannot read " + path + ": " + std::strerror(errno) + "."};
  if (labels.size() < 2) fail(line.data(), "the file ends here, and at least 2 images are needed");
  return {{pixels, &memory}, {labels, &memory}};  // copies of exactly the needed size
}
