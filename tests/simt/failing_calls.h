// Makes each runtime call of some work fail, one after the other. Only for the shim.
#ifndef TANDEM_TESTS_SIMT_FAILING_CALLS_H_
#define TANDEM_TESTS_SIMT_FAILING_CALLS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tests/simt/fake_runtime.h"

namespace tandem::testing {

// Returns true if a call only gives something back. A failure of such a call is reported to nobody.
inline bool GivesBack(const std::string& call) {
  for (const char* const word : {"Free", "Unregister", "Destroy", "Close"}) {
    if (call.find(word) != std::string::npos) return true;
  }
  return false;
}

// Returns true if a message begins with the name of the call, up to the length of the name in the
// message. "cudaEventCreate: …" matches cudaEventCreateWithFlags. A launch has the name of its
// kernel.
inline bool Names(const std::string& message, const std::string& call) {
  const std::string first = message.substr(0, message.find_first_of(" :,"));
  if (call == "cudaLaunchKernelEx") return !first.empty() && !first.starts_with("cuda");
  return first.starts_with("cuda") && call.starts_with(first);
}

// `work` makes at least `least_calls` calls. For each failing call, everything that was taken must
// be given back, and the next launch must not get the error. The status must name the call and its
// failure.
inline void ExpectEachFailureIsTold(const std::function<absl::Status()>& work,
                                    uint64_t least_calls) {
  const absl::Status first = work();  // objects that are made once exist afterwards
  ASSERT_TRUE(first.ok()) << first;
  const size_t num_live = simt::NumLive();
  const uint64_t before = simt::NumCalls();
  const absl::Status second = work();
  ASSERT_TRUE(second.ok()) << second;
  ASSERT_EQ(simt::NumLive(), num_live);
  const uint64_t num_calls = simt::NumCalls() - before;
  ASSERT_GE(num_calls, least_calls);
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}) {
    for (uint64_t number = 0; number < num_calls; ++number) {
      simt::FailCall(number, error);
      const absl::Status status = work();
      simt::FailNoCall();
      const std::string call = simt::FailedCall();
      ASSERT_FALSE(call.empty()) << "call " << number << " did not come";
      ASSERT_EQ(simt::NumLive(), num_live) << call;
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << call;
      if (GivesBack(call)) {
        EXPECT_TRUE(status.ok()) << call << ": " << status;
        continue;
      }
      EXPECT_EQ(status.code(), error == cudaErrorMemoryAllocation
                                   ? absl::StatusCode::kResourceExhausted
                                   : absl::StatusCode::kInternal)
          << call << ": " << status;
      const std::string message(status.message());
      EXPECT_TRUE(Names(message, call)) << call << ": " << message;
      EXPECT_NE(message.find(cudaGetErrorName(error)), std::string::npos)
          << call << ": " << message;
    }
  }
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SIMT_FAILING_CALLS_H_
