#include "services/gateway/api/fields/field_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace tandem::gateway {
namespace {

TEST(FieldTableTest, EachFieldOfAnEndpointHasOneRow) {
  std::set<std::pair<std::string, int>> rows;
  for (const Field& field : FieldTable()) {
    EXPECT_NE(field.endpoints, 0) << field.name;
    for (int endpoint = 1; endpoint < 256; endpoint *= 2) {
      if ((field.endpoints & endpoint) != 0) {
        EXPECT_TRUE(rows.emplace(field.name, endpoint).second) << field.name;
      }
    }
  }
}

TEST(FieldTableTest, ExactlyTheSupportedFieldsHaveReaders) {
  for (const Field& field : FieldTable()) {
    EXPECT_EQ(field.read != nullptr, field.treatment == Treatment::kSupported) << field.name;
    EXPECT_TRUE(field.harmless.empty() || field.treatment == Treatment::kRefused) << field.name;
  }
}

TEST(FieldTableTest, EachRowSaysWhatItDoesInSentences) {
  for (const Field& field : FieldTable()) {
    ASSERT_GT(field.note.size(), 5u) << field.name;
    EXPECT_EQ(field.note.back(), '.') << field.name;
    EXPECT_EQ(field.note.find_first_of("|\n"), std::string_view::npos) << field.name;
  }
}

TEST(FieldTableTest, HarmlessValuesAreAccepted) {
  for (const Field& field : FieldTable()) {
    if (field.treatment != Treatment::kRefused) continue;
    const auto endpoint = static_cast<Endpoint>(field.endpoints & -field.endpoints);
    RequestDraft draft;
    const std::string name(field.name);
    EXPECT_TRUE(ReadFields({{name, nullptr}}, endpoint, "", &draft).ok()) << name;
    if (!field.harmless.empty()) {
      const Json harmless = Json::parse(field.harmless.substr(0, field.harmless.find('|')));
      EXPECT_TRUE(ReadFields({{name, harmless}}, endpoint, "", &draft).ok()) << name;
    }
    const absl::Status status = ReadFields({{name, "something"}}, endpoint, "", &draft);
    EXPECT_TRUE(std::string(status.message()).starts_with(name + ": got a string")) << status;
  }
}

}  // namespace
}  // namespace tandem::gateway
