// SPDX-License-Identifier: Apache-2.0
// thrust_vectors: shows the system allocations of Thrust's vectors and algorithms, and how to avoid them.
//
// k-means finds clusters of similar images among handwritten digits, without their labels. An iteration makes
// eight vectors, and its algorithms allocate temporaries. All of these are dead at the end of the iteration,
// so they lie in an arena that is then rewound. The same steps run twice, with Thrust alone and with
// tidemark.
//
// The program prints for both runs the number of system allocations per iteration, and the purity: the share
// of images whose label is the most frequent one of their cluster. The exit status is 1 if the results differ
// in a single bit, or if the program was built for a device and none exists. It is 2 for an invalid option.
//
//   thrust_vectors --clusters 20 --seed 3
//
// Only kmeans.cpp uses Thrust.
#include "kmeans.hpp"
#include "standard.hpp"

import digits.input;
import tidemark;
import tidemark.cuda;

namespace {

// Returns a random set of distinct images, one for each cluster.
std::vector<std::size_t> choose_images(dataset const& data, options const& chosen) {
  std::mt19937_64 random{chosen.seed};
  std::vector<std::size_t> images(data.size());
  std::iota(images.begin(), images.end(), std::size_t{0});
  for (std::size_t i = 0; i < chosen.clusters; ++i)
    std::swap(images[i], images[i + random() % (images.size() - i)]);
  images.resize(chosen.clusters);
  return images;
}

double purity(std::vector<int> const& clusters, dataset const& data, std::size_t cluster_count) {
  std::vector<std::array<std::size_t, label_count>> counts(cluster_count);
  for (std::size_t i = 0; i < data.size(); ++i)
    ++counts[static_cast<std::size_t>(clusters[i])][data.labels[i]];
  std::size_t right = 0;
  for (auto const& labels : counts) right += *std::ranges::max_element(labels);
  return 100 * static_cast<double>(right) / static_cast<double>(data.size());
}

void print(char const* name, kmeans_result const& one, double percent) {
  const auto first = one.system_allocations.begin(), end = one.system_allocations.end();
  const double later = std::accumulate(first + 1, end, 0.0) / static_cast<double>(end - first - 1);
  std::printf("%-14s %10zu %14.6f %8.2f %% %11zu %12.2f\n", name, one.system_allocations.size(), one.inertia,
              percent, std::size_t{*first}, later);
}

void require_device() {
  tidemark::gpu::driver& driver = tidemark::gpu::default_driver();
  int devices = 0;
  const tidemark::gpu::status found = driver.device_count(devices);
  if (found == tidemark::gpu::status::success && devices > 0) return;
  const std::string reason = found == tidemark::gpu::status::success
                                 ? "the driver counts none"
                                 : driver.error_name(found) + std::string{": "} + driver.error_string(found);
  throw std::runtime_error{"there is no CUDA device to use (" + reason + "), and nvcc built this for one."};
}

constexpr option known_options[] = {{"clusters", 1, nullptr, 'c'}, {"iterations", 1, nullptr, 'i'},
                                    {"seed", 1, nullptr, 's'},     {"data", 1, nullptr, 'd'},
                                    {"help", 0, nullptr, 'h'},     {nullptr, 0, nullptr, 0}};
constexpr char const* help_text =
    "usage: thrust_vectors [options]\n\n"
    "Finds clusters of similar images, with Thrust's own memory and with tidemark's.\n\n"
    "  --clusters N    clusters to find, 1 to 1000 (default 10)\n"
    "  --iterations N  maximum iterations of k-means, 2 to 10000 (default 100)\n"
    "  --seed N        seed of the first centroids: a whole number (default 1), or 'random' for a\n"
    "                  seed from the system\n"
    "  --data FILE     other images: on each line 64 pixels 0..16 and a label 0..9\n"
    "  --help          print this";

int run(int argc, char** argv) {
  const options chosen = parse_options(argc, argv, known_options);
  if (chosen.help) return std::puts(help_text) < 0 ? 1 : 0;
  const dataset data = read_digits(chosen.data, *std::pmr::new_delete_resource());
  if (chosen.clusters > data.size()) {
    throw input_error{chosen.data + " has " + std::to_string(data.size()) + " images, too few for " +
                      std::to_string(chosen.clusters) + " clusters."};
  }
  if (kmeans_needs_device()) require_device();

  const kmeans_problem problem{data.pixels.data(), data.size(), pixels_per_image, choose_images(data, chosen),
                               chosen.iterations};
  const kmeans_result alone = kmeans_with_thrust_alone(problem);
  const kmeans_result with = kmeans_with_tidemark(problem);

  std::printf("images: %zu, clusters: %zu, seed: %zu; k-means runs %s\nfirst centroids: images", data.size(),
              chosen.clusters, chosen.seed, kmeans_needs_device() ? "on the device" : "on the host");
  for (const std::size_t image : problem.first_images) std::printf(" %zu", image);
  std::puts(
      "\n\n                                                    times that an iteration asked the system\n"
      "memory         iterations        inertia     purity   the first   later ones");
  print("Thrust alone", alone, purity(alone.clusters, data, chosen.clusters));
  print("with tidemark", with, purity(with.clusters, data, chosen.clusters));
  if (!with.converged) std::puts("Images were still moving when the iterations ended.");
  std::printf(
      "\nthe arena of the iterations, in bytes\n"
      "used at most %12zu\n"
      "committed    %12zu\n"
      "reserved     %12zu\n\n",
      with.step_peak_bytes, with.step_committed_bytes, with.step_reserved_bytes);
  if (alone.clusters != with.clusters || alone.inertia != with.inertia ||
      std::memcmp(alone.centroids.data(), with.centroids.data(), alone.centroids.size() * sizeof(float)) !=
          0) {
    throw std::runtime_error{"with tidemark there are other results than with Thrust alone, which is a bug."};
  }
  std::puts("same clusters and centroids, to the last bit");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    return std::fflush(stdout) == 0 ? status : throw std::runtime_error{"cannot write the output."};
  } catch (std::exception const& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "thrust_vectors: %s\n", error.what());
    return dynamic_cast<input_error const*>(&error) != nullptr ? 2 : 1;
  }
}
