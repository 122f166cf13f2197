// The function that a fuzz target defines. libFuzzer calls it with inputs that it makes, and
// replay.cc calls it with the inputs of the corpus.
#ifndef TANDEM_TESTS_FUZZ_FUZZ_TARGET_H_
#define TANDEM_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

// Must return for any bytes. A crash, a sanitizer's report, a timeout or too much memory is a
// finding.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tandem::fuzz {

// Checks a property that must hold for every input.
inline void Check(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::abort();
}

}  // namespace tandem::fuzz

#endif  // TANDEM_TESTS_FUZZ_FUZZ_TARGET_H_
