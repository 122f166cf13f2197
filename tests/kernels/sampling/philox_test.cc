#include "kernels/sampling/random/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace tandem {
namespace {

using Words4 = std::array<uint32_t, 4>;

// The known answers are Random123's kat_vectors for philox4x32 with 10 rounds.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformTest, IsMadeOfTheFirstTwoWords) {
  // The layout of the counter is part of the meaning of a seed. A change of the layout changes
  // every seeded output.
  const DrawKey key{
      .seed = 0x299f31d0a4093822, .position = 0x0370734413198a2e, .drafter = 3, .sibling = 5};
  const Words4 words =
      Philox4x32({0, 0x00050302, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  const double expected =
      std::ldexp(static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11), -53);
  EXPECT_EQ(Uniform(key, DrawPurpose::kResample), expected);
}

TEST(UniformTest, StaysBelowOneAndFillsItsRangeEvenly) {
  constexpr int kDraws = 1 << 20;
  constexpr int kBins = 1024;
  std::vector<int> upper(kBins);
  std::vector<int> lower(kBins);  // counts by the last ten bits
  for (uint64_t position = 0; position < kDraws; ++position) {
    const double u = Uniform({.seed = 7, .position = position}, DrawPurpose::kAccept);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    const auto bits = static_cast<uint64_t>(std::ldexp(u, 53));
    ++upper[bits >> 43];
    ++lower[bits & (kBins - 1)];
  }
  for (const std::vector<int>& bins : {upper, lower}) {
    double chi_square = 0;
    for (int count : bins) chi_square += std::pow(count - kDraws / kBins, 2) / (kDraws / kBins);
    // With 1023 degrees of freedom, the mean is 1023 and the standard deviation is 45.
    EXPECT_NEAR(chi_square, kBins - 1, 6 * 45);
  }
}

TEST(UniformTest, DiffersWithEveryPartOfTheKey) {
  std::set<double> seen;
  size_t draws = 0;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (uint64_t position : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
      for (uint8_t drafter : {0, 1, 255}) {
        for (uint8_t sibling : {0, 1, 255}) {
          for (DrawPurpose purpose :
               {DrawPurpose::kPropose, DrawPurpose::kAccept, DrawPurpose::kResample,
                DrawPurpose::kBonus, DrawPurpose::kCoupled}) {
            seen.insert(Uniform({seed, position, drafter, sibling}, purpose));
            ++draws;
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), draws);
}

}  // namespace
}  // namespace tandem
