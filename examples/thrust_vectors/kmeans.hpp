// SPDX-License-Identifier: Apache-2.0
// What the program tells kmeans.cpp, and what it gets back. No module and nothing of Thrust's: nvcc, which
// may compile kmeans.cpp, cannot import, and the rest of the program needs no Thrust.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct kmeans_problem {
  float const* pixels;  // of all images, one behind the other, in the host's memory: multiples of 1/16
  std::size_t image_count;
  std::size_t pixel_count;                // of an image
  std::vector<std::size_t> first_images;  // one for each cluster: its first centroid
  std::size_t max_iterations;
};

struct kmeans_result {
  std::vector<int> clusters;     // of each image
  std::vector<float> centroids;  // one behind the other
  double inertia = 0;            // sum of squared distances of the images to their centroids
  bool converged = false;        // the last iteration left every image where it was
  // How often memory was requested from the system, in each iteration.
  std::vector<std::uint64_t> system_allocations;
  // Of the arena of the iterations, where there is one.
  std::size_t step_peak_bytes = 0, step_committed_bytes = 0, step_reserved_bytes = 0;
};

// Whether this was compiled for a device, or for Thrust's system on the host.
bool kmeans_needs_device();

// Each vector and each temporary of an algorithm is the system's.
kmeans_result kmeans_with_thrust_alone(kmeans_problem const& problem);

// The same, with memory of tidemark.
kmeans_result kmeans_with_tidemark(kmeans_problem const& problem);
