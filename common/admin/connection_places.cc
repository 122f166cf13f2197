#include "common/admin/connection_places.h"

#include <limits>

namespace tandem {

ConnectionPlaces::Room ConnectionPlaces::RoomFor(const std::string& peer) const {
  int num_of_peer = 0;
  for (const auto& [place, connection] : taken_) {
    if (!peer.empty() && connection.peer == peer) ++num_of_peer;
  }
  const bool peer_is_full = num_of_peer >= most_of_peer_ && !peer.empty();
  if (!peer_is_full && static_cast<int>(taken_.size()) < most_) {
    return {.is_there = true, .gives_way = std::nullopt};
  }
  Room room;
  uint64_t longest = std::numeric_limits<uint64_t>::max();
  for (const auto& [place, connection] : taken_) {
    if (connection.waits_since == 0 || connection.waits_since >= longest) continue;
    if (peer_is_full && connection.peer != peer) continue;
    longest = connection.waits_since;
    room = {.is_there = true, .gives_way = place};
  }
  return room;
}

ConnectionPlaces::Place ConnectionPlaces::Take(const std::string& peer) {
  const Place place = ++last_number_;
  taken_[place] = {.peer = peer, .waits_since = place};
  return place;
}

void ConnectionPlaces::Waits(Place place) {
  if (const auto found = taken_.find(place); found != taken_.end()) {
    found->second.waits_since = ++last_number_;
  }
}

void ConnectionPlaces::IsAnswered(Place place) {
  if (const auto found = taken_.find(place); found != taken_.end()) found->second.waits_since = 0;
}

}  // namespace tandem
