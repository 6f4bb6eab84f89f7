// SPDX-License-Identifier: Apache-2.0
// Google Benchmark's main, which also reports the available peers in the report's context and on stderr.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>
#include <vector>

#include "peers.hpp"

int main(int count, char** arguments) {
  std::string missing;
  std::vector<std::string> sentences = tidemark::bench::left_out();
#if defined(TIDEMARK_BENCH_WITHOUT_OPENMP)
  sentences.emplace_back("topic nbody: the compiler has no OpenMP (libomp-22-dev)");
#endif
  for (std::string const& sentence : sentences) {
    std::fprintf(stderr, "left out: %s\n", sentence.c_str());
    missing += (missing.empty() ? "" : "; ") + sentence;
  }
  for (tidemark::bench::version const& one : tidemark::bench::versions()) {
    benchmark::AddCustomContext("version of " + one.of, one.is);
  }
  benchmark::AddCustomContext("left out", missing);
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
