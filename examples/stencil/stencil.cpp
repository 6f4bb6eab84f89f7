// SPDX-License-Identifier: Apache-2.0
// stencil: shows the cost of temporaries from different sources.
//
// The conjugate gradient method solves A x = b, where A is the 5-point Laplacian of a square grid. The code
// consists of small functions; each takes the arrays that it needs and forgets them. An iteration requests
// ten arrays. They come from three sources, with the same functions:
//
//   workspace   a tidemark::workspace with a scope for each call: memory that the next call reuses
//   vector      a std::vector for each array: memory from the heap, filled with zeros, deallocated
//   monotonic   a std::pmr::vector for each array, on a monotonic_buffer_resource released each iteration
//
// The program prints for each source the median time of an iteration without the first, the calls of operator
// new per later iteration, and the norm of the last residual. The norms must agree to the last digit.
// Otherwise the exit status is 1; it is 2 for an invalid option.
//
//   stencil --size 512 --iterations 200
//
// Read `precondition` first: it shows how a function uses a workspace.
#include <getopt.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

import tidemark;

namespace {

std::size_t calls_of_new = 0;

void* counted(void* block) {
  ++calls_of_new;
  return block != nullptr ? block : throw std::bad_alloc{};
}

}  // namespace

// Counts every allocation of the program, including those of containers and of
// std::pmr::new_delete_resource().
void* operator new(std::size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  const auto multiple = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(multiple, (bytes + multiple - 1) / multiple * multiple));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace {

using numbers = std::span<double>;
using known_numbers = std::span<double const>;

// The sources of temporaries. A function makes a `frame`, and its arrays live at least as long as the frame.

struct from_workspace {
  tidemark::workspace& memory;
  struct frame {
    tidemark::workspace::scope<double> scope;
    explicit frame(from_workspace& source) : scope{source.memory} {}
    numbers array(std::size_t n) { return scope.acquire<double>(n); }
  };
  void end_iteration() {}
};

struct from_vectors {
  struct frame {
    explicit frame(from_vectors&) {}
    static std::vector<double> array(std::size_t n) { return std::vector<double>(n); }
  };
  void end_iteration() {}
};

struct from_monotonic {
  std::pmr::monotonic_buffer_resource memory{};
  struct frame {
    from_monotonic& source;
    explicit frame(from_monotonic& of) : source{of} {}
    std::pmr::vector<double> array(std::size_t n) { return std::pmr::vector<double>(n, &source.memory); }
  };
  void end_iteration() { memory.release(); }
};

struct problem {
  std::size_t size;  // rows and columns of the grid
  std::vector<double> solution, residual, direction;
  double rho = 0;  // residual * preconditioned residual

  explicit problem(std::size_t n) : size{n}, solution(n * n), residual(n * n), direction(n * n) {
    for (std::size_t i = 0; i < n * n; ++i) residual[i] = 1 + 0.5 * std::sin(0.1 * static_cast<double>(i));
  }
};

// A sum of products, row by row, so that the result does not depend on the compiler's split of a long sum.
template <class Memory>
double dot(Memory& memory, std::size_t rows, known_numbers x, known_numbers y) {
  typename Memory::frame here{memory};
  auto&& sums = here.array(rows);
  const std::size_t columns = x.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) sum += x[i] * y[i];
    sums[row] = sum;
  }
  for (std::size_t stride = 1; stride < rows; stride *= 2) {
    for (std::size_t row = 0; row + stride < rows; row += 2 * stride) sums[row] += sums[row + stride];
  }
  return sums[0];
}

// y += a x
void axpy(double a, known_numbers x, numbers y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += a * x[i];
}

// y = A x. The grid is surrounded by zeros: a row of zeros above and below, and one more element on both
// sides.
template <class Memory>
void apply(Memory& memory, std::size_t size, known_numbers x, numbers y) {
  typename Memory::frame here{memory};
  auto&& outside = here.array(size);
  auto&& padded = here.array(size + 2);
  std::ranges::fill(outside, 0.0);
  padded[0] = padded[size + 1] = 0;
  for (std::size_t row = 0; row < size; ++row) {
    double const* const above = row > 0 ? &x[(row - 1) * size] : outside.data();
    double const* const below = row + 1 < size ? &x[(row + 1) * size] : outside.data();
    std::ranges::copy(x.subspan(row * size, size), padded.begin() + 1);
    for (std::size_t i = 0; i < size; ++i) {
      y[row * size + i] = 4 * padded[i + 1] - padded[i] - padded[i + 2] - above[i] - below[i];
    }
  }
}

// z approximates A^-1 r: two damped sweeps of Jacobi's method.
template <class Memory>
void precondition(Memory& memory, std::size_t size, known_numbers r, numbers z) {
  constexpr double damping = 0.8 / 4;  // by the diagonal of A
  typename Memory::frame here{memory};
  auto&& left = here.array(r.size());
  for (std::size_t i = 0; i < r.size(); ++i) z[i] = damping * r[i];
  apply(memory, size, z, left);
  for (std::size_t i = 0; i < r.size(); ++i) z[i] += damping * (r[i] - left[i]);
}

// Runs an iteration. Returns the norm of the residual.
template <class Memory>
double step(Memory& memory, problem& p) {
  typename Memory::frame here{memory};
  auto&& z = here.array(p.residual.size());
  auto&& image = here.array(p.residual.size());
  precondition(memory, p.size, p.residual, z);
  const double rho = dot(memory, p.size, p.residual, z);
  const double beta = p.rho != 0 ? rho / p.rho : 0;
  for (std::size_t i = 0; i < z.size(); ++i) p.direction[i] = z[i] + beta * p.direction[i];
  p.rho = rho;
  apply(memory, p.size, p.direction, image);
  const double alpha = rho / dot(memory, p.size, p.direction, image);
  axpy(alpha, p.direction, p.solution);
  axpy(-alpha, image, p.residual);
  return std::sqrt(dot(memory, p.size, p.residual, p.residual));
}

struct options {
  std::size_t size = 512;
  std::size_t iterations = 200;
  bool help = false;
};

struct measured {
  char const* name;
  double seconds;      // of an iteration
  double allocations;  // of an iteration, after the first
  double residual;
};

template <class Memory>
measured solve(char const* name, options const& chosen, Memory& memory) {
  problem p{chosen.size};
  std::vector<double> seconds(chosen.iterations);
  double residual = 0;
  std::size_t calls = 0;
  for (std::size_t i = 0; i < chosen.iterations; ++i) {
    if (i == 1) calls = calls_of_new;
    const auto begin = std::chrono::steady_clock::now();
    residual = step(memory, p);
    memory.end_iteration();
    seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  const auto later = static_cast<double>(chosen.iterations - 1);
  const double allocations = static_cast<double>(calls_of_new - calls) / later;
  const auto median = seconds.begin() + 1 + (seconds.end() - seconds.begin() - 1) / 2;
  std::nth_element(seconds.begin() + 1, median, seconds.end());
  return {name, *median, allocations, residual};
}

// Counts the allocations of a workspace from its upstream.
class counting_resource final : public std::pmr::memory_resource {
 public:
  std::size_t calls = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    ++calls;
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

// A user error: what() is one sentence for stderr, and the exit status is 2.
using input_error = std::domain_error;

options parse_options(int argc, char** argv) {
  static constexpr option known[] = {{"size", 1, nullptr, 's'},
                                     {"iterations", 1, nullptr, 'i'},
                                     {"help", 0, nullptr, 'h'},
                                     {nullptr, 0, nullptr, 0}};
  int index = 0;  // of the option in `known`; optarg is its value
  const auto number = [&](std::size_t least, std::size_t most) {
    std::size_t value = 0;
    char const* const end = optarg + std::strlen(optarg);
    const auto [stop, error] = std::from_chars(optarg, end, value);
    if (error == std::errc{} && stop == end && least <= value && value <= most) return value;
    throw input_error{std::string{"--"} + known[index].name + " needs a whole number from " +
                      std::to_string(least) + " to " + std::to_string(most) + ", not '" + optarg + "'."};
  };
  options chosen;
  opterr = 0;  // the program prints its own messages
  while (optind < argc) {
    const std::string word = argv[optind];
    const int letter = getopt_long(argc, argv, "+:h", known, &index);
    if (letter == 's') chosen.size = number(2, 4096);
    if (letter == 'i') chosen.iterations = number(2, 100'000);
    if (letter == 'h') chosen.help = true;
    if (letter == ':') throw input_error{word + " needs a value; see --help."};
    if (letter == '?' || letter == -1) throw input_error{"there is no option '" + word + "'; see --help."};
  }
  return chosen;
}

constexpr char const* help_text =
    "usage: stencil [options]\n\n"
    "Solves a linear system on a square grid, with temporaries from a workspace, from vectors "
    "and from a monotonic resource.\n\n"
    "  --size N         rows and columns of the grid, 2 to 4096 (default 512)\n"
    "  --iterations N   iterations of the conjugate gradient method, 2 to 100000 (default 200)\n"
    "  --help           print this";

int run(int argc, char** argv) {
  const options chosen = parse_options(argc, argv);
  if (chosen.help) return std::puts(help_text) < 0 ? 1 : 0;

  counting_resource upstream;
  tidemark::workspace workspace{&upstream};
  from_workspace temporaries{workspace};
  from_vectors vectors;
  from_monotonic monotonic;
  const measured results[] = {solve("workspace", chosen, temporaries), solve("vector", chosen, vectors),
                              solve("monotonic", chosen, monotonic)};

  std::printf(
      "%zu x %zu unknowns, %zu iterations\n\n"
      "temporaries   time per iteration   allocations per iteration   norm of the residual\n",
      chosen.size, chosen.size, chosen.iterations);
  for (measured const& one : results) {
    std::printf("%-11s %17.1f us %27.2f   %#.17g\n", one.name, 1e6 * one.seconds, one.allocations,
                one.residual);
  }
  const tidemark::workspace_stats memory = workspace.stats();
  std::printf("\nthe workspace asked its upstream %zu times in all: %zu slots, %zu KiB\n", upstream.calls,
              memory.slot_count, memory.held_bytes / tidemark::KiB);
  if constexpr (tidemark::workspace::checked) {
    std::puts("This workspace is checked: it fills what is taken back, and its time says little.");
  }
  for (measured const& one : results) {
    if (std::bit_cast<std::uint64_t>(one.residual) == std::bit_cast<std::uint64_t>(results[0].residual))
      continue;
    throw std::runtime_error{std::string{"the residual on '"} + one.name +
                             "' is not that on 'workspace', which is a bug."};
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
    std::fprintf(stderr, "stencil: %s\n", error.what());
    return dynamic_cast<input_error const*>(&error) != nullptr ? 2 : 1;
  }
}
