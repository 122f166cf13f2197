#include "services/router/admission/placement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tandem {
namespace {

PodRoom Room(uint32_t free_slots, int64_t free_pages) {
  PodRoom room;
  room.takes = true;
  room.num_slots = 8;
  room.num_free_slots = free_slots;
  room.num_open_slots = 8 - free_slots;
  room.page_tokens = 4;
  room.num_pages = 100;
  room.num_free_pages = free_pages;
  return room;
}

std::optional<size_t> Placed(const std::vector<PodRoom>& rooms, uint32_t tokens, uint64_t turn) {
  std::vector<PodView> pods(rooms.size());
  for (size_t pod = 0; pod < rooms.size(); ++pod) pods[pod].room = rooms[pod];
  std::vector<size_t> all(rooms.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return PlaceRequest(pods, all, tokens, turn);
}

TEST(PlaceRequestTest, TakesThePodWithMostPagesFree) {
  const std::vector<PodRoom> pods = {Room(8, 50), Room(8, 60), Room(8, 55)};
  EXPECT_EQ(Placed(pods, 10, 0), 1);
}

TEST(PlaceRequestTest, TakesThePodWithMostSlotsFree) {
  const std::vector<PodRoom> pods = {Room(2, 90), Room(3, 90), Room(1, 90)};
  EXPECT_EQ(Placed(pods, 10, 0), 1);
}

TEST(PlaceRequestTest, TheScarcerOfBothCounts) {
  // 7 of 8 slots but 10 pages, against 3 of 8 slots and 40 pages.
  const std::vector<PodRoom> pods = {Room(8, 10), Room(4, 40)};
  EXPECT_EQ(Placed(pods, 4, 0), 1);
}

TEST(PlaceRequestTest, PassesOverPodsWithoutRoom) {
  std::vector<PodRoom> pods = {Room(0, 100), Room(8, 3), Room(1, 20), Room(8, 100)};
  pods[3].takes = false;
  // 10 tokens and one more are three pages, and one to grow: pod 1 has three.
  EXPECT_EQ(Placed(pods, 10, 0), 2);
  pods[2].num_free_slots = 0;
  EXPECT_EQ(Placed(pods, 10, 0), std::nullopt);
  EXPECT_EQ(Placed({}, 10, 0), std::nullopt);
}

TEST(PlaceRequestTest, AnIdlePodTakesWhatItsPagesMayNotHold) {
  // Other routers hold them: the worker has the last word.
  std::vector<PodRoom> pods = {Room(8, 1)};
  EXPECT_EQ(Placed(pods, 10, 0), std::nullopt);
  pods[0].idle = true;
  EXPECT_EQ(Placed(pods, 10, 0), 0);
}

TEST(PlaceRequestTest, OtherRoutersRankPodsAndKeepNobodyWaiting) {
  std::vector<PodRoom> pods = {Room(8, 100), Room(6, 100)};
  pods[0].num_open_slots = 7;
  EXPECT_EQ(Placed(pods, 10, 0), 1);
  // Full, as was said a while ago, and still better than to wait.
  pods[0].num_open_slots = 8;
  pods[1].num_free_slots = 0;
  EXPECT_EQ(Placed(pods, 10, 0), 0);
}

TEST(PlaceRequestTest, EqualPodsTakeTurns) {
  const std::vector<PodRoom> pods(3, Room(8, 100));
  EXPECT_EQ(Placed(pods, 10, 0), 0);
  EXPECT_EQ(Placed(pods, 10, 1), 1);
  EXPECT_EQ(Placed(pods, 10, 5), 2);
}

TEST(PlaceRequestTest, WithoutPagesSlotsAloneCount) {
  std::vector<PodRoom> pods = {Room(3, 0), Room(5, 0)};
  for (PodRoom& pod : pods) pod.page_tokens = 0;
  EXPECT_EQ(Placed(pods, 1000, 0), 1);
}

TEST(PlaceRequestTest, OnlyPodsThatMayTakeItCount) {
  std::vector<PodView> pods(3);
  pods[0].room = Room(8, 100);
  pods[1].room = Room(1, 20);
  pods[2].room = Room(1, 20);
  const std::vector<size_t> choices = {1, 2};
  EXPECT_EQ(PlaceRequest(pods, choices, 10, 0), 1);
  EXPECT_EQ(PlaceRequest(pods, choices, 10, 2), 2);
  EXPECT_EQ(PlaceRequest(pods, {}, 10, 0), std::nullopt);
}

}  // namespace
}  // namespace tandem
