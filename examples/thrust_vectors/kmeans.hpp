// SPDX-License-Identifier: Apache-2.0
// The interface of kmeans.cpp. Uses no module, because nvcc may compile kmeans.cpp and cannot import. Uses no
// header of Thrust, which the rest of the program does not need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct kmeans_problem {
  float const* pixels;  // of all images in sequence, in the host's memory: multiples of 1/16
  std::size_t image_count;
  std::size_t pixel_count;                // of an image
  std::vector<std::size_t> first_images;  // for each cluster: its first centroid
  std::size_t max_iterations;
};

struct kmeans_result {
  std::vector<int> clusters;     // of each image
  std::vector<float> centroids;  // in sequence
  double inertia = 0;            // sum of squared distances of the images to their centroids
  bool converged = false;        // true if the last iteration moved no image
  // Number of system allocations in each iteration.
  std::vector<std::uint64_t> system_allocations;
  // Statistics of the iterations' arena; 0 without an arena.
  std::size_t step_peak_bytes = 0, step_committed_bytes = 0, step_reserved_bytes = 0;
};

// Returns true if this was compiled for a device, false for Thrust's host system.
bool kmeans_needs_device();

// Allocates each vector and each temporary of an algorithm from the system.
kmeans_result kmeans_with_thrust_alone(kmeans_problem const& problem);

// The same with memory of tidemark.
kmeans_result kmeans_with_tidemark(kmeans_problem const& problem);
