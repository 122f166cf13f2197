#include "services/gateway/api/answers/json_text.h"

#include <gtest/gtest.h>

#include <string>

#include "services/gateway/api/fields/json_body.h"

namespace tandem::gateway {
namespace {

// What the library writes, which takes longer.
std::string LibraryText(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

TEST(JsonTextTest, EveryPairOfBytesIsWrittenAsTheLibraryWritesIt) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string pair = {static_cast<char>(first), static_cast<char>(second)};
      EXPECT_EQ(JsonText(pair), LibraryText(pair));
      EXPECT_EQ(JsonText("a" + pair + "b"), LibraryText("a" + pair + "b"));
    }
  }
}

TEST(JsonTextTest, TextsOfAllKindsAreWrittenAsTheLibraryWritesThem) {
  for (const std::string& text :
       {std::string(), std::string("\"quoted\" and C:\\path\n\n"),
        std::string("tab\tand\r\x1f\x7f"), std::string("Käse, 汉字, 🙂\n"),
        std::string("cut \xe6\xb1"), std::string(1000, '"')}) {
    EXPECT_EQ(JsonText(text), LibraryText(text));
  }
}

}  // namespace
}  // namespace tandem::gateway
