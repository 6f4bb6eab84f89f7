// SPDX-License-Identifier: Apache-2.0
// Google Benchmark's own main, and besides: which peers there are, in the report's context and on stderr.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "peers.hpp"

int main(int count, char** arguments) {
  std::string missing;
  for (std::string const& sentence : tidemark::bench::left_out()) {
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
