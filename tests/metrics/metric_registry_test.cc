#include "common/metrics/metric_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "common/metrics/catalogue.h"
#include "tests/metrics/exposition.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadExposition;

TEST(MetricRegistryTest, SeriesHaveTheirLabelsTypeAndHelp) {
  MetricRegistry registry("router", "1.2.3", {{"model", "toy"}});
  registry.Counter(metrics::kEmittedTokens, {{"source", "bonus"}}).Increment(3);
  registry.Gauge(metrics::kRequestsWaiting).Set(7);
  registry.Histogram(metrics::kQueueWait).Observe(0.003);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("# TYPE tandem_emitted_tokens_total counter\n"));
  EXPECT_THAT(text, HasSubstr("# HELP tandem_requests_waiting Requests that wait"));
  // Only the docs have the advice.
  EXPECT_THAT(text, Not(HasSubstr(metrics::kRequestsWaiting.advice)));
  EXPECT_THAT(text, HasSubstr("# TYPE tandem_queue_wait_seconds histogram\n"));
  const auto series = ReadExposition(text);
  EXPECT_EQ(series.at(R"(tandem_emitted_tokens_total{model="toy",source="bonus"})"), 3);
  EXPECT_EQ(series.at(R"(tandem_requests_waiting{model="toy"})"), 7);
  EXPECT_EQ(series.at(R"(tandem_queue_wait_seconds_bucket{le="0.0025",model="toy"})"), 0);
  EXPECT_EQ(series.at(R"(tandem_queue_wait_seconds_bucket{le="0.005",model="toy"})"), 1);
  EXPECT_EQ(series.at(R"(tandem_queue_wait_seconds_bucket{le="+Inf",model="toy"})"), 1);
  EXPECT_EQ(series.at(R"(tandem_build_info{model="toy",process="router",version="1.2.3"})"), 1);
}

TEST(MetricRegistryTest, EqualLabelsNameTheSameSeries) {
  MetricRegistry registry("router", "1", {});
  auto& once = registry.Counter(metrics::kRequests, {{"status", "OK"}});
  auto& again = registry.Counter(metrics::kRequests, {{"status", "OK"}});
  auto& other = registry.Counter(metrics::kRequests, {{"status", "INTERNAL"}});
  EXPECT_EQ(&once, &again);
  EXPECT_NE(&once, &other);
}

TEST(MetricRegistryTest, ANameFromOutsideCannotBreakALine) {
  MetricRegistry registry("router", "1", {{"model", "a\"b\\c\nd"}});
  registry.Gauge(metrics::kRequestsWaiting).Set(1);
  EXPECT_THAT(registry.Serialize(),
              HasSubstr("tandem_requests_waiting{model=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(MetricRegistryTest, TheMetricsOfTheProcessAreThere) {
  const MetricRegistry registry("verifier", "1", {});
  const auto before = ReadExposition(registry.Serialize());
  const int fd = dup(0);
  const auto after = ReadExposition(registry.Serialize());
  close(fd);
  EXPECT_EQ(after.at("process_open_fds"), before.at("process_open_fds") + 1);
  EXPECT_GT(after.at("process_resident_memory_bytes"), 1e5);
  EXPECT_GE(after.at("process_cpu_seconds_total"), before.at("process_cpu_seconds_total"));
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LE(after.at("process_start_time_seconds"), now);
  EXPECT_GE(after.at("process_start_time_seconds"), now - 300);
}

}  // namespace
}  // namespace tandem
