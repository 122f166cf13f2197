// Tests sampling parameters on the wire.
#include "services/worker/slots/slot_open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/worker/slots/to_slot_open.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using testing::ToSlotOpen;

SamplingParams Unusual() {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_p = 0.9f;
  params.top_k = 40;
  params.min_p = 0.05f;
  params.repetition_penalty = 1.1f;
  params.presence_penalty = -0.5f;
  params.frequency_penalty = 0.25f;
  params.logit_bias = {{2, -100.0f}, {7, 1.5f}};
  params.min_tokens = 3;
  params.held_back_token_ids = {15, 1};
  params.seed = 0xFFFFFFFFFFFFFFFFULL;
  params.reproducible = true;
  params.lenience = 0.5f;
  params.num_logprobs = 0;
  return params;
}

TEST(SlotOpenTest, ParametersSurviveTheWire) {
  const SamplingParams sent = Unusual();
  v1::SlotOpen wire;
  ASSERT_TRUE(wire.ParseFromString(ToSlotOpen(sent, 12).SerializeAsString()));
  EXPECT_EQ(wire.prompt_length(), 12);
  const SamplingParams params = *FromSlotOpen(wire, 16);
  EXPECT_EQ(params.temperature, sent.temperature);
  EXPECT_EQ(params.top_p, sent.top_p);
  EXPECT_EQ(params.top_k, sent.top_k);
  EXPECT_EQ(params.min_p, sent.min_p);
  EXPECT_EQ(params.repetition_penalty, sent.repetition_penalty);
  EXPECT_EQ(params.presence_penalty, sent.presence_penalty);
  EXPECT_EQ(params.frequency_penalty, sent.frequency_penalty);
  EXPECT_EQ(params.logit_bias, sent.logit_bias);
  EXPECT_EQ(params.min_tokens, sent.min_tokens);
  EXPECT_EQ(params.held_back_token_ids, sent.held_back_token_ids);
  EXPECT_EQ(params.seed, sent.seed);
  EXPECT_EQ(params.reproducible, sent.reproducible);
  EXPECT_EQ(params.lenience, sent.lenience);
  EXPECT_EQ(params.num_logprobs, sent.num_logprobs);
  SamplingParams none = sent;
  none.num_logprobs = -1;
  EXPECT_EQ(FromSlotOpen(ToSlotOpen(none, 0), 16)->num_logprobs, -1);
  EXPECT_FALSE(params.audit);
  SamplingParams audited;
  audited.audit = true;
  EXPECT_TRUE(FromSlotOpen(ToSlotOpen(audited, 0), 16)->audit);
}

TEST(SlotOpenTest, EveryBadNumberIsNamed) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto expect_refused = [](const char* field, auto change) {
    SamplingParams params = Unusual();
    change(params);
    const auto result = FromSlotOpen(ToSlotOpen(params, 0), 16);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(field));
  };
  for (float bad : {kNaN, kInfinity, -kInfinity, -1.0f}) {
    expect_refused("temperature", [&](SamplingParams& p) { p.temperature = bad; });
    expect_refused("top_p", [&](SamplingParams& p) { p.top_p = bad; });
    expect_refused("min_p", [&](SamplingParams& p) { p.min_p = bad; });
    expect_refused("repetition_penalty", [&](SamplingParams& p) { p.repetition_penalty = bad; });
    expect_refused("lenience", [&](SamplingParams& p) { p.lenience = bad; });
  }
  for (float bad : {kNaN, kInfinity, -kInfinity}) {
    expect_refused("presence_penalty", [&](SamplingParams& p) { p.presence_penalty = bad; });
    expect_refused("frequency_penalty", [&](SamplingParams& p) { p.frequency_penalty = bad; });
    expect_refused("logit_bias", [&](SamplingParams& p) { p.logit_bias = {{1, bad}}; });
  }
  expect_refused("top_p", [](SamplingParams& p) { p.top_p = 0; });
  expect_refused("lenience", [](SamplingParams& p) { p.lenience = 0; });
  expect_refused("min_p", [](SamplingParams& p) { p.min_p = 1.5f; });
  expect_refused("logit_bias", [](SamplingParams& p) { p.logit_bias = {{16, 1.0f}}; });
  expect_refused("logit_bias", [](SamplingParams& p) { p.logit_bias = {{-1, 1.0f}}; });
  expect_refused("stop_token_ids", [](SamplingParams& p) { p.held_back_token_ids = {16}; });
  expect_refused("min_tokens", [](SamplingParams& p) { p.min_tokens = -1; });
  expect_refused("logprobs", [](SamplingParams& p) { p.num_logprobs = 21; });
  expect_refused("audit", [](SamplingParams& p) { p.audit = true; });  // lenience is not 1
}

}  // namespace
}  // namespace tandem
