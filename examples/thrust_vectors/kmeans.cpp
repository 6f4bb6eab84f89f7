// SPDX-License-Identifier: Apache-2.0
// k-means, written once with Thrust's vectors and algorithms. `Memory` selects their memory: the system or
// tidemark. nvcc compiles this file for a device, and any other compiler for the host.
//
// Read `tidemark_memory` first, then `iterate`.
#include "kmeans.hpp"

#include <thrust/copy.h>
#include <thrust/device_allocator.h>
#include <thrust/device_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/mr/allocator.h>
#include <thrust/reduce.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <cuda/std/functional>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/thrust.hpp>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#else
#include <tidemark/arena.hpp>
#include <tidemark/pool.hpp>
#endif

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

namespace {

// ---- Sources of memory ----

// Vectors of an iteration and temporaries of its algorithms lie in an arena, which is rewound at the end of
// the iteration. Longer-lived data lies in a pool.
class tidemark_memory {
 public:
  template <class T>
  using vector = tidemark::device_vector<T>;

  // The last argument of a vector's constructor.
  auto kept() { return &kept_; }
  auto step() { return &step_; }
  // The first argument of an algorithm.
  auto policy() { return tidemark::par(step_); }
  // The returned object lives as long as the iteration.
  [[nodiscard]] auto begin_iteration() { return decltype(step_)::scope{step_}; }

  std::uint64_t system_allocations() const { return step_.stats().system_calls + kept_.stats().misses; }
  void report(kmeans_result& to) const {
    const tidemark::arena_stats step = step_.stats();
    to.step_peak_bytes = step.peak_bytes;
    to.step_committed_bytes = step.committed_bytes;
    to.step_reserved_bytes = step.reserved_bytes;
  }

 private:
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
  // All allocations are on one stream, so freed memory can be reused at once.
  tidemark::gpu::stream stream_;
  tidemark::device_arena step_{{.reserve = 1 * tidemark::GiB, .name = "step"}, stream_.get()};
  tidemark::device_pool kept_{{.stream = stream_, .name = "kept"}};
#else
  tidemark::arena step_{{.reserve = 1 * tidemark::GiB, .name = "step"}};
  tidemark::pool kept_{{.name = "kept"}};
#endif
};

// Thrust's default resource, cudaMalloc with CUDA, with a counter.
class system_resource final : public thrust::mr::memory_resource<thrust::device_ptr<void>> {
 public:
  std::uint64_t calls = 0;

  pointer do_allocate(std::size_t bytes, std::size_t align) override {
    ++calls;
    return system_.do_allocate(bytes, align);
  }
  void do_deallocate(pointer block, std::size_t bytes, std::size_t align) override {
    system_.do_deallocate(block, bytes, align);
  }

 private:
  thrust::device_ptr_memory_resource<thrust::device_memory_resource> system_;
};

// Memory as with Thrust alone: allocated on use, and deallocated after use.
class thrust_memory {
 public:
  template <class T>
  using vector = thrust::device_vector<T, thrust::mr::allocator<T, system_resource>>;

  auto kept() { return &system_; }
  auto step() { return &system_; }
  auto policy() { return thrust::device(&system_); }
  [[nodiscard]] int begin_iteration() const { return 0; }  // no memory ends with an iteration

  std::uint64_t system_allocations() const { return system_.calls; }
  void report(kmeans_result&) const {}

 private:
  system_resource system_;
};

// ---- Functions of an element ----

// Returns the first of the closest centroids of an image, and the square of the distance.
struct closest_centroid {
  float const *pixels, *centroids;
  std::size_t pixel_count, cluster_count;
  HOST_DEVICE thrust::tuple<int, float> operator()(std::size_t image) const {
    std::size_t closest = 0;
    float least = 0;
    for (std::size_t cluster = 0; cluster < cluster_count; ++cluster) {
      float sum = 0;
      for (std::size_t i = 0; i < pixel_count; ++i) {
        const float difference = pixels[image * pixel_count + i] - centroids[cluster * pixel_count + i];
        sum += difference * difference;
      }
      if (cluster == 0 || sum < least) {
        least = sum;
        closest = cluster;
      }
    }
    return {static_cast<int>(closest), least};
  }
};

// Sums are exact, so that every run gives the same result in any order of additions. Pixels are multiples of
// 1/16 in double precision, and distances are rounded to multiples of this unit.
constexpr double distance_unit = 1.0 / (1 << 20);
struct in_units {
  HOST_DEVICE long long operator()(float distance) const {
    return static_cast<long long>(static_cast<double>(distance) / distance_unit + 0.5);
  }
};

// Counts an image.
struct one {
  HOST_DEVICE int operator()(std::size_t) const { return 1; }
};

// All pixels, with the summands of each sum adjacent: the first pixels of all images, then the second pixels,
// and so on. Images are sorted by cluster.
struct sorted_pixels {
  float const* pixels;
  int const *images, *clusters;  // sorted by cluster
  std::size_t image_count, pixel_count, cluster_count;
};
struct sum_number : sorted_pixels {  // differs between sums
  HOST_DEVICE std::size_t operator()(std::size_t i) const {
    return i / image_count * cluster_count + static_cast<std::size_t>(clusters[i % image_count]);
  }
};
struct summand : sorted_pixels {
  HOST_DEVICE double operator()(std::size_t i) const {
    const auto image = static_cast<std::size_t>(images[i % image_count]);
    return static_cast<double>(pixels[image * pixel_count + i / image_count]);
  }
};

// Converts the sums, in the same order, to pixels of centroids.
struct cluster_sums {
  double const* sums;
  int const *clusters, *sizes;  // clusters that have images
  std::size_t cluster_count;    // of these clusters
  std::size_t pixel_count;
};
struct mean : cluster_sums {
  HOST_DEVICE float operator()(std::size_t i) const {
    return static_cast<float>(sums[i] / sizes[i % cluster_count]);
  }
};
struct place : cluster_sums {  // among the pixels of all centroids
  HOST_DEVICE std::size_t operator()(std::size_t i) const {
    return static_cast<std::size_t>(clusters[i % cluster_count]) * pixel_count + i / cluster_count;
  }
};

template <class Vector>
auto raw(Vector& vector) {
  return thrust::raw_pointer_cast(vector.data());
}

// function(0), function(1), ...
template <class Function>
auto values_of(Function function) {
  return thrust::make_transform_iterator(thrust::counting_iterator<std::size_t>{0}, function);
}

// ---- k-means (Lloyd 1982) ----

// Data that outlives an iteration.
template <class Memory>
struct clustering {
  typename Memory::template vector<float> pixels, centroids;
  typename Memory::template vector<int> clusters;  // of each image; -1 before the first iteration
  double inertia = 0;
};

// Assigns each image to its closest centroid, and moves each centroid to the mean of its images. Returns the
// number of images whose centroid changed.
template <class Memory>
int iterate(Memory& memory, kmeans_problem const& problem, clustering<Memory>& kept) {
  using ints = typename Memory::template vector<int>;
  using floats = typename Memory::template vector<float>;
  using doubles = typename Memory::template vector<double>;
  const std::size_t images = problem.image_count, pixels = problem.pixel_count;
  const std::size_t clusters = problem.first_images.size();

  // Allocations from here on end with this function: vectors, and everything that algorithms left.
  [[maybe_unused]] auto const scope = memory.begin_iteration();
  auto const policy = memory.policy();

  ints closest(images, memory.step());
  floats distances(images, memory.step());
  const thrust::counting_iterator<std::size_t> first_image{0};
  thrust::transform(policy, first_image, first_image + static_cast<std::ptrdiff_t>(images),
                    thrust::make_zip_iterator(closest.begin(), distances.begin()),
                    closest_centroid{raw(kept.pixels), raw(kept.centroids), pixels, clusters});
  const int changed = thrust::inner_product(policy, closest.begin(), closest.end(), kept.clusters.begin(), 0,
                                            cuda::std::plus<int>{}, cuda::std::not_equal_to<int>{});
  const long long inertia = thrust::transform_reduce(policy, distances.begin(), distances.end(), in_units{},
                                                     0LL, cuda::std::plus<long long>{});
  kept.inertia = static_cast<double>(inertia) * distance_unit;

  // Sorts images by cluster, and finds the clusters and their sizes.
  ints sorted(closest, memory.step()), order(images, memory.step());
  thrust::sequence(policy, order.begin(), order.end());
  thrust::sort_by_key(policy, sorted.begin(), sorted.end(), order.begin());
  ints found(clusters, memory.step()), sizes(clusters, memory.step());
  auto const ends = thrust::reduce_by_key(policy, sorted.begin(), sorted.end(), values_of(one{}),
                                          found.begin(), sizes.begin());
  const auto count = static_cast<std::size_t>(ends.first - found.begin());

  doubles sums(count * pixels, memory.step());
  const sorted_pixels all{raw(kept.pixels), raw(order), raw(sorted), images, pixels, clusters};
  auto const sum_numbers = values_of(sum_number{all});
  thrust::reduce_by_key(policy, sum_numbers, sum_numbers + static_cast<std::ptrdiff_t>(images * pixels),
                        values_of(summand{all}), thrust::make_discard_iterator(), sums.begin());

  floats moved(kept.centroids, memory.step());  // a centroid without images does not move
  const cluster_sums summed{raw(sums), raw(found), raw(sizes), count, pixels};
  auto const means = values_of(mean{summed});
  thrust::scatter(policy, means, means + static_cast<std::ptrdiff_t>(count * pixels),
                  values_of(place{summed}), moved.begin());

  // Copies out of the arena, because an assigned vector keeps its own memory. (A move would take the memory
  // along, which ends with the scope.)
  kept.clusters = closest;
  kept.centroids = moved;
  return changed;
}

template <class Memory>
kmeans_result run(kmeans_problem const& problem) {
  Memory memory;
  const std::size_t pixels = problem.pixel_count, clusters = problem.first_images.size();
  clustering<Memory> kept{typename Memory::template vector<float>(
                              problem.pixels, problem.pixels + problem.image_count * pixels, memory.kept()),
                          typename Memory::template vector<float>(clusters * pixels, memory.kept()),
                          typename Memory::template vector<int>(problem.image_count, -1, memory.kept())};
  for (std::size_t i = 0; i < clusters; ++i) {
    float const* const image = problem.pixels + problem.first_images[i] * pixels;
    thrust::copy(image, image + pixels, kept.centroids.begin() + static_cast<std::ptrdiff_t>(i * pixels));
  }

  kmeans_result result;
  while (!result.converged && result.system_allocations.size() < problem.max_iterations) {
    const std::uint64_t before = memory.system_allocations();
    result.converged = iterate(memory, problem, kept) == 0;
    result.system_allocations.push_back(memory.system_allocations() - before);
  }
  result.inertia = kept.inertia;
  result.clusters.resize(kept.clusters.size());
  thrust::copy(kept.clusters.begin(), kept.clusters.end(), result.clusters.begin());
  result.centroids.resize(kept.centroids.size());
  thrust::copy(kept.centroids.begin(), kept.centroids.end(), result.centroids.begin());
  memory.report(result);
  return result;
}

}  // namespace

bool kmeans_needs_device() { return THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA; }

kmeans_result kmeans_with_thrust_alone(kmeans_problem const& problem) { return run<thrust_memory>(problem); }

kmeans_result kmeans_with_tidemark(kmeans_problem const& problem) { return run<tidemark_memory>(problem); }
