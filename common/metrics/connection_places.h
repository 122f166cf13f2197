// Which connections a server has, and which one gives way to a new one.
#ifndef TANDEM_COMMON_METRICS_CONNECTION_PLACES_H_
#define TANDEM_COMMON_METRICS_CONNECTION_PLACES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tandem {

// So many places for all, and fewer for each peer. Where none is left, the connection gives way that
// has waited longest for a request: who only holds connections open locks nobody out. One that is
// being answered is left alone. Not thread-safe.
class ConnectionPlaces {
 public:
  using Place = uint64_t;  // of one connection, never given out again

  ConnectionPlaces(int most, int most_of_peer) : most_(most), most_of_peer_(most_of_peer) {}

  struct Room {
    bool is_there = false;           // once `gives_way` has left
    std::optional<Place> gives_way;  // nullopt: none has to
  };
  // For one connection more. `peer` is its address; empty: only the places of all count.
  Room RoomFor(const std::string& peer) const;

  // For a connection that came, and waits for a request.
  Place Take(const std::string& peer);
  // Once for each, or more often.
  void Leave(Place place) { taken_.erase(place); }

  // From now on; nothing happens where the place was left.
  void Waits(Place place);
  void IsAnswered(Place place);

 private:
  struct Connection {
    std::string peer;
    uint64_t waits_since = 0;  // in the order of coming and waiting; 0: is being answered
  };

  const int most_;
  const int most_of_peer_;
  uint64_t last_number_ = 0;
  std::map<Place, Connection> taken_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_METRICS_CONNECTION_PLACES_H_
