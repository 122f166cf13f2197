// What a fuzz target defines: libFuzzer calls it with inputs of its own making, replay.cc with those
// of the corpus.
#ifndef TANDEM_TESTS_FUZZ_FUZZ_TARGET_H_
#define TANDEM_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

// Must return, whatever the bytes are; a crash, a sanitizer's report, a time-out or too much memory
// is a finding.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tandem::fuzz {

// A property that must hold for every input.
inline void Check(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::abort();
}

}  // namespace tandem::fuzz

#endif  // TANDEM_TESTS_FUZZ_FUZZ_TARGET_H_
