#include "common/log/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSpanId[] = "00f067aa0ba902b7";

std::string Traceparent(const std::string& version, const std::string& trace_id,
                        const std::string& span_id, const std::string& rest) {
  return version + "-" + trace_id + "-" + span_id + "-" + rest;
}

TEST(TraceContextTest, AcceptsTheHeadersThatTheRecommendationAccepts) {
  for (const std::string& text :
       {Traceparent("00", kTraceId, kSpanId, "01"), Traceparent("00", kTraceId, kSpanId, "ff"),
        Traceparent("01", kTraceId, kSpanId, "00"),
        Traceparent("fe", kTraceId, kSpanId, "00-what-is-new"),
        Traceparent("cc", kTraceId, kSpanId, "00-")}) {
    const auto trace = ParseTraceparent(text);
    ASSERT_TRUE(trace.has_value()) << text;
    EXPECT_EQ(trace->trace_id, kTraceId);
    EXPECT_EQ(trace->span_id, kSpanId);
  }
}

TEST(TraceContextTest, AnyOtherTextIsRefused) {
  const std::string zeros(32, '0');
  const std::string upper = "4BF92F3577B34DA6A3CE929D0E0E4736";
  const std::string good = Traceparent("00", kTraceId, kSpanId, "01");
  for (const std::string& text :
       {std::string(), std::string("00"), std::string(55, '0'), std::string(55, '-'),
        Traceparent("ff", kTraceId, kSpanId, "01"), Traceparent("0g", kTraceId, kSpanId, "01"),
        Traceparent("00", zeros, kSpanId, "01"),
        Traceparent("00", kTraceId, zeros.substr(16), "01"),
        Traceparent("00", upper, kSpanId, "01"), Traceparent("00", kTraceId, kSpanId, "0x"),
        Traceparent("00", kTraceId, kSpanId, "1"), good + "-", good + "0", " " + good, good + " ",
        Traceparent("01", kTraceId, kSpanId, "010"), Traceparent("0", kTraceId, kSpanId, "011")}) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
  }
  // A change of any character makes the header invalid.
  for (size_t i = 0; i < good.size(); ++i) {
    std::string broken = good;
    broken[i] = 'x';
    EXPECT_FALSE(ParseTraceparent(broken).has_value()) << broken;
  }
}

TEST(TraceContextTest, GoesIntoFieldsWhenItIsValid) {
  LogFields fields;
  AddTrace(Traceparent("00", kTraceId, kSpanId, "01"), &fields);
  EXPECT_EQ(fields.text(),
            std::string(" trace_id=\"") + kTraceId + "\" span_id=\"" + kSpanId + "\"");
  LogFields none;
  AddTrace("", &none);
  AddTrace("nonsense", &none);
  EXPECT_EQ(none.text(), "");
  EXPECT_EQ(none.json(), "");
}

}  // namespace
}  // namespace tandem
