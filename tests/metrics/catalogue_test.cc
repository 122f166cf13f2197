#include "common/metrics/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "tests/support/docs_tables.h"

namespace tandem {
namespace {

const char* TypeName(MetricType type) {
  return type == MetricType::kCounter ? "counter"
         : type == MetricType::kGauge ? "gauge"
                                      : "histogram";
}

// Returns the text that docs/metrics.md must have.
std::string Tables() {
  std::string text;
  for (const metrics::CatalogueSection& section : metrics::Catalogue()) {
    text += "\n### " + std::string(section.title) + " (" + section.processes + ")\n\n";
    text +=
        "| name | type | unit | labels | what | when it is unusual |\n"
        "| --- | --- | --- | --- | --- | --- |\n";
    for (const MetricInfo* info : section.metrics) {
      const std::string labels = std::regex_replace(info->labels, std::regex(","), ", ");
      text += "| `" + std::string(info->name) + "` | " + TypeName(info->type) + " | " + info->unit +
              " | " + labels + " | " + info->help + " | " + info->advice + " |\n";
    }
  }
  return text + "\n";
}

TEST(CatalogueTest, NamesFollowPrometheus) {
  std::set<std::string> names;
  for (const metrics::CatalogueSection& section : metrics::Catalogue()) {
    for (const MetricInfo* info : section.metrics) {
      const std::string name = info->name;
      EXPECT_TRUE(names.insert(name).second) << name << " comes twice";
      EXPECT_TRUE(std::regex_match(name, std::regex("(tandem|process)_[a-z0-9_]+"))) << name;
      EXPECT_EQ(name.ends_with("_total"), info->type == MetricType::kCounter) << name;
      // The unit must be part of the name.
      const std::string unit = info->unit;
      if (unit == "seconds" || unit == "bytes") {
        EXPECT_NE(name.find("_" + unit), std::string::npos) << name;
      }
      EXPECT_EQ(std::string(info->help).back(), '.') << name;
      EXPECT_EQ(info->buckets.empty(), info->type != MetricType::kHistogram) << name;
      for (size_t i = 1; i < info->buckets.size(); ++i) {
        EXPECT_LT(info->buckets[i - 1], info->buckets[i]) << name;
      }
    }
  }
  EXPECT_GT(names.size(), 40u);
}

TEST(CatalogueTest, EachMetricSaysWhatToDo) {
  std::set<std::string> advices;
  for (const metrics::CatalogueSection& section : metrics::Catalogue()) {
    for (const MetricInfo* info : section.metrics) {
      const std::string advice = info->advice;
      EXPECT_TRUE(advices.insert(advice).second) << info->name << " has the advice of another";
      EXPECT_GT(advice.size(), 20u) << info->name;
      EXPECT_EQ(advice.back(), '.') << info->name;
      EXPECT_EQ(advice.find_first_of("|\n"), std::string::npos) << info->name;  // a table's cell
    }
  }
}

// TANDEM_UPDATE_DOCS=1 writes the docs.
TEST(CatalogueTest, TheDocsHaveTheSameTables) {
  testing::ExpectTables(std::string(TANDEM_SOURCE_DIR) + "/docs/metrics.md",
                        "<!-- made from common/metrics/catalogue.h -->\n", Tables(),
                        "tests/metrics_test");
}

}  // namespace
}  // namespace tandem
