#include "services/router/client_calls/message_padding.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

TEST(MessagePaddingTest, EverySizeBecomesTheSmallestMultipleThatCanBeHad) {
  for (const size_t multiple : {2u, 3u, 64u, 128u, 131u, 512u, 4096u}) {
    for (int length = 0; length < 600; ++length) {
      v1::GenerateResponse response;
      response.set_text(std::string(static_cast<size_t>(length), 'x'));
      const size_t before = response.ByteSizeLong();
      PadToMultiple(multiple, &response);
      const size_t after = response.SerializeAsString().size();
      EXPECT_EQ(after % multiple, 0u);
      const size_t least = (before + multiple - 1) / multiple * multiple;
      const bool one_short = least - before == 1;
      if (multiple > 2) {
        EXPECT_EQ(after, one_short ? least + multiple : least);
      }
      EXPECT_EQ(response.text().size(), static_cast<size_t>(length));
    }
  }
}

TEST(MessagePaddingTest, MessagesOfOneAndOfManyTokensAreOfOneSize) {
  v1::GenerateResponse one, many;
  one.add_token_ids(5);
  for (int i = 0; i < 16; ++i) many.add_token_ids(100000 + i);
  EXPECT_NE(one.ByteSizeLong(), many.ByteSizeLong());
  PadToMultiple(256, &one);
  PadToMultiple(256, &many);
  EXPECT_EQ(one.ByteSizeLong(), 256u);
  EXPECT_EQ(many.ByteSizeLong(), 256u);
}

TEST(MessagePaddingTest, NoneIsAskedFor) {
  v1::GenerateResponse response;
  response.set_text("abc");
  const size_t before = response.ByteSizeLong();
  PadToMultiple(0, &response);
  EXPECT_EQ(response.ByteSizeLong(), before);
}

TEST(MessagePaddingTest, APaddedMessageCanBePaddedAgain) {
  v1::GenerateResponse response;
  response.set_text("abc");
  PadToMultiple(512, &response);
  PadToMultiple(64, &response);
  EXPECT_EQ(response.ByteSizeLong(), 64u);
}

}  // namespace
}  // namespace tandem
